//! The frames of RFC 6455 between a client and a server: pure, from bytes to events and back.

use bytes::{Buf, Bytes, BytesMut};

/// Largest content of a control frame.
const CONTROL_LIMIT: usize = 125;

/// What a message holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// What a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of a message. Messages can be of any length, so nobody waits for the whole of one.
    Data {
        kind: Kind,
        /// The message begins with this piece.
        is_first: bool,
        /// The message ends with this piece.
        is_last: bool,
        bytes: Bytes,
    },
    /// Wants the same bytes back.
    Ping(Bytes),
    /// An answer to a ping.
    Pong,
    /// The client wants to end the connection.
    Close,
}

/// Bytes that are no frames of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a frame of a WebSocket client, found {0}")]
pub(crate) struct Violation(pub(crate) &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Message(Kind),
    Close,
    Ping,
    Pong,
}

/// The rest of a data frame whose head was read.
#[derive(Debug)]
struct Body {
    remaining: u64,
    mask: [u8; 4],
    /// Position in the mask of the next byte.
    offset: usize,
    is_final: bool,
}

/// Takes frames out of a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    body: Option<Body>,
    /// The message that goes on with the next data frame.
    open: Option<Kind>,
    /// No byte of the open message was handed out.
    is_at_start: bool,
}

impl Decoder {
    /// The next event that the buffer has; `None` when more bytes are needed.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Violation> {
        if self.body.is_some() {
            return Ok(self.piece(buffer));
        }
        let Some(head) = Head::parse(buffer)? else {
            return Ok(None);
        };
        match head.opcode {
            Opcode::Continuation | Opcode::Message(_) => {
                buffer.advance(head.size);
                self.open_frame(&head)?;
                Ok(self.piece(buffer))
            }
            control @ (Opcode::Close | Opcode::Ping | Opcode::Pong) => {
                let length = usize::try_from(head.length).unwrap_or(usize::MAX);
                if !head.is_final || length > CONTROL_LIMIT {
                    return Err(Violation(
                        "a control frame in pieces or of more than 125 bytes",
                    ));
                }
                if buffer.len() < head.size + length {
                    return Ok(None);
                }
                buffer.advance(head.size);
                let mut content = buffer.split_to(length);
                unmask(&mut content, head.mask, 0);
                Ok(Some(match control {
                    Opcode::Ping => Event::Ping(content.freeze()),
                    Opcode::Pong => Event::Pong,
                    Opcode::Close | Opcode::Continuation | Opcode::Message(_) => Event::Close,
                }))
            }
        }
    }

    fn open_frame(&mut self, head: &Head) -> Result<(), Violation> {
        match (head.opcode, self.open) {
            (Opcode::Message(kind), None) => {
                self.open = Some(kind);
                self.is_at_start = true;
            }
            (Opcode::Message(_), Some(_)) => {
                return Err(Violation("a new message before the end of the last one"));
            }
            (_, None) => return Err(Violation("a continuation of no message")),
            (_, Some(_)) => {}
        }
        self.body = Some(Body {
            remaining: head.length,
            mask: head.mask,
            offset: 0,
            is_final: head.is_final,
        });
        Ok(())
    }

    /// What the buffer has of the open frame.
    fn piece(&mut self, buffer: &mut BytesMut) -> Option<Event> {
        let (body, kind) = (self.body.as_mut()?, self.open?);
        let length = usize::try_from(body.remaining).unwrap_or(usize::MAX);
        let length = length.min(buffer.len());
        if length == 0 && body.remaining > 0 {
            return None;
        }
        let mut content = buffer.split_to(length);
        unmask(&mut content, body.mask, body.offset);
        body.offset = (body.offset + length) % 4;
        body.remaining -= length as u64;
        let is_through = body.remaining == 0;
        let is_last = is_through && body.is_final;
        if is_through {
            self.body = None;
        }
        if is_last {
            self.open = None;
        }
        let is_first = std::mem::take(&mut self.is_at_start);
        Some(Event::Data {
            kind,
            is_first,
            is_last,
            bytes: content.freeze(),
        })
    }
}

fn unmask(content: &mut [u8], mask: [u8; 4], offset: usize) {
    for (byte, mask) in content.iter_mut().zip(mask.iter().cycle().skip(offset)) {
        *byte ^= mask;
    }
}

/// The start of a frame.
struct Head {
    opcode: Opcode,
    is_final: bool,
    length: u64,
    mask: [u8; 4],
    /// Bytes of the head itself.
    size: usize,
}

impl Head {
    fn parse(buffer: &[u8]) -> Result<Option<Head>, Violation> {
        let [first, second, rest @ ..] = buffer else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(Violation("a reserved bit: no extension was agreed on"));
        }
        if second & 0x80 == 0 {
            return Err(Violation("a frame without a mask"));
        }
        let opcode = match first & 0x0f {
            0 => Opcode::Continuation,
            1 => Opcode::Message(Kind::Text),
            2 => Opcode::Message(Kind::Binary),
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return Err(Violation("an unknown opcode")),
        };
        let n_length = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((length, rest)) = rest.split_at_checked(n_length) else {
            return Ok(None);
        };
        let Some((mask, _)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = match n_length {
            0 => u64::from(second & 0x7f),
            _ => length
                .iter()
                .fold(0_u64, |length, byte| (length << 8) | u64::from(*byte)),
        };
        if length > i64::MAX.unsigned_abs() {
            return Err(Violation("a length with its highest bit set"));
        }
        Ok(Some(Head {
            opcode,
            is_final: first & 0x80 != 0,
            length,
            mask: *mask,
            size: 2 + n_length + 4,
        }))
    }
}

