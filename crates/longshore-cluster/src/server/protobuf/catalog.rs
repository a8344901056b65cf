//! The messages of the built-in kinds: `protobuf/messages.json.gz`, read once.

use std::{collections::BTreeMap, io, sync::OnceLock};

use flate2::read::GzDecoder;
use serde::Deserialize;

/// The catalog of messages; `protobuf/SOURCE.md` says how it was made.
static MESSAGES: &[u8] = include_bytes!("../../../protobuf/messages.json.gz");

/// All messages.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Catalog {
    /// By `apiVersion Kind`.
    kinds: BTreeMap<String, usize>,
    messages: Vec<Vec<Field>>,
}

/// A field of a message.
#[derive(Debug, Deserialize)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON; empty when its members stand in the place of itself.
    pub(super) name: String,
    pub(super) when: When,
    pub(super) shape: Shape,
}

/// When a field is in the JSON that Go writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum When {
    Always,
    /// When it was sent: a pointer.
    Present,
    /// When it is not zero or empty: Go sends every value that is no pointer.
    Nonzero,
    /// Its members are those of the message around it.
    Inline,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Shape {
    Text,
    Boolean,
    Integer,
    /// A floating point number.
    Double,
    /// Base64 in JSON.
    Bytes,
    /// `Time`: a message that is text in JSON, with whole seconds.
    Time,
    /// The same with microseconds.
    MicroTime,
    /// `Quantity`: a message that is text in JSON.
    Quantity,
    /// `IntOrString`: a message that is a number or text in JSON.
    IntOrString,
    /// `RawExtension`, `FieldsV1` and `JSON`: JSON in a message.
    Json,
    /// A list of texts in a message of its own.
    Texts,
    List(Box<Shape>),
    /// Keys are text.
    Map(Box<Shape>),
    /// Something that may be absent.
    Pointer(Box<Shape>),
    /// The fields of a message, by its place.
    Message(usize),
    /// A schema, whose fields are the message at this place, or a boolean.
    SchemaOrBoolean(usize),
    /// A schema, or a list of schemas.
    SchemaOrList(usize),
    /// A schema, or a list of texts.
    SchemaOrTexts(usize),
}

impl Catalog {
    /// The messages of the built-in kinds.
    pub(super) fn built_in() -> &'static Catalog {
        static BUILT_IN: OnceLock<Catalog> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            let json = io::BufReader::new(GzDecoder::new(MESSAGES));
            serde_json::from_reader(json).unwrap_or_else(|error| {
                // Cannot happen with the messages that this crate was built with.
                tracing::error!(%error, "the messages of the built-in kinds cannot be read: no protobuf");
                Catalog::default()
            })
        })
    }

    /// The place of a kind's message.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        // The options of a deletion are the same in every version of every group.
        let version = match kind {
            "DeleteOptions" => "v1",
            _ => api_version,
        };
        self.kinds.get(&format!("{version} {kind}")).copied()
    }

    /// The place of the message of a list's metadata. A Status has the same metadata, in its first field.
    pub(super) fn list_metadata(&self) -> Option<usize> {
        let status = self.kind("v1", "Status")?;
        if let Shape::Message(place) = self.fields(status).first()?.shape {
            Some(place)
        } else {
            None
        }
    }

    /// The fields of a message.
    pub(super) fn fields(&self, place: usize) -> &[Field] {
        self.messages.get(place).map_or(&[], Vec::as_slice)
    }
}
