//! Bodies in protobuf, as the clients of Go's libraries send and prefer them: read into the JSON that
//! the same clients would have sent instead, and made of the JSON that is stored.
//!
//! `wire` takes an encoded message apart, `catalog` knows the messages of the built-in kinds,
//! `message` makes JSON of them, `encode` does the opposite. The first three take a stranger's bytes:
//! nothing is allocated by a length that was only announced, and nothing is read deeper than a limit.

mod catalog;
mod encode;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::{Value, json};

use super::error::{ApiError, Result};
use catalog::Catalog;
use message::Decoder;
use wire::{Piece, Reader, WireError};

pub(crate) use encode::{ListBody, encode, watch_frame};
pub(crate) use wire::put;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The media type of the events of a watch.
pub(crate) const WATCH_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum DecodeError {
    #[error(
        "the object provided is unrecognized (must be of type Protobuf): expected it to begin with \"k8s\\0\""
    )]
    NoMagic,
    #[error(
        "the object provided is unrecognized (must be of type Protobuf): expected apiVersion and kind around it"
    )]
    NoType,
    #[error("no kind {kind:?} is registered for version {api_version:?} in protobuf")]
    UnknownKind { api_version: String, kind: String },
    #[error("the object provided is no message of its kind")]
    Wire(#[from] WireError),
    #[error("field {field}: expected {expected} in the message, found something else")]
    Unexpected {
        field: String,
        expected: &'static str,
    },
    #[error("field {field}: expected a time between the years -9999 and 9999, found {seconds} s")]
    Time { field: String, seconds: i64 },
    #[error("field {field}: expected JSON: {what}")]
    Json { field: String, what: String },
    #[error("the object provided has more than {limit} fields")]
    TooManyFields { limit: usize },
    #[error("the object provided is nested more than {limit} levels deep")]
    TooDeep { limit: usize },
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> ApiError {
        match &error {
            DecodeError::Wire(cause) => ApiError::bad_request(format!("{error}: {cause}")),
            DecodeError::NoMagic
            | DecodeError::NoType
            | DecodeError::UnknownKind { .. }
            | DecodeError::Unexpected { .. }
            | DecodeError::Time { .. }
            | DecodeError::Json { .. }
            | DecodeError::TooManyFields { .. }
            | DecodeError::TooDeep { .. } => ApiError::bad_request(error.to_string()),
        }
    }
}

/// Whether a content type says protobuf.
pub(crate) fn is_protobuf(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or("").trim() == MEDIA_TYPE
}

/// Decodes a body into the object that it holds.
pub(crate) fn decode(body: &[u8]) -> Result<Value> {
    Ok(decode_with(Catalog::built_in(), body)?)
}

fn decode_with(catalog: &Catalog, body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = Envelope::read(body)?;
    let Some(message) = catalog.kind(&envelope.api_version, &envelope.kind) else {
        return Err(DecodeError::UnknownKind {
            api_version: envelope.api_version,
            kind: envelope.kind,
        });
    };
    let mut object = json!({"apiVersion": envelope.api_version, "kind": envelope.kind});
    let members = Decoder::new(catalog).object(message, envelope.object)?;
    if let Some(object) = object.as_object_mut() {
        object.extend(members);
    }
    Ok(object)
}

/// What is around every object: `runtime.Unknown`.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    object: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Envelope<'a>, DecodeError> {
        const TYPE: u32 = 1;
        const OBJECT: u32 = 2;
        let unknown = body.strip_prefix(MAGIC).ok_or(DecodeError::NoMagic)?;
        let (mut envelope_type, mut object): (&[u8], &[u8]) = (&[], &[]);
        for field in Reader::new(unknown) {
            match field? {
                (TYPE, Piece::Bytes(bytes)) => envelope_type = bytes,
                (OBJECT, Piece::Bytes(bytes)) => object = bytes,
                _ => {}
            }
        }
        let (mut api_version, mut kind) = (String::new(), String::new());
        for field in Reader::new(envelope_type) {
            match field? {
                (1, Piece::Bytes(bytes)) => api_version = String::from_utf8_lossy(bytes).into(),
                (2, Piece::Bytes(bytes)) => kind = String::from_utf8_lossy(bytes).into(),
                _ => {}
            }
        }
        if api_version.is_empty() || kind.is_empty() {
            return Err(DecodeError::NoType);
        }
        Ok(Envelope {
            api_version,
            kind,
            object,
        })
    }
}
