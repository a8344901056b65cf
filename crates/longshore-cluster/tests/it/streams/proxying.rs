//! `pods/proxy` and `services/proxy`.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::{ask, refused},
    node::{PORT_CLOSED, PORT_HTTP, cluster, until_idle},
};
use crate::harness::{Api, PODS, pod};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

#[tokio::test]
async fn a_pod_answers_through_its_first_port_or_a_named_number() {
    let (served, node) = cluster().await;
    for name in ["a", "a:83", "http:a:83"] {
        let line = format!("POST {PODS}/{name}/proxy/x%2Fy/?q=1");
        let headers = "accept: text/html\r\ncookie: c=1\r\ncontent-length: 0\r\n";
        let (mut stream, head) = ask(&served, &line, headers).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{line}: {head}");
        let location = format!("location: {PODS}/{name}/proxy/there\r\n");
        assert!(head.contains(&location), "{head}");
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        let seen = String::from_utf8(seen).unwrap();
        assert!(seen.starts_with("POST /x%2Fy/?q=1 HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("cookie: c=1\r\n"), "{seen}");
        assert!(!seen.contains("authorization"), "{seen}");
    }
    until_idle(&node).await;
}

#[tokio::test]
async fn a_service_answers_through_one_of_its_ready_pods() {
    let (served, _) = cluster().await;
    let line = format!("GET {SERVICES}/s/proxy/");
    let (code, body) = refused(&served, &line, "").await;
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("no endpoints available"), "{body}");
    let endpoint = |name: &str, ready: bool| {
        json!({
            "addresses": ["127.1.1.1"],
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "name": name},
        })
    };
    let slice = json!({
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": PORT_HTTP, "protocol": "TCP"}],
        "endpoints": [endpoint("gone", false), endpoint("a", true)],
    });
    Api::new(&served.cluster).make(SLICES, slice).await;
    for (name, code) in [("s", 200), ("s:web", 200), ("s:8000", 200), ("s:x", 503)] {
        let (found, body) = refused(&served, &format!("GET {SERVICES}/{name}/proxy/"), "").await;
        assert_eq!(found, code, "{name}: {body}");
    }
}

#[tokio::test]
async fn an_upgraded_connection_passes_through() {
    let (served, node) = cluster().await;
    let line = format!("GET {PODS}/a/proxy/ws");
    let headers = "connection: Upgrade\r\nupgrade: echo\r\n";
    let (mut stream, head) = ask(&served, &line, headers).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: echo"), "{head}");
    stream.write_all(b"hello").await.unwrap();
    let mut found = [0; 5];
    stream.read_exact(&mut found).await.unwrap();
    assert_eq!(&found, b"hello");
    drop(stream);
    until_idle(&node).await;
}

#[tokio::test]
async fn what_cannot_be_proxied_says_why() {
    let (served, _) = cluster().await;
    Api::new(&served.cluster).make(PODS, pod("new")).await;
    for (path, code, expected) in [
        (
            format!("{PODS}/a:{PORT_CLOSED}/proxy/"),
            503,
            "error trying to reach service",
        ),
        (format!("{PODS}/b/proxy/"), 404, "not found"),
        (format!("{PODS}/new/proxy/"), 400, "address not allowed"),
        (format!("{PODS}/a:http/proxy/"), 400, "expected the number"),
        (format!("{PODS}/https:a:443/proxy/"), 400, "plain HTTP"),
        (format!("{SERVICES}/t/proxy/"), 404, "not found"),
        (format!("{PODS}/a/proxy"), 301, ""),
    ] {
        let (found, body) = refused(&served, &format!("GET {path}"), "").await;
        assert_eq!(found, code, "{path}: {body}");
        assert!(body.contains(expected), "{path}: {body}");
    }
}
