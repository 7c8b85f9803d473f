//! What a real asynq 0.26 wrote to a real Redis: `fixtures/asynq/keys.json`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::cmd;
use serde::Deserialize;

use super::dump::{Content, Dump};
use super::peer::Peer;

/// The moment of the fixture's last write, in nanoseconds: the beat before its server died.
pub const NOW_NANOS: i64 = 1_794_769_838_828_000_000;

/// A key that would be gone within a slow test's time lives this long instead.
const TTL_S_MIN: i64 = 600;

#[derive(Deserialize)]
struct File {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
    ttl_s: i64,
    #[serde(flatten)]
    value: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
enum Value {
    String(String),
    List(Vec<String>),
    Set(Vec<String>),
    Zset(Vec<(String, f64)>),
    Hash(BTreeMap<String, String>),
}

/// The fixture as a dump would show it.
pub fn dump() -> Dump {
    Dump(read().into_iter().map(|found| (found.key, content(found.value))).collect())
}

/// How long each key of the fixture had; -1 for ever.
pub fn ttls() -> BTreeMap<String, i64> {
    read().into_iter().map(|found| (found.key, found.ttl_s)).collect()
}

/// Puts the fixture into the database of a peer.
pub async fn load(peer: &Peer) {
    for (key, content) in dump().0 {
        let mut write = match &content {
            Content::Text(_) => cmd("SET"),
            Content::List(_) => cmd("RPUSH"),
            Content::Set(_) => cmd("SADD"),
            Content::Scores(_) => cmd("ZADD"),
            Content::Hash(_) => cmd("HSET"),
        };
        write.arg(&key);
        match content {
            Content::Text(text) => drop(write.arg(text)),
            Content::List(members) => drop(write.arg(members)),
            Content::Set(members) => drop(write.arg(members)),
            Content::Scores(members) => members.into_iter().for_each(|(member, score)| {
                write.arg(score).arg(member);
            }),
            Content::Hash(fields) => fields.into_iter().for_each(|(field, value)| {
                write.arg(field).arg(value);
            }),
        }
        peer.plain::<redis::Value>(&write).await;
    }
    for (key, ttl) in ttls().into_iter().filter(|(_, ttl)| *ttl >= 0) {
        peer.plain::<i64>(cmd("EXPIRE").arg(key).arg(ttl.max(TTL_S_MIN))).await;
    }
}

fn read() -> Vec<Key> {
    let text = include_str!("../../fixtures/asynq/keys.json");
    serde_json::from_str::<File>(text).unwrap().keys
}

fn content(value: Value) -> Content {
    match value {
        Value::String(text) => Content::Text(bytes(&text)),
        Value::List(members) => Content::List(members.iter().map(|it| text(it)).collect()),
        Value::Set(members) => Content::Set(members.iter().map(|it| text(it)).collect()),
        Value::Zset(members) => {
            Content::Scores(members.iter().map(|(member, score)| (text(member), *score)).collect())
        }
        Value::Hash(fields) => {
            Content::Hash(fields.into_iter().map(|(field, it)| (field, bytes(&it))).collect())
        }
    }
}

fn bytes(encoded: &str) -> Vec<u8> {
    STANDARD.decode(encoded).unwrap()
}

fn text(encoded: &str) -> String {
    String::from_utf8(bytes(encoded)).unwrap()
}
