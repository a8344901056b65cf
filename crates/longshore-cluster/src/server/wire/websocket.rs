//! WebSockets (RFC 6455), the server's side: the handshake, and messages in pieces both ways.

pub(crate) mod frame;

use std::{future::Future, io, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    request::Parts,
};
use sha1::{Digest, Sha1};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::Mutex,
};

pub(crate) use self::frame::Kind;
use self::frame::{Decoder, Event, Violation};
use super::upgrade::{Connection, Upgrade, asked_protocol};
use crate::server::{
    error::{ApiError, Result},
    http::body::{self, ApiBody},
};

/// What is read at once.
const READ: usize = 16 * 1024;

/// The connection is over as it should be.
pub(crate) const CLOSE_NORMAL: u16 = 1000;
/// The peer broke the protocol.
pub(crate) const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// A client's wish for a WebSocket, checked.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    protocols: Vec<String>,
    upgrade: Upgrade,
}

impl Handshake {
    /// The handshake of a request; `None` when it asks for no WebSocket.
    pub(crate) fn of(parts: &mut Parts) -> Result<Option<Handshake>> {
        if asked_protocol(&parts.headers).as_deref() != Some("websocket") {
            return Ok(None);
        }
        if parts.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let accept = accept(&parts.headers)?;
        Ok(Some(Handshake {
            accept,
            protocols: protocols(&parts.headers),
            upgrade: Upgrade::take(&mut parts.extensions)?,
        }))
    }

    /// The client's first protocol that the server has too. A client that names none gets `None`.
    ///
    /// # Errors
    /// The client names only other ones.
    pub(crate) fn choose<'a>(&self, known: &[&'a str]) -> Result<Option<&'a str>> {
        choose(&self.protocols, known)
    }

    /// Answers the request; then serves the socket in the background until `serve` ends or the server stops.
    pub(crate) fn serve<F>(
        self,
        protocol: Option<&str>,
        serve: impl FnOnce(Receiver, Sender) -> F + Send + 'static,
    ) -> Response<ApiBody>
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let mut response = Response::new(body::full(Bytes::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(Ok(protocol)) = protocol.map(HeaderValue::from_str) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        self.upgrade.spawn(|connection| {
            let (receiver, sender) = open(connection);
            serve(receiver, sender)
        });
        response
    }
}

/// What proves that the server understands the client's key.
fn accept(headers: &HeaderMap) -> Result<HeaderValue> {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let header = |name| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    if header(SEC_WEBSOCKET_VERSION) != b"13" {
        let message = "expected version 13 of the WebSocket protocol, found another one or none: \
             set the header Sec-WebSocket-Version";
        return Err(ApiError::bad_request(message));
    }
    let key = header(SEC_WEBSOCKET_KEY);
    if !STANDARD.decode(key).is_ok_and(|key| key.len() == 16) {
        let message = "expected 16 bytes in base64 in the header Sec-WebSocket-Key";
        return Err(ApiError::bad_request(message));
    }
    let digest = STANDARD.encode(Sha1::digest([key, GUID].concat()));
    HeaderValue::from_str(&digest).map_err(ApiError::internal)
}

fn protocols(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

fn choose<'a>(asked: &[String], known: &[&'a str]) -> Result<Option<&'a str>> {
    if asked.is_empty() {
        return Ok(None);
    }
    let chosen = asked
        .iter()
        .find_map(|asked| known.iter().find(|known| *known == asked));
    chosen.copied().map(Some).ok_or_else(|| {
        ApiError::bad_request(format!(
            "expected one of the WebSocket protocols {known:?} in Sec-WebSocket-Protocol, found {asked:?}"
        ))
    })
}

/// The two directions of a socket.
pub(crate) fn open(connection: Connection) -> (Receiver, Sender) {
    let (read, write) = tokio::io::split(connection);
    let sender = Sender(Arc::new(Mutex::new(Outgoing {
        write,
        state: State::Open,
    })));
    let receiver = Receiver {
        read,
        buffer: BytesMut::new(),
        decoder: Decoder::default(),
        sender: sender.clone(),
    };
    (receiver, sender)
}

/// What the client sends. Pings are answered on the way.
pub(crate) struct Receiver {
    read: ReadHalf<Connection>,
    buffer: BytesMut,
    decoder: Decoder,
    sender: Sender,
}

impl Receiver {
    /// The next piece of a message; `None` when the client has closed the connection or is gone. Holds no more than one
    /// read of what the client sends: whoever does not ask for the next piece stops the client.
    ///
    /// *Cancellation:* an answer to a ping can be lost in its middle, so nothing can be sent afterwards.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            match self.decoder.decode(&mut self.buffer) {
                Ok(Some(Event::Data {
                    kind,
                    is_first,
                    is_last,
                    bytes,
                })) => {
                    return Ok(Some(Piece {
                        kind,
                        is_first,
                        is_last,
                        bytes,
                    }));
                }
                Ok(Some(Event::Ping(content))) => self.sender.pong(&content).await?,
                Ok(Some(Event::Pong)) => {}
                Ok(Some(Event::Close)) => return Ok(None),
                Ok(None) => {
                    self.buffer.reserve(READ);
                    if self.read.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                }
                Err(violation) => return Err(self.refuse(violation).await),
            }
        }
    }

    /// Reads and forgets what the client sends, until it closes the connection.
    pub(crate) async fn closed(&mut self) -> io::Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    async fn refuse(&mut self, violation: Violation) -> io::Error {
        let sender = &self.sender;
        drop(sender.close(CLOSE_PROTOCOL_ERROR, violation.0).await);
        io::Error::new(io::ErrorKind::InvalidData, violation)
    }
}

