//! Kubernetes' subprotocols of WebSockets: each message starts with the number of its channel.

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::server::{
    error::Result,
    wire::websocket::{Handshake, Kind, Piece, Sender},
};

pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// Not a channel: the next byte names one that the client will not use any more.
const CLOSE: u8 = 255;

/// One of the subprotocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    /// Its name; a client that names none gets none.
    pub(super) name: &'static str,
    is_base64: bool,
    /// The client can close a channel.
    has_close: bool,
    /// The error channel has a Status in any case; else it has a text, and only for a failure.
    has_status: bool,
}

const fn protocol(name: &'static str, is_base64: bool) -> Protocol {
    Protocol {
        name,
        is_base64,
        has_close: false,
        has_status: false,
    }
}

/// For processes, the best one first.
pub(super) const OF_PROCESSES: [Protocol; 6] = [
    Protocol {
        has_close: true,
        has_status: true,
        ..protocol("v5.channel.k8s.io", false)
    },
    Protocol {
        has_status: true,
        ..protocol("v4.channel.k8s.io", false)
    },
    Protocol {
        has_status: true,
        ..protocol("v4.base64.channel.k8s.io", true)
    },
    protocol("channel.k8s.io", false),
    protocol("base64.channel.k8s.io", true),
    protocol("", false),
];

/// For ports: a pair of channels for each, data and error.
pub(super) const OF_PORTS: [Protocol; 3] = [
    protocol("v4.channel.k8s.io", false),
    protocol("v4.base64.channel.k8s.io", true),
    protocol("", false),
];

impl Protocol {
    /// The client's first protocol that is one of these.
    pub(super) fn choose(handshake: &Handshake, known: &[Protocol]) -> Result<Protocol> {
        let names: Vec<&str> = known
            .iter()
            .map(|it| it.name)
            .filter(|name| !name.is_empty())
            .collect();
        let name = handshake.choose(&names)?.unwrap_or("");
        let chosen = known.iter().find(|it| it.name == name);
        Ok(chosen.copied().unwrap_or(protocol("", false)))
    }

    /// What the handshake answers.
    pub(super) fn agreed(self) -> Option<&'static str> {
        (!self.name.is_empty()).then_some(self.name)
    }

    /// Sends one message on a channel.
    pub(super) async fn send(self, to: &Sender, channel: u8, content: &[u8]) -> io::Result<()> {
        if self.is_base64 {
            let text = STANDARD.encode(content);
            let channel = [b'0'.wrapping_add(channel)];
            to.send(Kind::Text, &[&channel, text.as_bytes()]).await
        } else {
            to.send(Kind::Binary, &[&[channel], content]).await
        }
    }

    /// Sends how a process ended.
    pub(super) async fn send_end(self, to: &Sender, end: &io::Result<i32>) -> io::Result<()> {
        let status = status(end);
        if self.has_status {
            return self.send(to, ERROR, status.to_string().as_bytes()).await;
        }
        match status["message"].as_str() {
            Some(message) => self.send(to, ERROR, message.as_bytes()).await,
            None => Ok(()),
        }
    }
}

/// The Status that tells an exit code.
fn status(end: &io::Result<i32>) -> Value {
    match end {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {error}"),
            "reason": "InternalError",
            "details": {"causes": [{"message": error.to_string()}]},
            "code": 500,
        }),
    }
}

/// What a client has sent on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    Data {
        channel: u8,
        bytes: Bytes,
        /// The message ends with these bytes.
        is_last: bool,
    },
    Close(u8),
}

