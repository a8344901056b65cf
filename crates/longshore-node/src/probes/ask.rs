//! Asks a container one question.

use std::time::Duration;

use tokio::net::TcpStream;

use super::{grpc, http, wish::Question};
use crate::{network::PodAddress, shim::ExecTarget};

/// Which answers to an HTTP request are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Successes and redirects.
    Success,
    /// All.
    Any,
}

/// Asks once; the error is the text of an Event.
///
/// *Cancellation:* ends the question.
pub(crate) async fn ask(
    question: &Question,
    accepted: Accepted,
    pod_ip: &PodAddress,
    exec: &ExecTarget,
    timeout: Duration,
) -> Result<(), String> {
    let asked = async {
        match question {
            Question::Tcp { host, port } => connect(host.as_deref(), pod_ip, *port).await.map(drop),
            Question::Http { .. } => ask_http(question, accepted, pod_ip).await,
            Question::Grpc { port, service } => {
                let stream = connect(None, pod_ip, *port).await?;
                grpc::check(stream, &format!("{pod_ip}:{port}"), service).await
            }
            Question::Exec { argv } => exec.run(argv.clone(), timeout).await,
            Question::Impossible(why) => Err(why.clone()),
        }
    };
    match tokio::time::timeout(timeout, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {}s", timeout.as_secs())),
    }
}

async fn ask_http(
    question: &Question,
    accepted: Accepted,
    pod_ip: &PodAddress,
) -> Result<(), String> {
    let Question::Http {
        is_tls,
        host,
        port,
        path,
        headers,
    } = question
    else {
        return Err("the question is none of HTTP".into());
    };
    let stream = connect(host.as_deref(), pod_ip, *port).await?;
    let host = host.clone().unwrap_or_else(|| pod_ip.to_string());
    let authority = format!("{host}:{port}");
    let request = http::Request {
        is_tls: *is_tls,
        authority: &authority,
        path,
        headers,
    };
    let code = if *is_tls {
        http::get(http::over_tls(stream, &host).await?, request).await?
    } else {
        http::get(stream, request).await?
    };
    match (accepted, code) {
        (Accepted::Any, _) | (Accepted::Success, 200..400) => Ok(()),
        (Accepted::Success, code) => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

async fn connect(host: Option<&str>, pod_ip: &PodAddress, port: u16) -> Result<TcpStream, String> {
    pod_ip.connect(host, port).await.map_err(|e| {
        let host = host.map_or_else(|| pod_ip.to_string(), str::to_owned);
        format!("dial tcp {host}:{port}: {e}")
    })
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use ::http::{HeaderMap, HeaderValue, Response};
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    };
    use tokio::{
        io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
        net::TcpListener,
    };
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::{NodeConfig, network::Network, profile::Profile};

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn asked(question: Question, accepted: Accepted) -> String {
        let nowhere = ExecTarget {
            shim_command: Vec::new(),
            init: 0,
        };
        let config = NodeConfig::new("node", "/nowhere", Vec::new());
        let here = PodAddress {
            ip: HERE,
            network: Arc::new(Network::new(config, Profile::None)),
        };
        let asked = ask(&question, accepted, &here, &nowhere, PATIENCE).await;
        asked.map_or_else(|why| why, |()| "ok".into())
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, code: u16) {
        let mut request = [0_u8; 512];
        let n = stream.read(&mut request).await.unwrap();
        assert!(request[..n].starts_with(b"GET /healthz HTTP/1.1\r\n"));
        let text = format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        // The other side closes the connection first.
        drop(stream.read(&mut request).await);
    }

    /// A server's side of TLS, with a certificate for another name that nobody vouches for.
    fn acceptor() -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["elsewhere.example".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn http_and_https_are_judged_by_the_code_of_the_answer() {
        let wrong = "HTTP probe failed with statuscode: 500";
        for (is_tls, code, accepted, expected) in [
            (false, 200, Accepted::Success, "ok"),
            (false, 302, Accepted::Success, "ok"),
            (false, 500, Accepted::Success, wrong),
            (false, 500, Accepted::Any, "ok"),
            (true, 200, Accepted::Success, "ok"),
            (true, 500, Accepted::Success, wrong),
        ] {
            let (listener, port) = listener().await;
            let question = Question::Http {
                is_tls,
                host: None,
                port,
                path: "/healthz".into(),
                headers: Vec::new(),
            };
            let server = async {
                let (stream, _) = listener.accept().await.unwrap();
                if is_tls {
                    answer(acceptor().accept(stream).await.unwrap(), code).await;
                } else {
                    answer(stream, code).await;
                }
            };
            let (told, ()) = tokio::join!(asked(question, accepted), server);
            assert_eq!(told, expected, "{is_tls} {code} {accepted:?}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_answers_no_https() {
        let (listener, port) = listener().await;
        let question = Question::Http {
            is_tls: true,
            host: None,
            port,
            path: "/".into(),
            headers: Vec::new(),
        };
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            drop(stream.write_all(b"HTTP/1.1 400 X\r\n\r\n").await);
        };
        let (told, ()) = tokio::join!(asked(question, Accepted::Success), server);
        assert!(told.starts_with("TLS with 127.0.0.1: "), "{told}");
    }

    /// Answers one question about the health of a service.
    async fn answer_health(listener: TcpListener, state: u8) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let served = tokio::spawn(async move {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let mut question = request.into_body();
            let asked = question.data().await.unwrap().unwrap();
            assert_eq!(asked[..], [0, 0, 0, 0, 3, 0x0a, 1, b'x']);
            let head = Response::builder().header("content-type", "application/grpc");
            let head = head.body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            let answer = vec![0, 0, 0, 0, 2, 8, state];
            body.send_data(answer.into(), false).unwrap();
            let mut end = HeaderMap::new();
            end.insert("grpc-status", HeaderValue::from_static("0"));
            body.send_trailers(end).unwrap();
        });
        // The connection moves only while somebody asks it for more.
        while let Some(Ok(_)) = connection.accept().await {}
        served.await.unwrap();
    }

    #[tokio::test]
    async fn the_health_service_of_grpc_says_how_it_is() {
        for (state, expected) in [
            (1, "ok"),
            (2, "service unhealthy (responded with \"NOT_SERVING\")"),
        ] {
            let (listener, port) = listener().await;
            let question = Question::Grpc {
                port,
                service: "x".into(),
            };
            let server = tokio::spawn(answer_health(listener, state));
            assert_eq!(asked(question, Accepted::Success).await, expected);
            server.await.unwrap();
        }
        let (listener, port) = listener().await;
        drop(listener);
        let service = String::new();
        let told = asked(Question::Grpc { port, service }, Accepted::Success).await;
        assert!(told.starts_with("dial tcp 127.0.0.1:"), "{told}");
    }
}
