//! `exec` and `attach`.

use std::time::Duration;

use longshore_cluster::Limits;
use serde_json::Value;

use super::{
    client::{Got, Socket, refused, upgrade},
    node::{cluster, until_idle},
};
use crate::{
    harness::{Api, PODS, bound_pod, pod},
    wire::served_with,
};

const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

fn exec(command: &str) -> String {
    let words: Vec<String> = command
        .split(' ')
        .map(|word| format!("command={word}"))
        .collect();
    format!(
        "{PODS}/a/exec?{}&stdin=true&stdout=true&stderr=true",
        words.join("&")
    )
}

#[tokio::test]
async fn a_half_closed_input_ends_and_the_output_and_the_exit_code_arrive() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &exec("cat"), &format!("{V5}, {V4}")).await;
    assert_eq!(socket.protocol, V5);
    assert_eq!(
        socket.message().await,
        [1],
        "tells that the process is there"
    );
    socket.send(b"\0hello ").await;
    // A message in two frames, with a ping between them.
    socket.frame(0x02, b"\0wor").await;
    socket.frame(0x89, b"?").await;
    socket.frame(0x80, b"ld").await;
    socket.send(b"\xff\0").await;
    let [_, out, err, status] = socket.all().await;
    assert_eq!((out.as_str(), err.as_str()), ("hello world", "11"));
    assert_eq!(status, r#"{"metadata":{},"status":"Success"}"#);
    until_idle(&node).await;
}

#[tokio::test]
async fn each_protocol_tells_the_exit_code_in_its_way() {
    let (served, _) = cluster().await;
    for (protocol, is_base64, has_status) in [
        (V5, false, true),
        (V4, false, true),
        ("v4.base64.channel.k8s.io", true, true),
        ("channel.k8s.io", false, false),
    ] {
        let mut socket = Socket::open(&served, &exec("exit 3"), protocol).await;
        assert_eq!(socket.protocol, protocol);
        let first = if is_base64 { b'1' } else { 1 };
        assert_eq!(socket.message().await, [first]);
        let mut end = socket.message().await;
        assert_eq!(end.remove(0), if is_base64 { b'3' } else { 3 });
        if is_base64 {
            continue;
        }
        let text = String::from_utf8(end).unwrap();
        if has_status {
            let status: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(status["details"]["causes"][0]["message"], "3");
        } else {
            assert!(text.contains("exit code: 3"), "{text}");
        }
        assert_eq!(socket.next().await, Got::Close(1000), "{protocol}");
    }
}

#[tokio::test]
async fn a_terminal_learns_its_size() {
    let (served, _) = cluster().await;
    let path = format!("{}&tty=true", exec("size"));
    let mut socket = Socket::open(&served, &path, V5).await;
    socket.send(b"\x04{\"Width\":80,\"Height\":24}").await;
    let [_, out, err, _] = socket.all().await;
    assert_eq!((out.as_str(), err.as_str()), ("80x24", ""));
}

#[tokio::test]
async fn a_client_joins_the_program_of_a_container() {
    let (served, _) = cluster().await;
    let path = format!("{PODS}/a/attach?stdin=true&stdout=true");
    let mut socket = Socket::open(&served, &path, V5).await;
    socket.send(b"\0hi").await;
    socket.send(b"\xff\0").await;
    assert_eq!(socket.all().await[1], "hi");
}

