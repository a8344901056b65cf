//! What leaves the process, and what is sent again.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::Method;
use hyper::{body::Body, server::conn::http2, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    sync::{Notify, watch},
};

use super::*;
use crate::{NotPermitted, request};

const KEEP_ALIVE: KeepAlive = KeepAlive {
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
};
/// More than the buffers of the kernel hold.
const LARGE: usize = 64 << 20;

/// A permit, and what ends it.
fn permit() -> (Permit, Arc<AtomicBool>) {
    let holds = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&holds);
    (Permit::new(move || asked.load(Ordering::SeqCst)), holds)
}

fn http2(permit: Permit) -> OperatorClient {
    OperatorClient::http2(permit, Trust::Nobody, KEEP_ALIVE).unwrap()
}

fn post(address: SocketAddr, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    request(Method::POST, &format!("http://{address}{path}"), body).unwrap()
}

/// The libraries keep the text of the error only.
fn is_not_permitted(error: &RequestError) -> bool {
    words(error).contains(&NotPermitted.to_string())
}

/// A server of HTTP/2 that takes one request of a connection at a time, and answers each but the first when it is told.
struct OneByOne {
    address: SocketAddr,
    received: watch::Receiver<Vec<String>>,
    answer: Arc<Notify>,
}

impl OneByOne {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, received) = watch::channel(Vec::new());
        let heard = Arc::new(heard);
        let answer = Arc::new(Notify::new());
        let told = Arc::clone(&answer);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (heard, told) = (Arc::clone(&heard), Arc::clone(&told));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (heard, told) = (Arc::clone(&heard), Arc::clone(&told));
                    async move {
                        let path = request.uri().path().to_owned();
                        heard.send_modify(|heard| heard.push(path));
                        if heard.borrow().len() > 1 {
                            told.notified().await;
                        }
                        Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::new())))
                    }
                });
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.max_concurrent_streams(1);
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            received,
            answer,
        }
    }

    async fn until(&mut self, n: usize) {
        let _ = self.received.wait_for(|it| it.len() == n).await.unwrap();
    }
}

#[tokio::test]
async fn what_waits_inside_of_a_connection_does_not_leave_after_the_permit_has_ended() {
    let (permit, holds) = permit();
    let mut server = OneByOne::start().await;
    let client = http2(permit);
    let address = server.address;
    let sent = |path: &'static str| {
        let client = client.clone();
        async move { client.send(post(address, path, Bytes::new())).await }
    };
    // From now on the client knows the limit of the server.
    sent("/known").await.unwrap();
    let first = tokio::spawn(sent("/first"));
    server.until(2).await;
    let waiting = tokio::spawn(sent("/waiting"));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    holds.store(false, Ordering::SeqCst);
    server.answer.notify_one();
    first.await.unwrap().unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
    assert_eq!(*server.received.borrow(), ["/known", "/first"]);
}

#[tokio::test]
async fn the_rest_of_a_body_does_not_leave_after_the_permit_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (permit, holds) = permit();
    let client = OperatorClient::new(permit).unwrap();
    let body = Bytes::from(vec![0; LARGE]);
    let sending = tokio::spawn(async move { client.send(post(address, "/", body)).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut begun = [0; 1024];
    stream.read_exact(&mut begun).await.unwrap();
    holds.store(false, Ordering::SeqCst);
    let mut rest = Vec::new();
    // The end of the connection may be a reset.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < LARGE, "{} bytes came", rest.len());
    let error = sending.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn without_a_permit_there_is_no_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (permit, holds) = permit();
    holds.store(false, Ordering::SeqCst);
    let sent = http2(permit).send(post(address, "/", Bytes::new())).await;
    let error = sent.unwrap_err();
    assert!(matches!(error, RequestError::NotConnected(_)), "{error:?}");
    assert!(is_not_permitted(&error), "{error:?}");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// How many requests a server receives that refuses the first `n_refused` with this reason, and how it ends.
async fn refused(reason: h2::Reason, n_refused: usize) -> (usize, Result<(), RequestError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let n_received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_received);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if counted.fetch_add(1, Ordering::SeqCst) < n_refused {
                respond.send_reset(reason);
            } else {
                respond.send_response(Response::new(()), true).unwrap();
            }
        }
    });
    let client = http2(Permit::always());
    let sent = client.send(post(address, "/", Bytes::new())).await;
    let sent = sent.map(|response| assert!(response.body().is_end_stream()));
    (n_received.load(Ordering::SeqCst), sent)
}

#[tokio::test]
async fn only_what_the_server_has_not_begun_is_sent_again() {
    let (n, sent) = refused(h2::Reason::REFUSED_STREAM, MAX_REPEATS).await;
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(n, MAX_REPEATS + 1);
    let (n, sent) = refused(h2::Reason::REFUSED_STREAM, usize::MAX).await;
    assert!(matches!(sent, Err(RequestError::Broken(_))), "{sent:?}");
    assert_eq!(n, MAX_REPEATS + 1);
    let (n, sent) = refused(h2::Reason::INTERNAL_ERROR, usize::MAX).await;
    assert!(matches!(sent, Err(RequestError::Broken(_))), "{sent:?}");
    assert_eq!(n, 1);
}

/// What is said of an error, with its causes.
fn words(error: &RequestError) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    words
}

#[tokio::test]
async fn all_requests_that_waited_for_a_connection_say_why_there_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = http2(Permit::always());
    let send = || client.send(post(address, "/", Bytes::new()));
    let (a, b, c) = tokio::join!(send(), send(), send());
    for result in [a, b, c] {
        let words = words(&result.unwrap_err());
        assert!(words.contains("Connection refused"), "{words}");
    }
    let of_another = client
        .last_failure
        .of(Some(&"127.0.0.1:1".parse().unwrap()));
    assert!(of_another.is_none(), "{of_another:?}");
}
