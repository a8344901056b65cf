//! Answers that go on, over a WebSocket: one message for each event of a watch, or for each piece of a log.

use std::{borrow::Cow, io};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{
    Method, Response, StatusCode,
    header::{CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL},
    request::Parts,
};
use http_body_util::BodyExt;

use super::{
    body::{self, ApiBody, Live},
    query::Query,
};
use crate::server::{
    error::{ApiError, Result},
    protobuf,
    wire::{
        upgrade::asked_protocol,
        websocket::{CLOSE_NORMAL, Handshake, Kind, Receiver, Sender},
    },
};

/// Protocols of logs: the bytes as they are, or in base64.
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// What carries the events of a watch, or a log.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The body of the response.
    Body,
    /// A WebSocket, with the protocol that the client names, if it names one.
    Socket(Box<Handshake>, Option<String>, Content),
}

/// What goes over a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Events,
    /// A log, in messages of any length.
    Log(Framing),
}

impl Carrier {
    /// What a request asks for.
    pub(crate) fn of(
        parts: &mut Parts,
        query: &Query,
        subresource: Option<&str>,
    ) -> Result<Carrier> {
        match subresource {
            None => Carrier::of_watch(parts, query),
            Some("log") => Carrier::of_log(parts),
            Some(_) => Ok(Carrier::Body),
        }
    }

    /// A log over any other protocol is an ordinary answer, as Kubernetes gives it.
    fn of_log(parts: &mut Parts) -> Result<Carrier> {
        let Some(handshake) = Handshake::of(parts)? else {
            return Ok(Carrier::Body);
        };
        let protocol = handshake.choose(&[BINARY, BASE64])?;
        let framing = if protocol == Some(BASE64) {
            Framing::Base64
        } else {
            Framing::Bytes
        };
        let protocol = protocol.map(str::to_owned);
        Ok(Carrier::Socket(
            Box::new(handshake),
            protocol,
            Content::Log(framing),
        ))
    }

    /// A watch would never tell a client that waits for another protocol that there is none: its answer has no end.
    fn of_watch(parts: &mut Parts, query: &Query) -> Result<Carrier> {
        if parts.method != Method::GET || !matches!(query.flag("watch"), Ok(Some(true))) {
            return Ok(Carrier::Body);
        }
        match asked_protocol(&parts.headers).as_deref() {
            // Clients offer HTTP/2 in this way, and go on with HTTP/1.1 without it.
            None | Some("h2c") => return Ok(Carrier::Body),
            Some("websocket") => {}
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "expected the protocol websocket in the header Upgrade, found {other:?}: watch over a WebSocket, or \
                     without this header"
                )));
            }
        }
        let protocol = parts.headers.get(SEC_WEBSOCKET_PROTOCOL);
        let protocol = protocol.and_then(|value| value.to_str().ok());
        let protocol = protocol
            .filter(|names| !names.contains(','))
            .map(|name| name.trim().to_owned());
        Ok(match Handshake::of(parts)? {
            Some(handshake) => Carrier::Socket(Box::new(handshake), protocol, Content::Events),
            None => Carrier::Body,
        })
    }

    /// Sends an answer on its way. A refusal stays a response, with its code.
    pub(crate) fn carry(self, response: Response<ApiBody>) -> Response<ApiBody> {
        let is_live = response.extensions().get::<Live>().is_some();
        match self {
            Carrier::Socket(handshake, protocol, content) if is_live => {
                let framing = match content {
                    Content::Events => Framing::of(&response),
                    Content::Log(framing) => framing,
                };
                let body = response.into_body();
                handshake.serve(protocol.as_deref(), move |receiver, sender| {
                    send_all(body, framing, receiver, sender)
                })
            }
            // A client that waits for a WebSocket must not take an ordinary answer for one.
            Carrier::Socket(..) if response.status() == StatusCode::OK => {
                let error = ApiError::bad_request(
                    "expected a request that is answered over a WebSocket, found one that is not: leave out the header Upgrade",
                );
                body::failure(&error)
            }
            Carrier::Socket(..) | Carrier::Body => response,
        }
    }
}

/// How pieces of a body are messages of a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Lines of JSON, each a text without its end.
    Lines,
    /// Messages behind their length, each without it.
    Messages,
    /// As they are.
    Bytes,
    /// Texts in base64.
    Base64,
}

impl Framing {
    fn of(response: &Response<ApiBody>) -> Framing {
        match response.headers().get(CONTENT_TYPE) {
            Some(found) if found == protobuf::WATCH_MEDIA_TYPE => Framing::Messages,
            Some(_) | None => Framing::Lines,
        }
    }

    fn message(self, piece: &[u8]) -> (Kind, Cow<'_, [u8]>) {
        const LENGTH: usize = size_of::<u32>();
        match self {
            Framing::Lines => (
                Kind::Text,
                piece.strip_suffix(b"\n").unwrap_or(piece).into(),
            ),
            Framing::Messages => (Kind::Binary, piece.get(LENGTH..).unwrap_or(piece).into()),
            Framing::Bytes => (Kind::Binary, piece.into()),
            Framing::Base64 => (Kind::Text, STANDARD.encode(piece).into_bytes().into()),
        }
    }