/// The head of a whole message that the server sends.
pub(super) fn message_head(kind: Kind, length: usize) -> Vec<u8> {
    let opcode = match kind {
        Kind::Text => 1,
        Kind::Binary => 2,
    };
    head(opcode, length)
}

/// The answer to a ping.
pub(super) fn pong(content: &[u8]) -> Vec<u8> {
    [&head(10, content.len())[..], content].concat()
}

/// A question whether the client is still there.
pub(super) fn ping() -> Vec<u8> {
    head(9, 0)
}

/// The last frame of the server.
pub(super) fn close(code: u16, reason: &str) -> Vec<u8> {
    let reason = &reason[..reason.floor_char_boundary(CONTROL_LIMIT - 2)];
    let mut frame = head(8, 2 + reason.len());
    frame.extend(code.to_be_bytes());
    frame.extend(reason.as_bytes());
    frame
}

fn head(opcode: u8, length: usize) -> Vec<u8> {
    let mut head = vec![0x80 | opcode];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => head.push(short),
        (_, Ok(medium)) => {
            head.push(126);
            head.extend(medium.to_be_bytes());
        }
        (_, Err(_)) => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A frame as a client sends it.
    pub(crate) fn masked(first: u8, content: &[u8]) -> Vec<u8> {
        let mask = [7, 11, 13, 17];
        let mut frame = head(first & 0x0f, content.len());
        frame[0] = first;
        frame[1] |= 0x80;
        frame.extend(mask);
        let mut content = content.to_vec();
        unmask(&mut content, mask, 0);
        frame.extend(content);
        frame
    }

    fn data(kind: Kind, is_first: bool, is_last: bool, bytes: &str) -> Event {
        Event::Data {
            kind,
            is_first,
            is_last,
            bytes: Bytes::copy_from_slice(bytes.as_bytes()),
        }
    }

    fn events(bytes: &[u8]) -> Result<Vec<Event>, Violation> {
        let mut buffer = BytesMut::from(bytes);
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        while let Some(event) = decoder.decode(&mut buffer)? {
            events.push(event);
        }
        Ok(events)
    }

    #[test]
    fn frames_become_events() {
        let (text, binary) = (Kind::Text, Kind::Binary);
        let ping = Event::Ping(Bytes::from_static(b"hi"));
        let in_pieces = [
            masked(0x02, b"ab"),
            masked(0x89, b"hi"),
            masked(0x80, b"cd"),
        ];
        for (bytes, expected) in [
            (masked(0x81, b"abc"), vec![data(text, true, true, "abc")]),
            (masked(0x82, b""), vec![data(binary, true, true, "")]),
            (
                in_pieces.concat(),
                vec![
                    data(binary, true, false, "ab"),
                    ping,
                    data(binary, false, true, "cd"),
                ],
            ),
            (masked(0x8a, b"x"), vec![Event::Pong]),
            (masked(0x88, &[3, 232]), vec![Event::Close]),
            (vec![0x81], vec![]),
            (vec![0x82, 0xfe, 1], vec![]),
        ] {
            assert_eq!(events(&bytes), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_frame_of_a_client_is_refused() {
        for bytes in [
            vec![0x81, 0x03, b'a', b'b', b'c'],
            vec![0xc1, 0x80, 0, 0, 0, 0],
            vec![0x83, 0x80, 0, 0, 0, 0],
            masked(0x80, b"x"),
            [masked(0x02, b"a"), masked(0x82, b"b")].concat(),
            masked(0x09, b"x"),
            masked(0x89, &[0; 126]),
            vec![0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
        ] {
            assert!(events(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_of_any_length_comes_in_the_pieces_of_its_arrival() {
        let content: Vec<u8> = (0..=255).cycle().take(100_001).collect();
        let bytes = masked(0x82, &content);
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        let mut n_first = 0;
        let mut has_ended = false;
        for chunk in bytes.chunks(1_000) {
            buffer.extend_from_slice(chunk);
            while let Some(event) = decoder.decode(&mut buffer).unwrap() {
                let Event::Data {
                    is_first,
                    is_last,
                    bytes,
                    ..
                } = event
                else {
                    panic!("found {event:?}");
                };
                n_first += usize::from(is_first);
                has_ended = is_last;
                found.extend_from_slice(&bytes);
            }
            assert!(buffer.len() < 14, "{}", buffer.len());
        }
        assert_eq!((n_first, has_ended), (1, true));
        assert!(found == content);
    }

    #[test]
    fn a_head_has_the_shortest_length() {
        for (length, expected) in [
            (0, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_535, vec![0x82, 126, 255, 255]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            assert_eq!(message_head(Kind::Binary, length), expected, "{length}");
        }
        assert_eq!(close(1000, ""), [0x88, 2, 3, 232]);
        assert_eq!(close(1000, &"é".repeat(100)).len(), 2 + 2 + 122);
        assert_eq!(pong(b"x"), [0x8a, 1, b'x']);
        assert_eq!(ping(), [0x89, 0]);
    }
}
