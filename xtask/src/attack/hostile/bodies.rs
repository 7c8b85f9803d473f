//! Requests that take their time to come.

use std::io;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{Seen, crowd};
use crate::Result;
use crate::attack::Target;

const HEAD: &str = "POST /api/v1/tasks/batch HTTP/1.1\r\nhost: 127.0.0.1\r\n\
                    content-type: application/json\r\n";
/// A head has to be there within 10 s; the server looks every 10 s.
const HEAD_TIME: Duration = Duration::from_secs(21);

/// Bodies that come just fast enough, and some that do not; with their length, and in chunks without one.
pub(super) async fn slow_bodies(target: &Target) -> Result<Seen> {
    let end = Instant::now() + target.time.max(Duration::from_secs(8));
    let send = async |mut stream: TcpStream, is_chunked: bool, bytes: usize| {
        let framing =
            if is_chunked { "transfer-encoding: chunked" } else { "content-length: 33554432" };
        stream.write_all(format!("{HEAD}{framing}\r\n\r\n").as_bytes()).await?;
        let piece = |bytes: usize| match is_chunked {
            true => format!("{bytes:x}\r\n{}\r\n", " ".repeat(bytes)),
            false => " ".repeat(bytes),
        };
        stream.write_all(piece(20_000).as_bytes()).await?;
        while Instant::now() < end {
            stream.write_all(piece(bytes).as_bytes()).await?;
            sleep(Duration::from_millis(100)).await;
        }
        io::Result::Ok(())
    };
    let (quick, slow, chunked) = tokio::join!(
        crowd(target, 64, |stream| send(stream, false, 1_000)),
        crowd(target, 64, |stream| send(stream, false, 100)),
        crowd(target, 64, |stream| send(stream, true, 100)),
    );
    let [quick, slow, chunked] = [quick?, slow?, chunked?].map(|ended| super::failed(&ended));
    let figures = json!({ "at_10_kb_per_s": 64, "cut_off": quick, "at_1_kb_per_s": 64, "slow_cut_off": slow, "chunked": 64, "chunked_cut_off": chunked });
    Ok(Seen { is_fine: slow == 64 && chunked == 64, figures })
}

/// Heads that come byte by byte, or not at all.
pub(super) async fn slow_heads(target: &Target) -> Result<Seen> {
    let end = Instant::now() + HEAD_TIME.max(target.time);
    let trickle = async |mut stream: TcpStream| {
        for byte in "GET /healthz HTTP/1.1\r\nx: ".bytes().chain(std::iter::repeat(b'y')) {
            stream.write_all(&[byte]).await?;
            // A server that has closed says so by the end of what it sends.
            let mut ignored = [0; 512];
            match timeout(Duration::from_millis(500), stream.read(&mut ignored)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(read) => drop(read?),
                Err(_) if Instant::now() < end => {}
                Err(_) => break,
            }
        }
        io::Result::Ok(())
    };
    let ended = crowd(target, 400, trickle).await?;
    let cut_off = super::failed(&ended);
    Ok(Seen { is_fine: cut_off == 400, figures: json!({ "connections": 400, "cut_off": cut_off }) })
}