#[tokio::test]
async fn requests_that_cannot_be_served_say_why() {
    let (served, _) = cluster().await;
    Api::new(&served.cluster).make(PODS, pod("unbound")).await;
    let (websocket, unknown) = (upgrade(V5), upgrade("v9.channel.k8s.io"));
    let websocket = websocket.as_str();
    let spdy = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n";
    let ready = exec("cat");
    for (line, headers, code, expected) in [
        (format!("POST {ready}"), spdy, 400, "over WebSockets only"),
        (format!("GET {ready}"), "", 400, "Upgrade request required"),
        (format!("DELETE {ready}"), websocket, 405, ""),
        (
            format!("GET {ready}&container=x"),
            websocket,
            400,
            "container x is not valid for pod a",
        ),
        (
            format!("POST {ready}&container=x"),
            spdy,
            400,
            "container x is not valid for pod a",
        ),
        (
            format!("GET {PODS}/a/exec?stdout=true"),
            websocket,
            400,
            "expected a command",
        ),
        (
            format!("GET {PODS}/a/exec?command=cat"),
            websocket,
            400,
            "at least 1 of stdin, stdout, stderr",
        ),
        (
            format!("GET {PODS}/b/exec?command=cat&stdout=true"),
            websocket,
            404,
            "pods \\\"b\\\" not found",
        ),
        (
            format!("GET {PODS}/unbound/exec?command=cat&stdout=true"),
            websocket,
            400,
            "pod unbound does not have a host assigned",
        ),
        (
            format!("GET {ready}"),
            unknown.as_str(),
            400,
            "v9.channel.k8s.io",
        ),
    ] {
        let (found, body) = refused(&served, &line, headers).await;
        assert_eq!(found, code, "{line}: {body}");
        assert!(body.contains(expected), "{line}: {body}");
    }
}

#[tokio::test]
async fn without_a_node_nobody_is_let_in() {
    let served = served_with(Limits::default());
    Api::new(&served.cluster).make(PODS, bound_pod("a")).await;
    let line = format!("GET {}", exec("cat"));
    let (code, body) = refused(&served, &line, &upgrade(V5)).await;
    assert_eq!(code, 503, "{body}");
}

#[tokio::test]
async fn a_client_that_leaves_or_breaks_the_protocol_takes_its_process_with_it() {
    let (served, node) = cluster().await;
    let unmasked = [0x82, 0x02, 0, b'a'];
    for broken in [&unmasked[..], &[0xff, 0xff], &[]] {
        let mut socket = Socket::open(&served, &exec("flood"), V5).await;
        assert_eq!(socket.message().await, [1]);
        socket.raw(broken).await;
        drop(socket);
        until_idle(&node).await;
    }
    let mut socket = Socket::open(&served, &exec("wait"), V5).await;
    socket.frame(0x88, &1000_u16.to_be_bytes()).await;
    until_idle(&node).await;
    drop(socket);
}

#[tokio::test]
async fn a_process_that_does_not_read_stops_its_client_and_nobody_else() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &exec("deaf"), V5).await;
    let message = [&[0x82, 0xfe, 0x40, 0x01, 0, 0, 0, 0][..], &[0; 16_385]].concat();
    let most = 256 * 1024 * 1024;
    let n_sent = socket.flood(&message, most, Duration::from_secs(1)).await;
    assert!(n_sent < most, "the server took {n_sent} bytes");
    let mut other = Socket::open(&served, &exec("cat"), V5).await;
    other.send(b"\0hi").await;
    other.send(b"\xff\0").await;
    assert_eq!(other.all().await[1], "hi");
    drop((socket, node));
}

#[tokio::test]
async fn a_pod_has_no_more_streams_than_it_may() {
    let (served, node) = cluster().await;
    let mut sockets = Vec::new();
    for _ in 0..256 {
        sockets.push(Socket::open(&served, &exec("wait"), V5).await);
    }
    let line = format!("GET {}", exec("wait"));
    let (code, body) = refused(&served, &line, &upgrade(V5)).await;
    assert_eq!(code, 429, "{body}");
    assert!(body.contains("256 open streams"), "{body}");
    drop(sockets);
    until_idle(&node).await;
    let _socket = Socket::open(&served, &exec("wait"), V5).await;
}

#[tokio::test]
async fn open_streams_do_not_keep_the_server_from_stopping() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &exec("wait"), V5).await;
    assert_eq!(socket.message().await, [1]);
    served.serving.stop(Duration::from_secs(5)).await;
    until_idle(&node).await;
    assert_eq!(socket.next().await, Got::End);
}
