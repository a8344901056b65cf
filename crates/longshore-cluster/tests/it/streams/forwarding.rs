//! `portforward`, in both of its protocols.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    client::{Got, Socket, refused, upgrade},
    node::{PORT_CLOSED, PORT_DEAF, PORT_ECHO, cluster, until_idle},
};
use crate::harness::PODS;

const V4: &str = "v4.channel.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

fn path(ports: &str) -> String {
    format!("{PODS}/a/portforward?{ports}")
}

#[tokio::test]
async fn each_port_of_the_url_has_two_channels() {
    let (served, node) = cluster().await;
    let ports = path(&format!("ports={PORT_ECHO},{PORT_CLOSED}"));
    let mut socket = Socket::open(&served, &ports, V4).await;
    let (open, closed) = (PORT_ECHO.to_le_bytes(), PORT_CLOSED.to_le_bytes());
    for (channel, port) in [(0, open), (1, open), (2, closed), (3, closed)] {
        assert_eq!(socket.message().await, [&[channel][..], &port].concat());
    }
    let error = String::from_utf8(socket.message().await).unwrap();
    let expected = "\u{3}error forwarding port 82 to pod a: connection refused";
    assert_eq!(error, expected);
    socket.send(b"\0hello").await;
    assert_eq!(socket.message().await, b"\0hello");
    drop(socket);
    until_idle(&node).await;
}

#[tokio::test]
async fn ports_that_are_none_are_refused() {
    let (served, _) = cluster().await;
    for (ports, protocol) in [("ports=0", V4), ("", V4), ("ports=80", "v9")] {
        let line = format!("GET {}", path(ports));
        let (code, body) = refused(&served, &line, &upgrade(protocol)).await;
        assert_eq!(code, 400, "{ports} {protocol}: {body}");
    }
}

/// A frame that opens an SPDY stream; its headers are compressed by nobody.
fn open(id: u32, kind: &str, port: u16, request: u32) -> Vec<u8> {
    let (port, request) = (port.to_string(), request.to_string());
    let headers = [
        ("streamtype", kind),
        ("port", port.as_str()),
        ("requestid", request.as_str()),
    ];
    let mut plain = 3_u32.to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        plain.extend((text.len() as u32).to_be_bytes());
        plain.extend(text.as_bytes());
    }
    let mut content = [id.to_be_bytes(), [0; 4]].concat();
    content.extend([0, 0]);
    if id == 1 {
        content.extend([0x78, 0x01]);
    }
    content.push(0);
    content.extend((plain.len() as u16).to_le_bytes());
    content.extend((!(plain.len() as u16)).to_le_bytes());
    content.extend(plain);
    content.extend([0, 0, 0, 0xff, 0xff]);
    let mut frame = vec![0x80, 3, 0, 1];
    frame.extend((content.len() as u32).to_be_bytes());
    frame.extend(content);
    frame
}

fn data(id: u32, is_last: bool, content: &[u8]) -> Vec<u8> {
    let flags = u32::from(is_last) << 24;
    let mut frame = id.to_be_bytes().to_vec();
    frame.extend((flags | content.len() as u32).to_be_bytes());
    frame.extend(content);
    frame
}

/// Whether a frame is of this kind of control frames and about this stream.
fn is_control(frame: &[u8], kind: u8, id: u32) -> bool {
    frame[..4] == [0x80, 3, 0, kind] && frame[8..12] == id.to_be_bytes()
}

async fn expect_control(socket: &mut Socket, kind: u8, id: u32) {
    let frame = socket.message().await;
    assert!(is_control(&frame, kind, id), "{kind} {id}: {frame:?}");
}

/// A session with one connection, in streams 1 (errors) and 3 (data).
async fn session(socket: &mut Socket, port: u16) {
    // Two frames in one message, and one frame in two messages: messages have no meaning here.
    let errors = [open(1, "error", port, 0), data(1, true, b"")].concat();
    socket.send(&errors).await;
    let both = open(3, "data", port, 0);
    socket.send(&both[..9]).await;
    socket.send(&both[9..]).await;
    expect_control(socket, 2, 1).await;
    expect_control(socket, 2, 3).await;
}

