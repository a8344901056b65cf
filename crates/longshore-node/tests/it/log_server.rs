//! Logs as an API server reads them from a node: over TLS, with a certificate of the cluster's authority.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
use futures::StreamExt;
use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_node::{ContainerLogs, LogError, LogListener, LogOptions, log_server::LogStream};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

/// A source of logs whose log is the request.
struct Echo;

#[async_trait]
impl ContainerLogs for Echo {
    async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        options: &LogOptions,
    ) -> Result<LogStream, LogError> {
        if pod == "gone" {
            return Err(LogError::NoPod {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
            });
        }
        let text = format!("{namespace}/{pod}/{container} {options:?}\n");
        Ok(futures::stream::once(async { Ok(text.into()) }).boxed())
    }
}

/// An authority and the certificate of a reader, as a user of a kubeconfig.
fn reader() -> (Vec<u8>, Value) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let data = |pem: String| ByteString(pem.into_bytes());
    let user = json!({
        "client-certificate-data": data(certificate.pem()),
        "client-key-data": data(key.serialize_pem()),
    });
    (authority.der().to_vec(), user)
}

/// A client that does not verify the server's certificate, as API servers do with nodes.
async fn client(port: u16, user: &Value) -> Client {
    let server = format!("https://127.0.0.1:{port}");
    let kubeconfig = json!({
        "clusters": [{"name": "n", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "n", "user": user}],
        "contexts": [{"name": "n", "context": {"cluster": "n", "user": "n"}}],
        "current-context": "n",
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    Client::try_from(config.await.unwrap()).unwrap()
}

async fn get(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request_text(request).await
}

#[tokio::test]
async fn the_api_server_reads_logs_and_nobody_else_does() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (authority, user) = reader();
    let listener = LogListener::bind((Ipv4Addr::LOCALHOST, 0).into(), &[authority]).unwrap();
    let port = listener.port();
    let _server = listener.serve(Arc::new(Echo)).unwrap();

    let api_server = client(port, &user).await;
    let asked = "/containerLogs/ns/p/c?follow=true&tailLines=3&sinceTime=2026-01-01T00%3A00%3A00Z";
    let log = get(&api_server, asked).await.unwrap();
    assert!(log.starts_with("ns/p/c LogOptions { follow: true"), "{log}");
    assert!(
        log.contains("tail_lines: Some(3), since: Some(2026-01-01T00:00:00Z)"),
        "{log}"
    );
    let gone = get(&api_server, "/containerLogs/ns/gone/c").await;
    let gone = gone.unwrap_err().to_string();
    assert!(
        gone.contains("pod ns/gone does not run on this node"),
        "{gone}"
    );

    for stranger in [json!({}), reader().1] {
        let refused = get(&client(port, &stranger).await, "/containerLogs/ns/p/c").await;
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[test]
fn without_an_authority_nobody_could_read_and_it_says_so() {
    let refused = LogListener::bind((Ipv4Addr::LOCALHOST, 0).into(), &[]).unwrap_err();
    assert!(
        refused.to_string().contains("expected the certificate"),
        "{refused}"
    );
}