/// A piece of a message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    /// The message begins with this piece.
    pub(crate) is_first: bool,
    /// The message ends with this piece.
    pub(crate) is_last: bool,
    pub(crate) bytes: Bytes,
}

/// What goes to the client; clones share it.
#[derive(Clone)]
pub(crate) struct Sender(Arc<Mutex<Outgoing>>);

struct Outgoing {
    write: WriteHalf<Connection>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A frame is under way. Found by the next sender only when that frame was cancelled in its middle.
    Sending,
    Closed,
}

impl Sender {
    /// Sends one message of these parts; waits while the client takes nothing.
    ///
    /// *Cancellation:* nothing can be sent afterwards.
    pub(crate) async fn send(&self, kind: Kind, content: &[&[u8]]) -> io::Result<()> {
        let length = content.iter().map(|part| part.len()).sum();
        let head = frame::message_head(kind, length);
        let mut outgoing = self.0.lock().await;
        outgoing.begin()?;
        outgoing.write.write_all(&head).await?;
        for part in content {
            outgoing.write.write_all(part).await?;
        }
        outgoing.end(State::Open).await
    }

    /// Asks the client for a sign of life.
    pub(crate) async fn ping(&self) -> io::Result<()> {
        self.control(&frame::ping(), State::Open).await
    }

    async fn pong(&self, content: &[u8]) -> io::Result<()> {
        self.control(&frame::pong(content), State::Open).await
    }

    /// Sends the last frame. What is sent afterwards fails.
    pub(crate) async fn close(&self, code: u16, reason: &str) -> io::Result<()> {
        self.control(&frame::close(code, reason), State::Closed)
            .await?;
        self.0.lock().await.write.shutdown().await
    }

    async fn control(&self, frame: &[u8], then: State) -> io::Result<()> {
        let mut outgoing = self.0.lock().await;
        if outgoing.state == State::Closed {
            // Who has said goodbye owes no more answers.
            return Ok(());
        }
        outgoing.begin()?;
        outgoing.write.write_all(frame).await?;
        outgoing.end(then).await
    }
}

impl Outgoing {
    fn begin(&mut self) -> io::Result<()> {
        match self.state {
            State::Open => {
                self.state = State::Sending;
                Ok(())
            }
            State::Sending | State::Closed => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn end(&mut self, state: State) -> io::Result<()> {
        self.write.flush().await?;
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::{frame::tests::masked, *};

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        let mut headers = HeaderMap::new();
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        headers.insert(SEC_WEBSOCKET_KEY, key.parse().unwrap());
        assert_eq!(accept(&headers).unwrap_err().code, 400);
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        assert_eq!(accept(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("short"));
        assert_eq!(accept(&headers).unwrap_err().code, 400);
    }

    #[test]
    fn the_first_protocol_of_the_client_that_is_known_is_chosen() {
        let known = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
        for (asked, expected) in [
            (&[][..], Some(None)),
            (&["v4.channel.k8s.io"][..], Some(Some("v4.channel.k8s.io"))),
            (
                &["x", "v4.channel.k8s.io", "v5.channel.k8s.io"][..],
                Some(Some("v4.channel.k8s.io")),
            ),
            (&["x"][..], None),
        ] {
            let asked: Vec<String> = asked.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(choose(&asked, &known).ok(), expected, "{asked:?}");
        }
    }

    #[tokio::test]
    async fn a_ping_is_answered_and_a_message_arrives() {
        let (near, mut far) = duplex(1024);
        let (mut receiver, sender) = open(Box::new(near));
        let sent = [masked(0x89, b"hi"), masked(0x81, b"abc")].concat();
        far.write_all(&sent).await.unwrap();
        let piece = receiver.next().await.unwrap().unwrap();
        assert_eq!((piece.kind, &*piece.bytes), (Kind::Text, &b"abc"[..]));
        sender.send(Kind::Binary, &[&[1], b"out"]).await.unwrap();
        sender.close(CLOSE_NORMAL, "").await.unwrap();
        assert!(sender.send(Kind::Binary, &[b"late"]).await.is_err());
        let mut found = Vec::new();
        far.read_to_end(&mut found).await.unwrap();
        let expected = [&b"\x8a\x02hi"[..], b"\x82\x04\x01out", b"\x88\x02\x03\xe8"];
        assert_eq!(found, expected.concat());
    }

    #[tokio::test]
    async fn a_client_that_breaks_the_protocol_is_told_and_dropped() {
        let (near, mut far) = duplex(1024);
        let (mut receiver, _sender) = open(Box::new(near));
        far.write_all(&[0x81, 0x01, b'a']).await.unwrap();
        let error = receiver.next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut found = [0; 4];
        far.read_exact(&mut found).await.unwrap();
        assert_eq!((found[0], &found[2..]), (0x88, &[3, 234][..]));
    }

    #[tokio::test]
    async fn a_frame_that_was_cancelled_in_its_middle_is_the_last_one() {
        let (near, _far) = duplex(4);
        let (_receiver, sender) = open(Box::new(near));
        let content = [0; 64];
        let parts: [&[u8]; 1] = [&content];
        let send = sender.send(Kind::Binary, &parts);
        assert!(futures::poll!(Box::pin(send)).is_pending());
        let error = sender.send(Kind::Binary, &[b"x"]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
