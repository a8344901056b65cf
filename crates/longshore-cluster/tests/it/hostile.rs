//! Bad input: the server answers as kube-apiserver does, or refuses it clearly, and other clients
//! are not affected.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use longshore_cluster::{Cluster, Limits};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::{
    harness::{Api, CONFIG_MAPS, config_map},
    wire::{Served, served_with},
};

/// Longest that a test waits for the server to act.
const DEADLINE: Duration = Duration::from_secs(60);

/// Code, reason and message of an answer.
async fn told(
    api: &Api,
    method: Method,
    path: &str,
    content_type: &str,
    body: Bytes,
) -> (u16, String, String) {
    let response = api.send(method, path, content_type, body).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["code"], code, "{status}");
    (code, text("reason"), text("message"))
}

/// Anchors that would unfold to some gigabytes.
fn bomb() -> String {
    let levels = (1..10).map(|n| {
        format!(
            "a{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 9].join(", ")
        )
    });
    format!("a0: &a0 [{}]\n", ["lol"; 9].join(", ")) + &levels.collect::<String>()
}

/// Content type, body, and the answer to it.
type Refusal = (&'static str, Vec<u8>, u16, &'static str);

fn refusals() -> Vec<Refusal> {
    let (json, yaml) = ("application/json", "application/yaml");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let deep = "[".repeat(100_000);
    let deep_map = r#"{"a":"#.repeat(10_000);
    vec![
        (json, b"".to_vec(), 400, "BadRequest"),
        (json, b"{".to_vec(), 400, "BadRequest"),
        (json, b"{}{}".to_vec(), 400, "BadRequest"),
        (json, b"[]".to_vec(), 400, "BadRequest"),
        (json, b"null".to_vec(), 400, "BadRequest"),
        (json, b"7".to_vec(), 400, "BadRequest"),
        (
            json,
            b"{\"metadata\":{\"name\":\"\xff\"}}".to_vec(),
            400,
            "BadRequest",
        ),
        (json, br#"{"metadata":7}"#.to_vec(), 400, "BadRequest"),
        (
            json,
            br#"{"metadata":{"name":7}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            json,
            br#"{"metadata":{"labels":[]}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (
            json,
            br#"{"kind":"Pod","metadata":{"name":"a"}}"#.to_vec(),
            400,
            "BadRequest",
        ),
        (json, deep.clone().into_bytes(), 400, "BadRequest"),
        (json, deep_map.clone().into_bytes(), 400, "BadRequest"),
        (yaml, b"a: [".to_vec(), 400, "BadRequest"),
        (yaml, b"\t- a".to_vec(), 400, "BadRequest"),
        (yaml, b"\xff\xfe".to_vec(), 400, "BadRequest"),
        (yaml, bomb().into_bytes(), 400, "BadRequest"),
        (yaml, deep.into_bytes(), 400, "BadRequest"),
        (protobuf, b"{}".to_vec(), 400, "BadRequest"),
        (
            protobuf,
            b"k8s\0\xff\xff\xff\xff\xff".to_vec(),
            400,
            "BadRequest",
        ),
        ("text/plain", b"{}".to_vec(), 415, "UnsupportedMediaType"),
        (
            "application/cbor",
            b"{}".to_vec(),
            415,
            "UnsupportedMediaType",
        ),
        (
            "application/x-www-form-urlencoded",
            b"a=b".to_vec(),
            415,
            "UnsupportedMediaType",
        ),
    ]
}

#[tokio::test]
async fn bodies_that_are_no_objects_are_refused() {
    let api = Api::new(&Cluster::in_memory());
    for (content_type, body, code, reason) in refusals() {
        let what = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let told = told(&api, Method::POST, CONFIG_MAPS, content_type, body.into()).await;
        assert_eq!(
            (told.0, told.1.as_str()),
            (code, reason),
            "{what}: {}",
            told.2
        );
        assert!(!told.2.is_empty(), "{what}");
    }
    let (_, list) = api.get(CONFIG_MAPS).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn patches_and_options_that_are_none_are_refused() {
    let api = Api::new(&Cluster::in_memory());
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for (method, content_type, body, code) in [
        (Method::PATCH, "application/json", "{}", 415),
        (Method::PATCH, "application/apply-patch+yaml", "{}", 415),
        (Method::PATCH, "application/merge-patch+json", "{", 400),
        (Method::PATCH, "application/merge-patch+json", "[]", 400),
        (Method::PATCH, "application/json-patch+json", "{}", 400),
        (
            Method::PATCH,
            "application/json-patch+json",
            r#"[{"op":"dance"}]"#,
            400,
        ),
        (
            Method::PATCH,
            "application/json-patch+json",
            r#"[{"op":"remove","path":"/data/x"}]"#,
            422,
        ),
        (
            Method::PATCH,
            "application/strategic-merge-patch+json",
            "7",
            400,
        ),
        (Method::DELETE, "application/json", "{", 400),
        (
            Method::DELETE,
            "application/json",
            r#"{"propagationPolicy":"Maybe"}"#,
            400,
        ),
        (Method::DELETE, "text/plain", "x", 415),
    ] {
        let told = told(&api, method, &path, content_type, body.into()).await;
        assert_eq!(told.0, code, "{content_type} {body}: {}", told.2);
    }
    assert_eq!(api.get(&path).await.1, made);
}

#[tokio::test]
async fn hostile_names_name_nothing() {
    let api = Api::new(&Cluster::in_memory());
    api.make(CONFIG_MAPS, config_map("victim", "1")).await;
    let long = "a".repeat(254);
    for name in [
        "..",
        ".",
        "../victim",
        "a/b",
        "A",
        "a b",
        "a\nb",
        "a\0",
        "-a",
        "a-",
        "ä",
        "\u{202e}a",
        "a%2fb",
        &long,
    ] {
        let (code, status) = api.post(CONFIG_MAPS, config_map(name, "1")).await;
        assert_eq!(
            (code, &status["reason"]),
            (422, &json!("Invalid")),
            "{name:?}: {status}"
        );
        assert_eq!(
            status["details"]["causes"][0]["field"], "metadata.name",
            "{name:?}"
        );
        let body = json!({"metadata": {"generateName": name}, "data": {}});
        let (code, status) = api.post(CONFIG_MAPS, body).await;
        // A prefix may end in a dash, and is cut when it is long.
        assert!(
            code == 422 || name == "a-" || name.len() > 253,
            "{name:?}: {status}"
        );
    }
    for path in [
        "/api/v1/namespaces/default/configmaps/..%2fconfigmaps%2fvictim",
        "/api/v1/namespaces/default%2fconfigmaps/configmaps/victim",
        "/api/v1/namespaces/%2e%2e/configmaps/victim",
        "/api/v1/namespaces/default/configmaps/victim%00",
        "/api/v1/namespaces/default/configmaps/%ff",
        "/api/v1/namespaces/default/configmaps/victim/status/x",
        "/api/v1/namespaces/default/configmaps/victim/exec",
        "/apis/%2f/v1/configmaps",
    ] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let response = api.send(
                method.clone(),
                path,
                "application/json",
                config_map("victim", "2").to_string().into(),
            );
            let code = response.await.status().as_u16();
            assert!((400..500).contains(&code), "{method} {path}: {code}");
        }
    }
    let (_, victim) = api.get(&format!("{CONFIG_MAPS}/victim")).await;
    assert_eq!(victim["data"]["k"], "1");
}