#[tokio::test]
async fn kubectl_s_tunnel_carries_connections() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    assert_eq!(socket.protocol, TUNNEL);
    session(&mut socket, PORT_ECHO).await;
    socket.send(&data(3, false, b"hello")).await;
    assert_eq!(socket.message().await, data(3, false, b"hello"));
    socket.send(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]).await;
    expect_control(&mut socket, 6, 1).await;
    socket.send(&data(3, true, b"bye")).await;
    assert_eq!(socket.message().await, data(3, false, b"bye"));
    assert_eq!(socket.message().await, data(1, true, b""));
    assert_eq!(socket.message().await, data(3, true, b""));
    until_idle(&node).await;
    drop(socket);
}

#[tokio::test]
async fn a_port_that_is_closed_is_an_error_of_its_connection_alone() {
    let (served, _) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    session(&mut socket, PORT_CLOSED).await;
    let why = b"error forwarding port 82 to pod a: connection refused";
    assert_eq!(socket.message().await, data(1, true, why));
    assert_eq!(socket.message().await, data(3, true, b""));
    let next = [
        open(5, "error", PORT_ECHO, 1),
        open(7, "data", PORT_ECHO, 1),
    ];
    socket.send(&next.concat()).await;
    expect_control(&mut socket, 2, 5).await;
    expect_control(&mut socket, 2, 7).await;
    socket.send(&data(7, false, b"x")).await;
    assert_eq!(socket.message().await, data(7, false, b"x"));
}

#[tokio::test]
async fn a_stream_that_is_given_up_or_whose_client_leaves_ends_in_the_pod() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    session(&mut socket, PORT_ECHO).await;
    socket.send(&data(3, false, b"x")).await;
    socket.message().await;
    assert_eq!(node.running.load(Ordering::SeqCst), 1);
    let reset = [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 5];
    socket.send(&reset).await;
    until_idle(&node).await;
    let again = [
        open(5, "error", PORT_ECHO, 1),
        open(7, "data", PORT_ECHO, 1),
    ];
    socket.send(&again.concat()).await;
    drop(socket);
    until_idle(&node).await;
}

#[tokio::test]
async fn half_open_streams_are_refused_where_there_are_too_many() {
    let (served, _) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    for n in 0..10_000_u32 {
        let id = 2 * n + 1;
        socket.send(&open(id, "error", PORT_ECHO, n)).await;
        // SYN_REPLY, then RST_STREAM.
        let expected = if n < 512 { 2 } else { 3 };
        expect_control(&mut socket, expected, id).await;
    }
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_session_or_the_stream() {
    let (served, _) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    socket.send(&open(1, "error", 0, 0)).await;
    expect_control(&mut socket, 3, 1).await;
    socket.send(&open(3, "nonsense", PORT_ECHO, 0)).await;
    expect_control(&mut socket, 3, 3).await;
    // Data of nobody.
    socket.send(&data(99, true, b"x")).await;
    socket.send(&[0x80, 2, 0, 1, 0, 0, 0, 0]).await;
    assert_eq!(socket.next().await, Got::End);
}

#[tokio::test]
async fn a_port_that_never_reads_stops_its_own_session_only() {
    let (served, node) = cluster().await;
    let mut socket = Socket::open(&served, &path(""), TUNNEL).await;
    session(&mut socket, PORT_DEAF).await;
    let frame = data(3, false, &[7; 16_000]);
    let head = [
        0x82,
        0xfe,
        (frame.len() >> 8) as u8,
        frame.len() as u8,
        0,
        0,
        0,
        0,
    ];
    let message = [&head[..], &frame].concat();
    let most = 256 * 1024 * 1024;
    let n_sent = socket.flood(&message, most, Duration::from_secs(1)).await;
    assert!(n_sent < most, "the server took {n_sent} bytes");
    let mut other = Socket::open(&served, &path(""), TUNNEL).await;
    session(&mut other, PORT_ECHO).await;
    other.send(&data(3, false, b"x")).await;
    assert_eq!(other.message().await, data(3, false, b"x"));
    drop((socket, other, node));
}
