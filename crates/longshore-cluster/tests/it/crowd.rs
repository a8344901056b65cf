//! Clients that take all that they can get, by whatever protocol: the others are not disturbed.

use std::time::Duration;

use futures::future::join_all;
use longshore_cluster::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{
    identity::certificate,
    wire::{Served, read_to_end, read_until, served_with},
};

/// Longest that a test waits for the server to act.
const DEADLINE: Duration = Duration::from_secs(60);

// Frames of HTTP/2.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:status: 200` in HPACK's table: what the head of a good answer begins with.
const OK: u8 = 0x88;

/// A header whose name is this one of HPACK's table.
fn header(index: &[u8], value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 127);
    [index, &[length], value.as_bytes()].concat()
}

/// A client of HTTP/2 that asks, gives no room for any answer, and answers every ping.
struct Miser(TlsStream<TcpStream>);

impl Miser {
    async fn connect(served: &Served) -> Miser {
        let mut stream = served.connect().await;
        let no_window = [0, 4, 0, 0, 0, 0];
        let settings = frame(SETTINGS, 0, 0, &no_window);
        let hello = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat();
        stream.write_all(&hello).await.unwrap();
        Miser(stream)
    }

    /// Asks for a path, as the `n`th request.
    async fn get(&mut self, n: u32, path: &str, token: Option<&str>) {
        let (get, https) = (&[0x82_u8][..], &[0x87_u8][..]);
        let (authority, path) = (header(&[1], "localhost"), header(&[4], path));
        let token = token.map(|token| header(&[0x0f, 8], &format!("Bearer {token}")));
        let token = token.unwrap_or_default();
        let block = [get, https, &authority, &path, &token].concat();
        let flags = END_STREAM | END_HEADERS;
        let request = frame(HEADERS, flags, 2 * n + 1, &block);
        self.0.write_all(&request).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The kind of the next frame that is no ping, and its first byte; `None` when the connection has ended.
    async fn next(&mut self) -> Option<(u8, Option<u8>)> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.ok()?;
            let (kind, flags) = (head[3], head[4]);
            if kind != PING {
                return Some((kind, payload.first().copied()));
            }
            if flags & ACK == 0 {
                let pong = frame(PING, ACK, 0, &payload);
                self.0.write_all(&pong).await.ok()?;
            }
        }
    }

    /// Waits until so many requests have a good answer, of which the client takes the head only.
    async fn wait_for_heads(&mut self, n: usize) {
        let mut n_found = 0;
        while n_found < n {
            let (kind, first) = timeout(DEADLINE, self.next()).await.unwrap().unwrap();
            if kind == HEADERS {
                assert_eq!(first, Some(OK));
                n_found += 1;
            }
        }
    }

    /// Takes the heads of answers until the server ends the connection. Returns how many there were.
    async fn outlast(&mut self) -> usize {
        let mut n_found = 0;
        while let Some((kind, _)) = timeout(DEADLINE, self.next()).await.unwrap() {
            n_found += usize::from(kind == HEADERS);
        }
        n_found
    }
}

/// The headers of a request of the administrator.
fn admin(served: &Served) -> String {
    format!("host: localhost\r\n{}", served.authorization())
}

#[tokio::test]
async fn answers_that_strangers_do_not_take_leave_room_for_users() {
    let served = served_with(Limits {
        n_requests: 16,
        n_watches: 16,
        ..Limits::default()
    });
    let mut misers = Vec::new();
    for path in ["/version", "/version?watch=1"] {
        let mut miser = Miser::connect(&served).await;
        for n in 0..40 {
            miser.get(n, path, None).await;
        }
        miser.wait_for_heads(40).await;
        misers.push(miser);
    }
    for path in ["/api/v1/pods", "/api/v1/pods?watch=1&timeoutSeconds=1"] {
        let answer = served.get(path, &admin(&served)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_let_go_although_it_answers_pings() {
    let served = served_with(Limits {
        patience: Duration::from_millis(800),
        ..Limits::default()
    });
    let (served, token) = (&served, &served.file("token"));
    let ends = ["/version", "/api/v1/namespaces?watch=true"].map(|path| async move {
        let mut miser = Miser::connect(served).await;
        miser.get(0, path, Some(token)).await;
        miser.outlast().await
    });
    assert_eq!(join_all(ends).await, [1, 1]);
}

#[tokio::test]
async fn watches_over_one_connection_take_no_place_from_requests() {
    let served = served_with(Limits {
        n_requests: 1,
        ..Limits::default()
    });
    let token = served.file("token");
    let mut watcher = Miser::connect(&served).await;
    for n in 0..200 {
        let path = "/api/v1/namespaces?watch=true";
        watcher.get(n, path, Some(&token)).await;
    }
    watcher.wait_for_heads(200).await;
    let answer = served.get("/api/v1/pods", &admin(&served)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Begins a request with a body that is yet to come. Returns the begin of what the server says.
async fn begin_to_send(stream: &mut TlsStream<TcpStream>, authorization: &str) -> String {
    let head = format!(
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n{authorization}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    let read = timeout(DEADLINE, stream.read_exact(&mut begin)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&begin).into_owned()
}

#[tokio::test]
async fn bodies_that_one_user_does_not_send_leave_room_for_others() {
    let served = served_with(Limits {
        n_requests: 16,
        ..Limits::default()
    });
    let authority = served.file("ca.key");
    let mut held = Vec::new();
    let mut n_refused = 0;
    for _ in 0..20 {
        let mut stream = served.connect_as(Some(certificate(&authority))).await;
        let begun = begin_to_send(&mut stream, "").await;
        match begun.as_str() {
            "HTTP/1.1 100" => held.push(stream),
            "HTTP/1.1 429" => n_refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((held.len(), n_refused), (6, 14));
    let answer = served.get("/api/v1/pods", &admin(&served)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_ends_its_request() {
    let served = served_with(Limits {
        patience: Duration::from_millis(600),
        ..Limits::default()
    });
    let mut stream = served.connect().await;
    let begun = begin_to_send(&mut stream, &served.authorization()).await;
    assert_eq!(begun, "HTTP/1.1 100");
    read_until(&mut stream, b"\r\n\r\nHTTP/1.1 408").await;
}

/// A request on a connection that stays open.
async fn ask(served: &Served, stream: &mut TlsStream<TcpStream>) {
    let request = format!("GET /healthz HTTP/1.1\r\n{}\r\n", admin(served));
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(stream, b"\r\n\r\nok").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn connections_of_nobody_make_room_and_those_of_users_stay() {
    let served = served_with(Limits {
        n_newcomers: 3,
        ..Limits::default()
    });
    let mut of_user = served.connect().await;
    ask(&served, &mut of_user).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(served.connect().await);
    }
    let mut silent = Vec::new();
    for _ in 0..50 {
        let stream = TcpStream::connect(served.serving.address()).await;
        silent.push(stream.unwrap());
    }
    // Newcomers get in, and the oldest of nobody has gone.
    let answer = served.get("/api/v1/pods", &admin(&served)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for mut stream in idle {
        assert_eq!(read_to_end(&mut stream).await, "");
    }
    ask(&served, &mut of_user).await;
    drop(silent);
}

#[tokio::test]
async fn a_connection_of_nobody_ends_in_time_whatever_it_asks() {
    let served = served_with(Limits {
        newcomer_time: Duration::from_secs(2),
        ..Limits::default()
    });
    let mut stream = served.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}