/// Sends a request whose body the server may refuse before its end; returns the response.
async fn answer_to(served: &Served, head: &str, body: impl Iterator<Item = Vec<u8>>) -> String {
    let mut stream = served.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in body {
        // The server may have answered and gone.
        if timeout(DEADLINE, stream.write_all(&piece))
            .await
            .unwrap()
            .is_err()
        {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_cut_off() {
    let served = served_with(Limits::default());
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}content-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n",
        served.authorization()
    );
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    let answer = answer_to(&served, &head, std::iter::repeat_n(chunk, 64)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("RequestEntityTooLarge"), "{answer}");
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}content-type: application/json\r\n\
         content-length: 8000000\r\n\r\n",
        served.authorization()
    );
    let answer = answer_to(&served, &head, std::iter::repeat_n(vec![b' '; 80_000], 100)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let (code, _) = Api::new(&served.cluster).get(CONFIG_MAPS).await;
    assert_eq!(code, 200);
}

/// Asks on a connection of its own until the answer begins so.
async fn until_answered(served: &Served, path: &str, expected: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let mut stream = served.connect().await;
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            served.authorization()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begin = vec![0; expected.len()];
        let is_read = timeout(DEADLINE, stream.read_exact(&mut begin))
            .await
            .unwrap()
            .is_ok();
        if is_read && begin == expected.as_bytes() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{}",
            String::from_utf8_lossy(&begin)
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_never_reads_is_let_go_and_holds_up_nobody() {
    let served = served_with(Limits {
        patience: Duration::from_millis(300),
        n_watches: 1,
        ..Limits::default()
    });
    let watch = format!("{CONFIG_MAPS}?watch=true");
    let mut sleeper = served.connect().await;
    let head = format!(
        "GET {watch} HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
        served.authorization()
    );
    sleeper.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    sleeper.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");

    // Far more than sockets hold; the writers never wait for the watcher.
    let api = Api::new(&served.cluster);
    api.make(CONFIG_MAPS, config_map("big", "")).await;
    for n in 0..100 {
        let value = format!("{n}{}", "x".repeat(300_000));
        let (code, _) = api
            .patch(
                "merge",
                &format!("{CONFIG_MAPS}/big"),
                json!({"data": {"k": value}}),
            )
            .await;
        assert_eq!(code, 200);
    }
    // Its place is free again although it still holds its end of the connection.
    until_answered(&served, &watch, "HTTP/1.1 200").await;
    drop(sleeper);
}