/// A message that does not follow the subprotocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a message of the agreed WebSocket protocol, found {0}")]
pub(super) struct Malformed(&'static str);

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// Finds the channel of each piece of a message.
#[derive(Debug)]
pub(super) struct Demux {
    protocol: Protocol,
    channel: Option<u8>,
    /// What cannot be judged before more of the message is there.
    carry: Vec<u8>,
}

impl Demux {
    pub(super) fn new(protocol: Protocol) -> Demux {
        Demux {
            protocol,
            channel: None,
            carry: Vec::new(),
        }
    }

    /// Takes the next piece; `None` when it has nothing for a channel.
    pub(super) fn take(&mut self, piece: Piece) -> Result<Option<Input>, Malformed> {
        let Piece {
            is_first,
            is_last,
            mut bytes,
            kind: _,
        } = piece;
        if is_first {
            self.channel = None;
            self.carry.clear();
        }
        let channel = match self.channel {
            Some(channel) => channel,
            None if bytes.is_empty() => return Ok(None),
            None => {
                let first = bytes.split_to(1)[0];
                let zero = if self.protocol.is_base64 { b'0' } else { 0 };
                *self.channel.insert(first.wrapping_sub(zero))
            }
        };
        if self.protocol.has_close && channel == CLOSE {
            self.carry.extend(bytes.iter().take(2));
            return match (self.carry.as_slice(), is_last) {
                ([channel], true) => Ok(Some(Input::Close(*channel))),
                ([] | [_], false) => Ok(None),
                ([], true) | ([_, _, ..], _) => Err(Malformed("a CLOSE of no single channel")),
            };
        }
        if self.protocol.is_base64 {
            bytes = self.decode(&bytes, is_last)?;
        }
        let is_news = !bytes.is_empty() || is_last;
        Ok(is_news.then_some(Input::Data {
            channel,
            bytes,
            is_last,
        }))
    }

    /// Four letters are three bytes; what is left of them waits for the next piece.
    fn decode(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, Malformed> {
        self.carry.extend_from_slice(text);
        let rest = if is_last { 0 } else { self.carry.len() % 4 };
        let whole: Vec<u8> = self.carry.drain(..self.carry.len() - rest).collect();
        let decoded = STANDARD.decode(whole);
        decoded
            .map(Bytes::from)
            .map_err(|_| Malformed("a text that is not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(is_first: bool, is_last: bool, bytes: &[u8]) -> Piece {
        Piece {
            kind: Kind::Binary,
            is_first,
            is_last,
            bytes: Bytes::copy_from_slice(bytes),
        }
    }

    fn data(channel: u8, bytes: &'static [u8], is_last: bool) -> Option<Input> {
        Some(Input::Data {
            channel,
            bytes: Bytes::from_static(bytes),
            is_last,
        })
    }

    #[test]
    fn pieces_go_to_their_channels() {
        let [v5, v4, v4_base64, ..] = OF_PROCESSES;
        let whole = |bytes: &[u8]| vec![piece(true, true, bytes)];
        for (protocol, pieces, expected) in [
            (v5, whole(b"\0ab"), vec![data(0, b"ab", true)]),
            (v5, whole(b"\xff\0"), vec![Some(Input::Close(0))]),
            (v4, whole(b"\xff\0"), vec![data(255, b"\0", true)]),
            (v4, whole(b""), vec![None]),
            (
                v5,
                vec![piece(true, false, b"\xff"), piece(false, true, b"\0")],
                vec![None, Some(Input::Close(0))],
            ),
            (
                v5,
                vec![
                    piece(true, false, b""),
                    piece(false, false, b"\x04"),
                    piece(false, true, b"{}"),
                ],
                vec![None, None, data(4, b"{}", true)],
            ),
            (v4_base64, whole(b"0YWJj"), vec![data(0, b"abc", true)]),
            (
                v4_base64,
                vec![piece(true, false, b"0YWJjZ"), piece(false, true, b"A==")],
                vec![data(0, b"abc", false), data(0, b"d", true)],
            ),
        ] {
            let mut demux = Demux::new(protocol);
            let found: Vec<_> = pieces
                .into_iter()
                .map(|piece| demux.take(piece).unwrap())
                .collect();
            assert_eq!(found, expected, "{protocol:?}");
        }
    }

    #[test]
    fn messages_of_no_protocol_are_refused() {
        let [v5, _, v4_base64, ..] = OF_PROCESSES;
        for (protocol, bytes) in [
            (v5, &b"\xff"[..]),
            (v5, b"\xff\0\0"),
            (v4_base64, b"0Y"),
            (v4_base64, b"0!!!!"),
        ] {
            let found = Demux::new(protocol).take(piece(true, true, bytes));
            assert!(found.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_status_tells_the_exit_code() {
        assert_eq!(status(&Ok(0))["status"], "Success");
        let failed = status(&Ok(3));
        assert_eq!(failed["reason"], "NonZeroExitCode");
        let cause = json!([{"reason": "ExitCode", "message": "3"}]);
        assert_eq!(failed["details"]["causes"], cause);
        let lost = status(&Err(io::Error::other("gone")));
        assert_eq!(
            (&lost["reason"], &lost["code"]),
            (&json!("InternalError"), &json!(500))
        );
    }
}
