//! The frames of SPDY/3.1, as far as port-forwarding needs them: pure, from bytes to frames and back.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT},
};

use super::dictionary::dictionary;

/// Largest control frame.
const CONTROL_LIMIT: usize = 16 * 1024;
/// Largest header block, decompressed.
const HEADERS_LIMIT: usize = 32 * 1024;
/// How far back compressed data may refer.
const WINDOW: usize = 32 * 1024;
/// The flag of the last frame in one direction of a stream.
const FIN: u8 = 1;

/// The client broke the protocol.
pub(super) const PROTOCOL_ERROR: u32 = 1;
/// The server does not want this stream.
pub(super) const REFUSED_STREAM: u32 = 3;

/// What a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// A new stream.
    Open {
        id: u32,
        is_last: bool,
        headers: BTreeMap<String, String>,
    },
    /// A piece of a stream's data.
    Data {
        id: u32,
        /// The client sends nothing more on this stream.
        is_last: bool,
        bytes: Bytes,
    },
    /// The client gives a stream up.
    Reset(u32),
    /// Wants the same number back.
    Ping(u32),
    /// The client opens no more streams.
    GoAway,
    /// Of no meaning here.
    Other,
}

/// Bytes that are no frames of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a frame of SPDY/3.1, found {0}")]
pub(super) struct Violation(&'static str);

impl From<Violation> for std::io::Error {
    fn from(violation: Violation) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, violation)
    }
}

/// The rest of a data frame whose head was read.
#[derive(Debug)]
struct Body {
    id: u32,
    is_last: bool,
    remaining: usize,
}

/// Takes frames out of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    body: Option<Body>,
    inflater: Inflater,
}

impl Decoder {
    /// The next frame that the buffer has; `None` when more bytes are needed.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        if self.body.is_some() {
            return Ok(self.piece(buffer));
        }
        let Some(head) = buffer.first_chunk::<8>() else {
            return Ok(None);
        };
        let [a, b, c, d, flags, x, y, z] = *head;
        let (word, length) = (
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([0, x, y, z]) as usize,
        );
        if word & 0x8000_0000 == 0 {
            buffer.advance(8);
            self.body = Some(Body {
                id: word,
                is_last: flags & FIN != 0,
                remaining: length,
            });
            return Ok(self.piece(buffer));
        }
        if length > CONTROL_LIMIT {
            return Err(Violation("a control frame that is too large"));
        }
        if buffer.len() < 8 + length {
            return Ok(None);
        }
        if word >> 16 != 0x8003 {
            return Err(Violation("another version of the protocol"));
        }
        buffer.advance(8);
        let content = buffer.split_to(length);
        self.control(word & 0xffff, flags, &content).map(Some)
    }

    fn control(&mut self, kind: u32, flags: u8, content: &[u8]) -> Result<Frame, Violation> {
        let short = Violation("a control frame that is too short");
        let (number, rest) = match content.split_first_chunk::<4>() {
            Some((number, rest)) => (u32::from_be_bytes(*number), rest),
            None => return Err(short),
        };
        let id = number & 0x7fff_ffff;
        match kind {
            // SYN_STREAM: an associated stream, priority and slot are in front of the headers.
            1 => Ok(Frame::Open {
                id,
                is_last: flags & FIN != 0,
                headers: headers(&self.inflater.inflate(rest.get(6..).ok_or(short)?)?)?,
            }),
            // SYN_REPLY and HEADERS: not of clients, but later blocks may refer to theirs.
            2 | 8 => self.inflater.inflate(rest).map(|_| Frame::Other),
            3 => Ok(Frame::Reset(id)),
            6 => Ok(Frame::Ping(number)),
            7 => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }

    /// What the buffer has of the open frame.
    fn piece(&mut self, buffer: &mut BytesMut) -> Option<Frame> {
        let body = self.body.as_mut()?;
        let length = body.remaining.min(buffer.len());
        if length == 0 && body.remaining > 0 {
            return None;
        }
        body.remaining -= length;
        let is_through = body.remaining == 0;
        let frame = Frame::Data {
            id: body.id,
            is_last: is_through && body.is_last,
            bytes: buffer.split_to(length).freeze(),
        };
        if is_through {
            self.body = None;
        }
        Some(frame)
    }
}

