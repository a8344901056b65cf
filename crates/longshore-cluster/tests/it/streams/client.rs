//! A WebSocket client that does what a test says, right or wrong.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::wire::Served;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// One message or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Message(Vec<u8>),
    Close(u16),
    End,
}

pub(super) struct Socket {
    stream: TlsStream<TcpStream>,
    /// What was read and not used.
    rest: VecDeque<u8>,
    /// The subprotocol that the server chose.
    pub(super) protocol: String,
}

/// Sends a request and returns the connection with the head of the answer.
pub(super) async fn ask(
    served: &Served,
    line: &str,
    headers: &str,
) -> (TlsStream<TcpStream>, String) {
    let mut stream = served.connect().await;
    let authorization = served.authorization();
    let request = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{authorization}{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
    };
    assert!(timeout(PATIENCE, read).await.is_ok(), "{line}: no answer");
    (stream, String::from_utf8(head).unwrap())
}

/// The headers of a WebSocket client.
pub(super) fn upgrade(protocol: &str) -> String {
    format!(
        "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: {protocol}\r\n"
    )
}

/// The code and the rest of an answer that is no upgrade.
pub(super) async fn refused(served: &Served, line: &str, headers: &str) -> (u16, String) {
    let headers = format!("{headers}x-last: 1\r\n");
    let (mut stream, head) = ask(served, line, &headers).await;
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().unwrap())
    };
    let length = head.lines().find_map(header).unwrap_or_default();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (code, String::from_utf8(body).unwrap())
}

impl Socket {
    pub(super) async fn open(served: &Served, path: &str, protocol: &str) -> Socket {
        let (stream, head) = ask(served, &format!("GET {path}"), &upgrade(protocol)).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        let protocol = head
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        Socket {
            stream,
            rest: VecDeque::new(),
            protocol: protocol.unwrap_or_default().to_owned(),
        }
    }

    /// Sends a frame with this first byte; its mask changes nothing.
    pub(super) async fn frame(&mut self, first: u8, content: &[u8]) {
        let mut frame = vec![first];
        match content.len() {
            short @ 0..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0xff);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(content);
        self.raw(&frame).await;
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends as much as the server takes, and says how much that was.
    pub(super) async fn flood(&mut self, content: &[u8], most: usize, silence: Duration) -> usize {
        let mut n_sent = 0;
        while n_sent < most {
            match timeout(silence, self.stream.write_all(content)).await {
                Ok(written) => written.unwrap(),
                Err(_) => return n_sent,
            }
            n_sent += content.len();
        }
        n_sent
    }

    /// A binary message.
    pub(super) async fn send(&mut self, content: &[u8]) {
        self.frame(0x82, content).await;
    }

    async fn take(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.rest.len() < n {
            let mut buffer = vec![0; 16 * 1024];
            let read = timeout(PATIENCE, self.stream.read(&mut buffer)).await;
            assert!(read.is_ok(), "the server says nothing");
            match read.unwrap() {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.rest.extend(&buffer[..n]),
            }
        }
        Some(self.rest.drain(..n).collect())
    }

    /// The next message or the end; the server's pings are passed over.
    pub(super) async fn next(&mut self) -> Got {
        loop {
            let Some(head) = self.take(2).await else {
                return Got::End;
            };
            let length = match head[1] {
                126 => self.take(2).await,
                127 => self.take(8).await,
                short => Some(vec![short]),
            };
            let length = length.unwrap().into_iter();
            let length = length.fold(0_usize, |length, byte| (length << 8) + usize::from(byte));
            let content = self.take(length).await.unwrap();
            match head[0] {
                0x81 | 0x82 => return Got::Message(content),
                0x88 => return Got::Close(u16::from_be_bytes([content[0], content[1]])),
                _ => {}
            }
        }
    }

    /// The next message, which must be one.
    pub(super) async fn message(&mut self) -> Vec<u8> {
        let got = self.next().await;
        assert!(
            matches!(got, Got::Message(_)),
            "expected a message, found {got:?}"
        );
        match got {
            Got::Message(content) => content,
            Got::Close(_) | Got::End => Vec::new(),
        }
    }

    /// What comes on a channel until the connection is closed, per channel, without empty messages.
    pub(super) async fn all(&mut self) -> [String; 4] {
        let mut channels: [Vec<u8>; 4] = Default::default();
        while let Got::Message(content) = self.next().await {
            channels[usize::from(content[0])].extend(&content[1..]);
        }
        channels.map(|content| String::from_utf8_lossy(&content).into_owned())
    }
}
