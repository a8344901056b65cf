mod own;
mod rebinding;

use base64::{Engine, prelude::BASE64_STANDARD};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::request::shown;

/// A server on loopback that answers each connection with `answer`. Returns its port, and the number of connections.
async fn serve<F, Fut>(answer: F) -> (u16, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            answer(stream).await;
        }
    });
    (port, connections)
}

/// A server that writes this text and closes.
async fn says(text: &'static str) -> (u16, Arc<AtomicUsize>) {
    serve(move |mut stream| async move {
        stream.write_all(text.as_bytes()).await.unwrap();
    })
    .await
}

fn of_a_laptop() -> Arc<Boundaries> {
    Arc::new(Boundaries::allowing(vec!["127.0.0.0/8".parse().unwrap()]))
}

fn client(boundaries: Arc<Boundaries>, limits: Limits) -> TenantClient {
    let trust = Trust::Pem(AUTHORITY.as_bytes());
    TenantClient::new(boundaries, trust, limits, Permit::always()).unwrap()
}

async fn posted(boundaries: Arc<Boundaries>, url: &str) -> Result<Answer, OutboundError> {
    let client = client(boundaries, Limits::default());
    client.post(url, b"{}".to_vec()).await
}

/// An authority that has signed no certificate of these tests.
const AUTHORITY: &str = include_str!("../../testdata/authority.pem");

#[tokio::test]
async fn an_address_is_refused_however_it_is_written_and_nobody_is_connected_to() {
    let (port, connections) = says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "user:password@127.0.0.1",
        "169.254.169.254",
    ] {
        let url = format!("http://{host}:{port}/latest/meta-data");
        let refused = posted(Arc::default(), &url).await;
        assert!(
            matches!(refused, Err(OutboundError::NotAllowed(_))),
            "{url}: {refused:?}"
        );
    }
    let url = format!("http://127.0.0.1:{port}");
    let reached = TenantClient::may_reach(&Boundaries::default(), &url).await;
    assert!(
        matches!(reached, Err(OutboundError::NotAllowed(_))),
        "{reached:?}"
    );
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    let answer = posted(of_a_laptop(), &url).await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, &b"{}"[..]));
    TenantClient::may_reach(&of_a_laptop(), &url).await.unwrap();
}

