//! The API over the wire: authentication, what is kept, and what happens to clients that misbehave.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    api::{Api, ListParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_cluster::{Authorization, Cluster, Limits, ServeConfig, Serving};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A cluster that is served from a directory of its own.
pub(crate) struct Served {
    pub(crate) cluster: Cluster,
    pub(crate) serving: Serving,
    pub(crate) directory: TempDir,
}

pub(crate) fn served_with(limits: Limits) -> Served {
    // As `standalone` serves it.
    let builder = Cluster::builder().authorization(Authorization::Rbac);
    served(builder.build(), limits)
}

pub(crate) fn served(cluster: Cluster, limits: Limits) -> Served {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let mut config = ServeConfig::new(directory.path().join("api"));
    config.limits = limits;
    let serving = cluster.serve(config).unwrap();
    Served {
        cluster,
        serving,
        directory,
    }
}

impl Served {
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join("api").join(name)).unwrap()
    }

    pub(crate) async fn client(&self) -> kube::Client {
        client_of(self.serving.kubeconfig()).await
    }

    /// A TLS connection of HTTP/1.1.
    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_as(None).await
    }

    /// The same, by a client that shows a certificate and has its key.
    pub(crate) async fn connect_as(
        &self,
        client: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.file("ca.crt").as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
        let config = match client {
            Some((certificate, key)) => config
                .with_client_auth_cert(vec![certificate], key)
                .unwrap(),
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.serving.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap()
    }

    /// Sends bytes and reads until the server closes.
    async fn raw(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await
    }

    /// A GET with these headers, on a connection of its own.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> String {
        let text = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        self.raw(&text).await
    }

    pub(crate) fn authorization(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.file("token"))
    }
}

async fn client_of(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

pub(crate) async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let limit = Duration::from_secs(20);
    let read = tokio::time::timeout(limit, stream.read_to_end(&mut bytes)).await;
    assert!(read.is_ok(), "the server keeps the connection open");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn a_client_with_the_kubeconfig_works_as_on_any_cluster() {
    let served = served_with(Limits::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client().await);
    let mut watch = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    match watch.next().await {
        Some(Ok(WatchEvent::Added(map))) => assert_eq!(map.metadata.name.as_deref(), Some("a")),
        other => panic!("expected the new object, found {other:?}"),
    }
    assert_eq!(
        maps.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
}

#[tokio::test]
async fn what_is_secret_is_readable_by_its_owner_only_and_stays_the_same() {
    let served = served_with(Limits::default());
    let directory = served.directory.path().join("api");
    for name in ["ca.key", "sa.key", "token", "kubeconfig"] {
        let mode = std::fs::metadata(directory.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let mode = std::fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let before = (served.file("ca.key"), served.file("token"));
    let Served {
        cluster,
        serving,
        directory,
    } = served;
    serving.stop(Duration::from_secs(1)).await;
    let serving = cluster
        .serve(ServeConfig::new(directory.path().join("api")))
        .unwrap();
    let served = Served {
        cluster,
        serving,
        directory,
    };
    assert_eq!(served.file("ca.key"), before.0);
    assert_eq!(served.file("token"), before.1);
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client().await);
    assert!(maps.list(&ListParams::default()).await.is_ok());
}

#[tokio::test]
async fn a_damaged_key_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.key"), "nonsense").unwrap();
    let refused = Cluster::in_memory().serve(ServeConfig::new(directory.path()));
    let message = refused.err().unwrap().to_string();
    assert!(
        message.contains("ca.key") && message.contains("remove it"),
        "{message}"
    );
}

#[tokio::test]
async fn strangers_get_nothing_but_health_and_version() {
    let served = served_with(Limits::default());
    let host = "host: localhost\r\n";
    for (path, headers, code) in [
        ("/api/v1/pods", "", "401"),
        ("/api/v1/pods", "authorization: Bearer wrong\r\n", "401"),
        ("/healthz", "", "200"),
        ("/version", "", "200"),
    ] {
        let answer = served.get(path, &format!("{host}{headers}")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{path}: {answer}"
        );
        if code == "401" {
            assert!(answer.contains(r#""reason":"Unauthorized""#), "{answer}");
        }
    }
    let foreign = format!("host: evil.example\r\n{}", served.authorization());
    let answer = served.get("/api/v1/pods", &foreign).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn a_client_that_asks_whether_to_send_what_is_too_large_is_refused_at_once() {
    let served = served_with(Limits::default());
    let text = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\
         content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 4000000\r\n\r\n",
        served.authorization()
    );
    let answer = served.raw(&text).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("RequestEntityTooLarge"), "{answer}");
}

#[tokio::test]
async fn heads_without_end_are_refused() {
    let served = served_with(Limits::default());
    let long = "x".repeat(100_000);
    let answer = served
        .get("/version", &format!("host: localhost\r\nx: {long}\r\n"))
        .await;
    // The system may drop the answer along with the bytes that the server has not read.
    let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 431");
    assert!(is_refused, "{answer}");
}

#[tokio::test]
async fn connections_that_say_nothing_or_half_of_it_are_closed() {
    let patience = Duration::from_millis(300);
    let served = served_with(Limits {
        patience,
        newcomer_time: Duration::from_secs(1),
        ..Limits::default()
    });
    // Nothing at all, after a complete handshake.
    assert_eq!(read_to_end(&mut served.connect().await).await, "");
    // Half a head.
    let answer = served.raw("GET /version HTTP/1.1\r\nhost: loc").await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 408"),
        "{answer}"
    );
    // No handshake.
    let mut stream = TcpStream::connect(served.serving.address()).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes));
    assert!(read.await.is_ok());
}