/// Reads a block of headers.
fn headers(block: &[u8]) -> Result<BTreeMap<String, String>, Violation> {
    fn number(block: &mut &[u8]) -> Option<usize> {
        let (number, rest) = block.split_first_chunk::<4>()?;
        *block = rest;
        usize::try_from(u32::from_be_bytes(*number)).ok()
    }
    fn text(block: &mut &[u8]) -> Option<String> {
        let length = number(block)?;
        let (text, rest) = block.split_at_checked(length)?;
        *block = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    fn all(mut block: &[u8]) -> Option<BTreeMap<String, String>> {
        let mut headers = BTreeMap::new();
        for _ in 0..number(&mut block)? {
            let name = text(&mut block)?;
            headers.insert(name.to_ascii_lowercase(), text(&mut block)?);
        }
        Some(headers)
    }
    all(block).ok_or(Violation("a block of headers that is cut off"))
}

/// Decompresses header blocks: one zlib stream through a whole connection, with a preset dictionary. The window is here and
/// not in the library, because its own forms of a stream take no dictionary.
struct Inflater {
    core: Box<DecompressorOxide>,
    window: Vec<u8>,
    position: usize,
    has_begun: bool,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Default for Inflater {
    fn default() -> Inflater {
        Inflater {
            core: Box::default(),
            window: vec![0; WINDOW],
            position: 0,
            has_begun: false,
        }
    }
}

impl Inflater {
    fn inflate(&mut self, mut input: &[u8]) -> Result<Vec<u8>, Violation> {
        if !self.has_begun {
            input = self.begin(input)?;
        }
        let mut block = Vec::new();
        loop {
            let (status, n_in, n_out) = decompress(
                &mut self.core,
                input,
                &mut self.window,
                self.position,
                TINFL_FLAG_HAS_MORE_INPUT,
            );
            block.extend_from_slice(&self.window[self.position..self.position + n_out]);
            self.position = (self.position + n_out) % WINDOW;
            input = &input[n_in..];
            if block.len() > HEADERS_LIMIT {
                return Err(Violation("a block of headers that is too large"));
            }
            if status == TINFLStatus::NeedsMoreInput && input.is_empty() {
                return Ok(block);
            }
            if status != TINFLStatus::HasMoreOutput {
                return Err(Violation("headers that cannot be decompressed"));
            }
        }
    }

    /// Reads the head of the zlib stream.
    fn begin<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], Violation> {
        const PRESET_DICTIONARY: u8 = 0x20;
        let broken = Violation("headers that are not compressed with zlib");
        let ([method, flags], rest) = input.split_first_chunk::<2>().ok_or(broken)?;
        let check = u16::from_be_bytes([*method, *flags]);
        if method & 0x0f != 8 || !check.is_multiple_of(31) {
            return Err(broken);
        }
        self.has_begun = true;
        if flags & PRESET_DICTIONARY == 0 {
            return Ok(rest);
        }
        let dictionary = dictionary();
        self.window[..dictionary.len()].copy_from_slice(&dictionary);
        self.position = dictionary.len();
        // The checksum of the dictionary: there is only this one.
        rest.get(4..).ok_or(broken)
    }
}

/// The head of a data frame.
pub(super) fn data_head(id: u32, is_last: bool, length: usize) -> [u8; 8] {
    let [a, b, c, d] = id.to_be_bytes();
    let [_, x, y, z] = (length as u32).to_be_bytes();
    [a, b, c, d, u8::from(is_last), x, y, z]
}

/// The server's consent to a stream, without headers. Its header block is not compressed: zlib has stored blocks for that,
/// and an empty one makes the client hand out what came before.
pub(super) fn reply(id: u32, is_first: bool) -> Vec<u8> {
    const ZLIB: [u8; 2] = [0x78, 0x01];
    const NO_HEADERS: [u8; 14] = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let head: &[u8] = if is_first { &ZLIB } else { &[] };
    control(2, &[&id.to_be_bytes(), head, &NO_HEADERS])
}

/// The end of a stream that cannot be.
pub(super) fn reset(id: u32, status: u32) -> Vec<u8> {
    control(3, &[&id.to_be_bytes(), &status.to_be_bytes()])
}

/// The answer to a ping.
pub(super) fn pong(number: u32) -> Vec<u8> {
    control(6, &[&number.to_be_bytes()])
}

fn control(kind: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let [_, x, y, z] = (content.len() as u32).to_be_bytes();
    let mut frame = vec![0x80, 3, 0, kind, 0, x, y, z];
    frame.extend(content);
    frame
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The header blocks of a client's first two streams, as zlib makes them: `streamtype: error` and `streamtype: data`,
    /// both with `port: 8080` and `requestid: 0`.
    const FIRST: [u8; 51] = [
        0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x3a, 0x70, 0x3a, 0x2b, 0x29, 0x4a, 0x4d,
        0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x86, 0x14, 0xcb, 0x45, 0xe0, 0x1c, 0x60,
        0x61, 0x60, 0x61, 0x00, 0xa4, 0x39, 0x8b, 0x20, 0xd1, 0x98, 0x09, 0x4a, 0xde, 0x8c, 0x06,
        0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];
    const SECOND: [u8; 14] = [
        0xc2, 0xaa, 0x19, 0x54, 0x0e, 0x25, 0x12, 0xd6, 0x0b, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];

    /// 100,000 zeros.
    const BOMB: [u8; 120] = [
        0x78, 0xda, 0xec, 0xc1, 0x31, 0x01, 0x00, 0x00, 0x00, 0xc2, 0xa0, 0xf5, 0x4f, 0x6d, 0x0d,
        0x0f, 0xa0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x57, 0x03, 0x00, 0x00, 0xff, 0xff,
    ];

    /// A frame that opens a stream.
    pub(in super::super) fn open(id: u32, is_last: bool, block: &[u8]) -> Vec<u8> {
        let mut frame = control(1, &[&id.to_be_bytes(), &[0; 6], block]);
        frame[4] = u8::from(is_last);
        frame
    }

    /// A header block, compressed by nobody.
    pub(in super::super) fn block(is_first: bool, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = if is_first { vec![0x78, 0x01] } else { vec![] };
        let length = plain.len() as u16;
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(plain);
        block.extend([0, 0, 0, 0xff, 0xff]);
        block
    }

    /// A data frame.
    pub(in super::super) fn data(id: u32, is_last: bool, content: &[u8]) -> Vec<u8> {
        [&data_head(id, is_last, content.len())[..], content].concat()
    }

    fn frames(bytes: &[u8]) -> Result<Vec<Frame>, Violation> {
        let mut buffer = BytesMut::from(bytes);
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        while let Some(frame) = decoder.decode(&mut buffer)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn opened(id: u32, is_last: bool, kind: &str) -> Frame {
        let headers = [("streamtype", kind), ("port", "8080"), ("requestid", "0")];
        Frame::Open {
            id,
            is_last,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    }

    #[test]
    fn header_blocks_are_one_compressed_stream_with_a_dictionary() {
        let bytes = [open(1, true, &FIRST), open(3, false, &SECOND)].concat();
        let expected = vec![opened(1, true, "error"), opened(3, false, "data")];
        assert_eq!(frames(&bytes), Ok(expected));
    }

    #[test]
    fn frames_are_read_as_they_come() {
        let piece = |is_last, bytes: &'static [u8]| Frame::Data {
            id: 3,
            is_last,
            bytes: Bytes::from_static(bytes),
        };
        for (bytes, expected) in [
            (data(3, true, b"ab"), vec![piece(true, b"ab")]),
            (data(3, true, b""), vec![piece(true, b"")]),
            (
                data(3, true, b"abc")[..10].to_vec(),
                vec![piece(false, b"ab")],
            ),
            (pong(5), vec![Frame::Ping(5)]),
            (reset(3, 5), vec![Frame::Reset(3)]),
            (control(7, &[&[0; 8]]), vec![Frame::GoAway]),
            (control(4, &[&[0; 4]]), vec![Frame::Other]),
            (reply(3, true), vec![Frame::Other]),
            (vec![0x80, 3], vec![]),
        ] {
            assert_eq!(frames(&bytes), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn hostile_frames_are_refused() {
        for bytes in [
            open(1, false, b"no zlib"),
            open(1, false, &block(true, &[])[..4]),
            open(1, false, &[0x78, 0x01, 0x07]),
            control(3, &[&[0; 2]]),
            vec![0x80, 2, 0, 1, 0, 0, 0, 0],
            vec![0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
            open(1, false, &BOMB),
        ] {
            assert!(frames(&bytes).is_err(), "{:?}", &bytes[..8]);
        }
    }

    #[test]
    fn a_reply_has_no_headers() {
        let mut inflater = Inflater::default();
        for (is_first, size) in [(true, 28), (false, 26)] {
            let reply = reply(7, is_first);
            assert_eq!(reply.len(), size);
            assert_eq!(inflater.inflate(&reply[12..]), Ok(vec![0; 4]));
        }
    }
}
