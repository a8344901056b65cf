//! Frames: a length of four bytes in network order, then one msgpack array `[id, body, …]`.
//!
//! Source: spec 5.1; Airflow: `task-sdk/src/airflow/sdk/execution_time/comms.py`, `_RequestFrame` and `_ResponseFrame`.
//! The third element is an error in a frame to the child and a trace context in a frame from the child.

use rmpv::{Value, decode, encode};
use thiserror::Error;

/// Bytes of the length that precedes each frame.
const PREFIX: usize = 4;
/// Levels of nesting that a frame may have. The document of a DAG needs about 20.
const DEPTH: usize = 256;

/// One message in either direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Chosen by the sender of a request; the response has the id of its request.
    pub id: u64,
    /// A map with a `type`, or nil.
    pub body: Value,
    /// The elements after the body, kept as they came: an error, a trace context, or what a later Airflow adds.
    pub rest: Vec<Value>,
}

impl Frame {
    /// A frame as Airflow writes it: three elements, of which the last one is nil.
    pub fn new(id: u64, body: Value) -> Self {
        Self {
            id,
            body,
            rest: vec![Value::Nil],
        }
    }

    /// A response without a body, whose third element is the error.
    pub fn error(id: u64, error: Value) -> Self {
        Self {
            id,
            body: Value::Nil,
            rest: vec![error],
        }
    }

    /// The third element, where it is not nil.
    #[must_use]
    pub fn third(&self) -> Option<&Value> {
        self.rest.first().filter(|value| !value.is_nil())
    }

    /// The `type` of the body, as `GetVariable`.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.body
            .as_map()?
            .iter()
            .find(|(key, _)| key.as_str() == Some("type"))
            .and_then(|(_, value)| value.as_str())
    }

    /// The frame as the bytes of the wire.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] where the array has more than `max` bytes (or more than the prefix can say).
    pub fn encode(&self, max: usize) -> Result<Vec<u8>, FrameError> {
        let mut elements = vec![Value::from(self.id), self.body.clone()];
        elements.extend(self.rest.iter().cloned());
        let mut bytes = vec![0; PREFIX];
        encode::write_value(&mut bytes, &Value::Array(elements))
            .map_err(|e| FrameError::NotWritable(e.to_string()))?;
        let found = bytes.len() - PREFIX;
        let length = u32::try_from(found)
            .ok()
            .filter(|_| found <= max)
            .ok_or(FrameError::TooLarge { found, max })?;
        bytes[..PREFIX].copy_from_slice(&length.to_be_bytes());
        Ok(bytes)
    }

    /// The frame in the bytes behind a prefix.
    fn decode(mut bytes: &[u8]) -> Result<Self, FrameError> {
        let value = decode::read_value_with_max_depth(&mut bytes, DEPTH)
            .map_err(|e| FrameError::NotMsgpack(e.to_string()))?;
        if !bytes.is_empty() {
            return Err(FrameError::Trailing(bytes.len()));
        }
        let Value::Array(elements) = value else {
            return Err(FrameError::NotAnArray(form(&value)));
        };
        let n_elements = elements.len();
        let mut elements = elements.into_iter();
        let (Some(id), Some(body)) = (elements.next(), elements.next()) else {
            return Err(FrameError::TooShort(n_elements));
        };
        Ok(Self {
            id: id.as_u64().ok_or_else(|| FrameError::Id(form(&id)))?,
            body,
            rest: elements.collect(),
        })
    }
}

/// What kind of value it is, for an error: never the value, which may be a secret.
fn form(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "a boolean",
        Value::Integer(i) if i.as_u64().is_none() => "a negative integer",
        Value::Integer(_) => "an integer",
        Value::F32(_) | Value::F64(_) => "a float",
        Value::String(_) => "a string",
        Value::Binary(_) => "bytes",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        Value::Ext(..) => "an extension",
    }
}

/// Why bytes are no frame, or a frame cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The prefix announces more than the limit.
    #[error(
        "expected a frame of at most {max} bytes, found one of {found}: raise the limit for frames, or make the message smaller"
    )]
    TooLarge {
        /// Bytes of the frame.
        found: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The bytes behind the prefix are no msgpack.
    #[error(
        "expected a frame in msgpack, found other bytes ({0}): does the child print to descriptor 0?"
    )]
    NotMsgpack(String),
    /// The value ends before the frame does.
    #[error("expected one value in a frame, found {0} bytes behind it")]
    Trailing(usize),
    /// The frame is another value than an array.
    #[error("expected a frame to be an array [id, body, …], found {0}")]
    NotAnArray(&'static str),
    /// The array has not even id and body.
    #[error("expected a frame to have an id and a body, found {0} elements")]
    TooShort(usize),
    /// The id is no integer, or negative.
    #[error("expected the id of a frame to be an integer from 0, found {0}")]
    Id(&'static str),
    /// The stream ended inside a frame.
    #[error("expected {expected} more bytes of a frame, found the end of the stream")]
    Truncated {
        /// Bytes that are missing, as far as the prefix tells.
        expected: usize,
    },
    /// The value cannot be written as msgpack.
    #[error("the frame cannot be written: {0}")]
    NotWritable(String),
}

/// Turns the bytes of a stream into frames, however the stream is cut.
#[derive(Debug)]
pub struct Decoder {
    max: usize,
    bytes: Vec<u8>,
    /// The bytes before it belong to frames that were returned.
    start: usize,
}

impl Decoder {
    /// A decoder for frames of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            bytes: Vec::new(),
            start: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// The stream cannot be read any further after an error: nothing tells where the next frame begins.
    /// A frame over the limit is refused by its prefix, before its bytes are waited for.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((length, body)) = self.head()? else {
            return Ok(None);
        };
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::decode(body)?;
        self.start += PREFIX + length;
        Ok(Some(frame))
    }

    /// Checks that the stream ends between two frames.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] where it ends inside of one.
    pub fn finish(&self) -> Result<(), FrameError> {
        let left = self.bytes.len() - self.start;
        match self.head()? {
            Some((length, body)) if length > body.len() => Err(FrameError::Truncated {
                expected: length - body.len(),
            }),
            None if left > 0 => Err(FrameError::Truncated {
                expected: PREFIX - left,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The length that the prefix announces, and what came behind it.
    fn head(&self) -> Result<Option<(usize, &[u8])>, FrameError> {
        let Some((prefix, body)) = self.bytes[self.start..].split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let found = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if found > self.max {
            return Err(FrameError::TooLarge {
                found,
                max: self.max,
            });
        }
        Ok(Some((found, body)))
    }
}

#[cfg(test)]
mod tests;
