//! Damages a key of a queue behind a store's back, on one server or on the node that has the queue.

use windlass_stores::redis::driver::{Client, Cmd, RedisError, Value, cmd};

/// Where the key is kept meanwhile.
fn aside(key: &str) -> String {
    format!("{key}.aside")
}

/// Puts a string in the place of a key of another type.
pub(crate) async fn damage(ports: &[u16], key: &str) {
    let rename = cmd("RENAME").arg(key).arg(aside(key)).take();
    run(ports, [rename, cmd("SET").arg(key).arg("damage").take()]).await;
}

/// Puts the key back.
pub(crate) async fn undo_damage(ports: &[u16], key: &str) {
    let rename = cmd("RENAME").arg(aside(key)).arg(key).take();
    run(ports, [cmd("DEL").arg(key).take(), rename]).await;
}

/// A key that was not there cannot be renamed. Nodes that do not have the slot refuse with MOVED.
async fn run(ports: &[u16], commands: [Cmd; 2]) {
    for port in ports {
        let client = Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        for command in &commands {
            let answer: Result<Value, RedisError> = command.query_async(&mut connection).await;
            if let Err(error) = answer {
                let text = error.to_string();
                let is_expected = text.contains("no such key") || text.contains("MOVED");
                assert!(is_expected || error.code() == Some("MOVED"), "{error}");
            }
        }
    }
}
