//! The proxy by itself, with plain TCP: a server that says everything twice.

use std::time::Instant;

use tokio::sync::mpsc;

use super::*;

/// Long enough to be sure that nothing comes.
const SILENCE: Duration = Duration::from_millis(100);

/// A server that answers each request with its bytes twice, and tells the test of each answer.
async fn start() -> (Proxy, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    let answer = buffer[..count].repeat(2);
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                    let _ = tell.send(buffer[..count].to_vec());
                }
            });
        }
    });
    (Proxy::start(port).await, told)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).await.unwrap()
}

async fn answer_of(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request).await?;
    let mut answer = vec![0; request.len() * 2];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// The connection ends without another byte.
async fn check_ended(stream: &mut TcpStream) {
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut [0; 8])).await;
    assert!(matches!(read.expect("an end"), Ok(0) | Err(_)), "bytes came through");
}

#[tokio::test]
async fn bytes_get_through_unchanged_and_the_end_of_a_stream_too() {
    let (proxy, _told) = start().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(answer_of(&mut stream, b"one").await.unwrap(), b"oneone");
    assert_eq!(answer_of(&mut stream, b"two").await.unwrap(), b"twotwo");
    stream.shutdown().await.unwrap();
    check_ended(&mut stream).await;
}

#[tokio::test]
async fn a_cut_ends_all_connections_and_no_later_one() {
    let (proxy, _told) = start().await;
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    answer_of(&mut first, b"a").await.unwrap();
    answer_of(&mut second, b"a").await.unwrap();
    proxy.cut();
    check_ended(&mut first).await;
    check_ended(&mut second).await;
    assert_eq!(answer_of(&mut connect(&proxy).await, b"b").await.unwrap(), b"bb");
}

#[tokio::test]
async fn new_connections_are_refused_and_old_ones_go_on() {
    let (proxy, _told) = start().await;
    let mut old = connect(&proxy).await;
    answer_of(&mut old, b"a").await.unwrap();
    proxy.refuse(true);
    check_ended(&mut connect(&proxy).await).await;
    assert_eq!(answer_of(&mut old, b"b").await.unwrap(), b"bb");
    proxy.refuse(false);
    assert_eq!(answer_of(&mut connect(&proxy).await, b"c").await.unwrap(), b"cc");
}

#[tokio::test]
async fn stopped_answers_are_held_while_requests_go_through() {
    let (proxy, mut told) = start().await;
    let mut stream = connect(&proxy).await;
    answer_of(&mut stream, b"a").await.unwrap();
    told.recv().await.unwrap();
    proxy.flow(Way::Answers, Flow::Stopped);
    stream.write_all(b"b").await.unwrap();
    assert_eq!(told.recv().await.unwrap(), b"b");
    let mut answer = [0; 2];
    let early = tokio::time::timeout(SILENCE, stream.read(&mut answer)).await;
    assert!(early.is_err(), "an answer came through: {early:?}");
    proxy.flow(Way::Answers, Flow::Free);
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"bb");
}

#[tokio::test]
async fn stopped_requests_do_not_reach_the_server() {
    let (proxy, mut told) = start().await;
    let mut stream = connect(&proxy).await;
    proxy.flow(Way::Requests, Flow::Stopped);
    stream.write_all(b"a").await.unwrap();
    assert!(tokio::time::timeout(SILENCE, told.recv()).await.is_err());
    proxy.flow(Way::Requests, Flow::Free);
    assert_eq!(told.recv().await.unwrap(), b"a");
}

#[tokio::test]
async fn a_trickle_takes_its_time() {
    let (proxy, _told) = start().await;
    let mut stream = connect(&proxy).await;
    let pause = Duration::from_millis(20);
    proxy.flow(Way::Answers, Flow::Slow { piece_bytes: 1, pause });
    let began = Instant::now();
    assert_eq!(answer_of(&mut stream, b"abc").await.unwrap(), b"abcabc");
    assert!(began.elapsed() >= pause * 6, "took {:?}", began.elapsed());
}

#[tokio::test]
async fn an_ambush_drops_the_answer_of_its_prey_and_of_nobody_else() {
    let (proxy, mut told) = start().await;
    let (mut prey, mut other) = (connect(&proxy).await, connect(&proxy).await);
    answer_of(&mut prey, b"a").await.unwrap();
    told.recv().await.unwrap();
    let ambush = proxy.ambush(b"COMMIT");
    assert_eq!(answer_of(&mut other, b"no prey").await.unwrap(), b"no preyno prey");
    told.recv().await.unwrap();
    prey.write_all(b"now COMMIT it").await.unwrap();
    ambush.sprung().await;
    assert_eq!(told.recv().await.unwrap(), b"now COMMIT it");
    check_ended(&mut prey).await;
    assert_eq!(answer_of(&mut other, b"COMMIT").await.unwrap(), b"COMMITCOMMIT");
}

#[tokio::test]
async fn an_ambush_may_spare_some_and_be_called_off() {
    let (proxy, _told) = start().await;
    let mut stream = connect(&proxy).await;
    let ambush = proxy.ambush_after(1);
    assert_eq!(answer_of(&mut stream, b"a").await.unwrap(), b"aa");
    stream.write_all(b"b").await.unwrap();
    ambush.sprung().await;
    check_ended(&mut stream).await;
    assert!(!proxy.call_off(), "someone has walked into it");
    let _ambush = proxy.ambush_after(1);
    let mut stream = connect(&proxy).await;
    answer_of(&mut stream, b"c").await.unwrap();
    assert!(proxy.call_off(), "nobody has walked into it");
    assert_eq!(answer_of(&mut stream, b"d").await.unwrap(), b"dd");
}

#[tokio::test]
async fn a_dropped_proxy_leaves_no_connection() {
    let (proxy, _told) = start().await;
    let mut stream = connect(&proxy).await;
    answer_of(&mut stream, b"a").await.unwrap();
    drop(proxy);
    check_ended(&mut stream).await;
}