#[tokio::test]
async fn a_body_that_never_comes_ends_in_a_timeout() {
    let request_timeout = Duration::from_millis(300);
    let served = served_with(Limits {
        request_timeout,
        ..Limits::default()
    });
    let text = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        served.authorization()
    );
    let answer = served.raw(&text).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
}

#[tokio::test]
async fn one_watch_too_many_is_told_to_come_back() {
    let served = served_with(Limits {
        n_watches: 1,
        ..Limits::default()
    });
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client().await);
    let params = WatchParams::default();
    let open = maps.watch(&params, "0").await.unwrap();
    let headers = format!("host: localhost\r\n{}", served.authorization());
    let watch = "/api/v1/configmaps?watch=1";
    let answer = served.get(watch, &headers).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    // Others are not disturbed.
    assert!(maps.list(&ListParams::default()).await.is_ok());
    drop(open);
}

#[tokio::test]
async fn stopping_ends_watches_and_lets_go_of_the_port() {
    let served = served_with(Limits::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client().await);
    let mut watch = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    let address = served.serving.address();
    let stop = served.serving.stop(Duration::from_secs(10));
    let limit = Duration::from_secs(8);
    assert!(
        tokio::time::timeout(limit, stop).await.is_ok(),
        "the watch has held it up"
    );
    assert!(!matches!(watch.next().await, Some(Ok(_))));
    assert!(TcpStream::connect(address).await.is_err());
}

/// Reads, byte after byte, until the server has sent this.
pub(crate) async fn read_until(stream: &mut TlsStream<TcpStream>, end: &[u8]) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !bytes.ends_with(end) {
            bytes.push(stream.read_u8().await.unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_watch_over_a_websocket_is_a_message_for_each_event() {
    let served = served_with(Limits::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(served.client().await);
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let mut stream = served.connect().await;
    let request = format!(
        "GET /api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0&timeoutSeconds=1 HTTP/1.1\r\n\
         host: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
        served.authorization()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, b"\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The time of the watch is over: the server closes with a code, and then the connection.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the server keeps the connection open");
    // A text of more than 125 bytes.
    let message = [&[0x81, 126][..], &rest[2..4], b"{\"type\":\"ADDED\""].concat();
    assert!(rest.starts_with(&message), "{rest:?}");
    assert!(
        rest.ends_with(&[&b"}"[..], &[0x88, 2, 3, 232]].concat()),
        "{rest:?}"
    );
}

#[tokio::test]
async fn a_watch_over_another_protocol_is_refused() {
    let served = served_with(Limits::default());
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    let headers = format!(
        "host: localhost\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n{}",
        served.authorization()
    );
    let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
    let mut stream = served.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, b"websocket").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}