    /// Before the first byte of a log, which may take long to come, an empty message says that the log is there.
    fn greets(self) -> bool {
        match self {
            Framing::Lines | Framing::Messages => false,
            Framing::Bytes | Framing::Base64 => true,
        }
    }
}

/// Sends each piece of a body as a message, until the body or the client ends. Pings are answered meanwhile.
async fn send_all(
    body: ApiBody,
    framing: Framing,
    mut receiver: Receiver,
    sender: Sender,
) -> io::Result<()> {
    tokio::select! {
        ended = receiver.closed() => {
            ended?;
            sender.close(CLOSE_NORMAL, "").await
        }
        sent = send_pieces(body, framing, &sender) => sent,
    }
}

async fn send_pieces(mut body: ApiBody, framing: Framing, sender: &Sender) -> io::Result<()> {
    if framing.greets() {
        let (kind, nothing) = framing.message(b"");
        sender.send(kind, &[&nothing]).await?;
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(io::Error::other)?;
        if let Some(piece) = frame.data_ref() {
            let (kind, message) = framing.message(piece);
            sender.send(kind, &[&message]).await?;
        }
    }
    sender.close(CLOSE_NORMAL, "").await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::server::wire::websocket::{self, frame::tests::masked};

    fn watch(content_type: &'static str, events: Vec<&'static [u8]>) -> Response<ApiBody> {
        let events = events
            .into_iter()
            .map(|event| Ok(Bytes::from_static(event)));
        body::stream(content_type, stream::iter(events))
    }

    /// What a client gets that sends these bytes first.
    async fn got(response: Response<ApiBody>, sent: &[u8]) -> Vec<u8> {
        let framing = Framing::of(&response);
        got_in(framing, response, sent).await
    }

    async fn got_in(framing: Framing, response: Response<ApiBody>, sent: &[u8]) -> Vec<u8> {
        let (near, mut far) = duplex(1024);
        far.write_all(sent).await.unwrap();
        let (receiver, sender) = websocket::open(Box::new(near));
        send_all(response.into_body(), framing, receiver, sender)
            .await
            .unwrap();
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        got
    }

    #[tokio::test]
    async fn each_event_is_a_message_and_the_end_of_the_watch_closes() {
        let lines: Vec<&[u8]> = vec![b"{\"a\":1}\n", b"{}\n"];
        let found = got(watch("application/json", lines), b"").await;
        let expected = [
            &b"\x81\x07{\"a\":1}"[..],
            b"\x81\x02{}",
            b"\x88\x02\x03\xe8",
        ];
        assert_eq!(found, expected.concat());
        let messages: Vec<&[u8]> = vec![b"\0\0\0\x02ab"];
        let found = got(watch(protobuf::WATCH_MEDIA_TYPE, messages), b"").await;
        assert_eq!(found, b"\x82\x02ab\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn a_log_begins_with_an_empty_message_and_its_bytes_are_kept() {
        let pieces: Vec<&[u8]> = vec![b"a\n", b"\xff"];
        let log = || watch("text/plain", pieces.clone());
        let end = &b"\x88\x02\x03\xe8"[..];
        let found = got_in(Framing::Bytes, log(), b"").await;
        assert_eq!(found, [&b"\x82\0\x82\x02a\n\x82\x01\xff"[..], end].concat());
        let found = got_in(Framing::Base64, log(), b"").await;
        assert_eq!(
            found,
            [&b"\x81\0\x81\x04YQo=\x81\x04/w=="[..], end].concat()
        );
    }

    #[tokio::test]
    async fn a_watch_that_is_idle_answers_pings_and_ends_with_its_client() {
        let idle = body::stream("application/json", stream::pending());
        let sent = [masked(0x89, b"hi"), masked(0x88, b"\x03\xe8")].concat();
        let found = got(idle, &sent).await;
        assert_eq!(found, b"\x8a\x02hi\x88\x02\x03\xe8");
    }

    #[test]
    fn only_watches_and_logs_are_refused_for_what_they_cannot_be_upgraded_to() {
        let log = Some("log");
        for (method, query, upgrade, subresource, expected) in [
            ("GET", "watch=true", "", None, Ok(())),
            ("GET", "watch=true", "h2c", None, Ok(())),
            ("GET", "watch=true", "spdy/3.1", None, Err(400)),
            // Without the headers of a handshake.
            ("GET", "watch=true", "websocket", None, Err(400)),
            ("GET", "", "websocket", None, Ok(())),
            ("DELETE", "watch=true", "websocket", None, Ok(())),
            ("GET", "", "", log, Ok(())),
            ("GET", "", "spdy/3.1", log, Ok(())),
            ("GET", "", "websocket", log, Err(400)),
            ("POST", "", "websocket", log, Err(405)),
            ("GET", "watch=true", "websocket", Some("status"), Ok(())),
        ] {
            let request = http::Request::builder().method(method);
            let request = if upgrade.is_empty() {
                request
            } else {
                request
                    .header("Connection", "Upgrade")
                    .header("Upgrade", upgrade)
            };
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            let carrier = Carrier::of(&mut parts, &Query::parse(query), subresource);
            let found = carrier.map(|_| ()).map_err(|error| error.code);
            let what = format!("{method} {query} {upgrade} {subresource:?}");
            assert_eq!(found, expected, "{what}");
        }
    }
}