#[tokio::test]
async fn an_api_server_is_refused_although_its_network_is_allowed() {
    let (port, connections) = says("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let boundaries = of_a_laptop();
    boundaries.set_api_server("localhost", port);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{port}");
        let refused = posted(Arc::clone(&boundaries), &url).await;
        assert!(
            matches!(refused, Err(OutboundError::NotAllowed(_))),
            "{refused:?}"
        );
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let (secret, connections) = says("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
    let (port, _) = serve(move |mut stream| async move {
        let text = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{secret}/\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
    })
    .await;
    let url = format!("http://127.0.0.1:{port}");
    let answer = posted(of_a_laptop(), &url).await.unwrap();
    assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_at_the_limit() {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let (port, _) = serve(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let mut chunk = b"10000\r\n".to_vec();
            chunk.extend([b'x'; 0x10000]);
            chunk.extend(b"\r\n");
            while stream.write_all(&chunk).await.is_ok() {
                counted.fetch_add(0x10000, Ordering::Relaxed);
            }
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}");
    let refused = posted(of_a_laptop(), &url).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "its answer has more than 1048576 bytes"
    );
    // What the kernel buffers comes on top of the limit.
    let written = written.load(Ordering::Relaxed);
    assert!(written < 32 * 1024 * 1024, "{written}");
}

#[tokio::test]
async fn a_body_that_drips_and_a_server_that_says_nothing_end_with_the_limit() {
    let (drips, _) = serve(|mut stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut drops = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x").await.is_ok() {
            drops.tick().await;
        }
    })
    .await;
    let (silent, _) = serve(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let limits = Limits {
        total: Duration::from_millis(400),
        ..Limits::default()
    };
    for port in [drips, silent] {
        let client = client(of_a_laptop(), limits);
        let url = format!("http://127.0.0.1:{port}");
        let late = client.post(&url, Vec::new()).await.unwrap_err();
        assert!(matches!(late, OutboundError::TimedOut(_)), "{late:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_comes_to_its_response_is_cut_off() {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let (flood, _) = serve(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            while stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await
                .is_ok()
            {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{flood}");
    let cut = posted(of_a_laptop(), &url).await.unwrap_err();
    assert!(matches!(cut, OutboundError::NotReached(_)), "{cut:?}");
    assert!(written.load(Ordering::Relaxed) >= MAX_INFORMATIONAL);
    let few = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n\
               HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let (polite, _) = says(few).await;
    let url = format!("http://127.0.0.1:{polite}");
    let answer = posted(of_a_laptop(), &url).await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, &b"{}"[..]));
}

#[tokio::test]
async fn nobody_who_answers_is_not_told_from_nobody_who_speaks_http() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap().port();
    drop(listener);
    let (ssh, _) = says("SSH-2.0-OpenSSH_9.2\r\n").await;
    let (breaks_off, _) = says("").await;
    let (breaks_off_later, _) = says("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await;
    for port in [nobody, ssh, breaks_off, breaks_off_later] {
        let url = format!("http://127.0.0.1:{port}");
        let error = posted(of_a_laptop(), &url).await.unwrap_err();
        assert_eq!(error.to_string(), "it is not reached");
    }
}

#[tokio::test]
async fn a_user_in_a_url_is_sent_and_not_shown() {
    let heard = Arc::new(std::sync::Mutex::new(String::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let notes = Arc::clone(&heard);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let n = stream.read(&mut head).await.unwrap();
        *notes.lock().unwrap() = String::from_utf8_lossy(&head[..n]).into_owned();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let url = format!("http://ann:s%40t@127.0.0.1:{port}/x?key=k#y");
    posted(of_a_laptop(), &url).await.unwrap();
    let heard = heard.lock().unwrap().to_ascii_lowercase();
    let expected = BASE64_STANDARD.encode("ann:s@t").to_ascii_lowercase();
    assert!(heard.starts_with("post /x?key=k http/1.1"), "{heard}");
    assert!(
        heard.contains(&format!("authorization: basic {expected}")),
        "{heard}"
    );
    assert_eq!(shown(&url), format!("http://127.0.0.1:{port}/x?…"));
}

#[tokio::test]
async fn a_request_has_the_method_and_the_content_of_its_caller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jobs", listener.local_addr().unwrap());
    let head = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let n = stream.read(&mut head).await.unwrap();
        let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        String::from_utf8(head[..n].to_vec()).unwrap()
    });
    let client = client(of_a_laptop(), Limits::default());
    let content = (HeaderValue::from_static("text/plain"), Bytes::from("x"));
    let answer = client.exchange_with(Method::PATCH, &url, Some(content));
    assert_eq!(answer.await.unwrap().status, StatusCode::ACCEPTED);
    let head = head.await.unwrap();
    assert!(head.starts_with("PATCH /jobs HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: text/plain\r\n"), "{head}");
}

#[test]
fn neither_a_user_nor_a_query_is_shown_of_a_url() {
    for (text, expected) in [
        ("http://host/check", "http://host/check"),
        ("http://host", "http://host"),
        ("http://host?apikey=CANARY", "http://host/?…"),
        ("https://host:8443/x?", "https://host:8443/x?…"),
        ("https://host/x?a=b&key=CANARY#CANARY", "https://host/x?…"),
        ("https://host/x#CANARY?CANARY", "https://host/x"),
        ("https://user:CANARY@host/x?a=u@CANARY", "https://host/x?…"),
        ("no url?apikey=CANARY", "no url?…"),
        ("no url#CANARY?CANARY", "no url"),
        ("host:port/x?a=u@CANARY", "…"),
        ("http://user:CAN?ARY@host:port", "http://…"),
        (
            "http://user:CANARY@host:port/?CANARY",
            "http://…@host:port/?…",
        ),
        ("user:CANARY@http://host", "…@http://host"),
        ("no url", "no url"),
        ("user:password@host:8000", "…@host:8000"),
        ("dns:///user:password@host:8000", "dns://…@host:8000"),
        ("http://user:password@host:port", "http://…@host:port"),
    ] {
        assert_eq!(shown(text), expected);
    }
}

#[test]
fn what_is_no_url_or_no_authority_is_refused() {
    for url in [
        "",
        "x",
        "ftp://host/x",
        "file:///etc/passwd",
        "unix:/run/x",
        "http://",
    ] {
        assert!(matches!(parse(url), Err(BadUrl)), "{url}");
    }
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!\n"] {
        let refused = tls(Trust::Pem(pem.as_bytes())).unwrap_err().to_string();
        assert!(
            refused.starts_with("failed to parse CABundle PEM, "),
            "{refused}"
        );
    }
}
