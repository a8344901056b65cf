//! A connector behind TLS. Whom a machine trusts is said by `SSL_CERT_FILE`, as with the peer, and is read once in a
//! process: so it is a process of its own that asks.

use std::{path::Path, process::Command};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Whom the machine trusts.
const TRUSTED: &str = "SSL_CERT_FILE";
/// Tells that process whom to ask.
const ENDPOINT: &str = "LONGSHORE_TEST_CONNECTOR";

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A server that it vouches for.
    fn acceptor(&self) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let chain = vec![certificate.der().clone()];
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// What this test says in another process, whose machine trusts these.
fn asked_elsewhere(endpoint: &str, trusted: &Path) -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::a_connector_behind_tls_is_asked_by_who_trusts_it");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(TRUSTED, trusted)
        .env_remove("SSL_CERT_DIR")
        .env(ENDPOINT, endpoint)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

/// What comes of a question.
async fn asked_here(endpoint: &str) -> String {
    let section = json!({
        "connectors": {"c": {"endpoint": endpoint, "defaultTimeout": "3s"}},
        "connectorForTaskTypes": {"t": "c"},
    });
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    match ask(&connectors, &create("t", "s3://b/o")).await {
        Ok(answer) => format!("answered: {answer:?}"),
        Err(error) => format!("failed: {error}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that is asked by itself, in another process"
)]
fn asked_by_the_other_test() -> Option<String> {
    std::env::var(ENDPOINT).ok()
}

#[tokio::test]
async fn a_connector_behind_tls_is_asked_by_who_trusts_it() {
    if let Some(endpoint) = asked_by_the_other_test() {
        println!("{}", asked_here(&endpoint).await);
        return;
    }
    let (ours, other) = (Authority::new(), Authority::new());
    let fake = Arc::new(Fake::default());
    let served = Arc::clone(&fake);
    let answer = move |path: String, body| std::future::ready(served.answer(&path, &body));
    let endpoint = server::serve_behind(Some(ours.acceptor()), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for (name, authority) in [("ours", &ours), ("other", &other)] {
        let trusted = folder.path().join(name);
        std::fs::write(&trusted, &authority.pem).unwrap();
        let endpoint = endpoint.clone();
        let asked = move || asked_elsewhere(&endpoint, &trusted);
        said.push(tokio::task::spawn_blocking(asked).await.unwrap());
    }
    assert!(said[0].contains("answered: Some(Created {"), "{}", said[0]);
    assert_eq!(
        fake.n_asked("CreateTask"),
        1,
        "who does not trust it says nothing"
    );
    let why =
        "failed: CreateTask of connector c got no answer: no connection to https://127.0.0.1:";
    assert!(said[1].contains(why), "{}", said[1]);
    assert!(said[1].contains("invalid peer certificate"), "{}", said[1]);
}
