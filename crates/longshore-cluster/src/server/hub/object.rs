//! One stored object as the bytes that go over the wire.
//!
//! An object is encoded once, before the sequencer's lock is taken, with a gap where its
//! `resourceVersion` goes. The commit closes the gap by copying; every list, get and watch
//! afterwards shares the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::Claim;
use crate::server::registry::Resource;

/// `namespace/name`, or `name` for objects of the whole cluster; ordered as etcd orders its paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// The key of an object; `namespace` is `None` for objects of the whole cluster.
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Key {
        match namespace {
            Some(namespace) => Key(format!("{namespace}/{name}").into()),
            None => Key(name.into()),
        }
    }

    /// A position in the order of keys, as it stands in a `continue` token.
    pub(crate) fn from_position(position: &str) -> Key {
        Key(position.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    /// The type on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }

    fn head(self) -> &'static [u8] {
        match self {
            EventType::Added => br#"{"type":"ADDED","object":"#,
            EventType::Modified => br#"{"type":"MODIFIED","object":"#,
            EventType::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

const FRAME_TAIL: &[u8] = b"}\n";
const METADATA_HEAD: &[u8] = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;

/// What selectors look at, taken out of the object once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facets {
    /// `metadata.labels`.
    pub(crate) labels: BTreeMap<String, String>,
    /// Values of the resource's selectable fields, in the order of its table row.
    pub(crate) fields: Vec<String>,
    /// What no other object of the resource may have.
    pub(crate) claims: BTreeSet<Claim>,
}

impl Facets {
    fn of(resource: &Resource, object: &Value) -> Facets {
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let fields = resource
            .fields
            .iter()
            .map(|field| field.value_in(object))
            .collect();
        Facets {
            labels,
            fields,
            claims: resource.claims(object),
        }
    }
}

/// An encoded object that has no revision yet.
#[derive(Debug)]
pub(crate) struct Draft {
    head: Vec<u8>,
    tail: Vec<u8>,
    places: Places,
    facets: Arc<Facets>,
}

/// Where the metadata is in an encoded object.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// Where `"metadata"` starts in the head: what list items begin with.
    body_at: usize,
    /// How many bytes of the tail belong to it.
    metadata_len: usize,
}

impl Draft {
    /// Encodes an object; its `resourceVersion` is left out, `kind` and `apiVersion` are the
    /// resource's.
    pub(crate) fn new(resource: &Resource, object: &Value) -> Draft {
        let mut head = Vec::with_capacity(96);
        head.extend_from_slice(b"{\"kind\":");
        write(&mut head, &resource.kind);
        head.extend_from_slice(b",\"apiVersion\":");
        write(&mut head, &resource.api_version());
        head.push(b',');
        let body_at = head.len();
        head.extend_from_slice(br#""metadata":{"resourceVersion":""#);

        let mut tail = Vec::with_capacity(1024);
        tail.push(b'"');
        let empty = Map::new();
        let metadata = object
            .get("metadata")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        write_members(&mut tail, metadata, &["resourceVersion"]);
        tail.push(b'}');
        let metadata_len = tail.len();
        if let Some(object) = object.as_object() {
            write_members(&mut tail, object, &["kind", "apiVersion", "metadata"]);
        }
        tail.push(b'}');
        Draft {
            head,
            tail,
            places: Places {
                body_at,
                metadata_len,
            },
            facets: Arc::new(Facets::of(resource, object)),
        }
    }

    /// Size of the stored JSON in bytes, without the digits of its revision.
    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// What the object has that no other one may have.
    pub(super) fn claims(&self) -> &BTreeSet<Claim> {
        &self.facets.claims
    }

    /// Closes the gap.
    pub(crate) fn seal(self, key: Key, revision: u64, event: EventType) -> Object {
        Object::assemble(
            key,
            revision,
            event,
            &self.head,
            &self.tail,
            self.places,
            self.facets,
        )
    }
}

fn write<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    #[expect(
        clippy::expect_used,
        reason = "JSON values and strings always encode into memory"
    )]
    serde_json::to_writer(out, value).expect("encode JSON into memory");
}

fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>, except: &[&str]) {
    for (key, value) in members {
        if except.contains(&key.as_str()) {
            continue;
        }
        out.push(b',');
        write(out, key);
        out.push(b':');
        write(out, value);
    }
}

/// An object at one revision.
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) facets: Arc<Facets>,
    /// The whole line of the watch event that this write made.
    frame: Bytes,
    json_at: usize,
    body_at: usize,
    metadata_end: usize,
    revision_at: usize,
    revision_len: usize,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Object {
    fn assemble(
        key: Key,
        revision: u64,
        event: EventType,
        head: &[u8],
        tail: &[u8],
        places: Places,
        facets: Arc<Facets>,
    ) -> Object {
        let digits = revision.to_string();
        let prefix = event.head();
        let length = prefix.len() + head.len() + digits.len() + tail.len() + FRAME_TAIL.len();
        let mut frame = Vec::with_capacity(length);
        frame.extend_from_slice(prefix);
        frame.extend_from_slice(head);
        frame.extend_from_slice(digits.as_bytes());
        frame.extend_from_slice(tail);
        frame.extend_from_slice(FRAME_TAIL);
        Object {
            key,
            revision,
            facets,
            frame: frame.into(),
            json_at: prefix.len(),
            body_at: prefix.len() + places.body_at,
            metadata_end: prefix.len() + head.len() + digits.len() + places.metadata_len,
            revision_at: prefix.len() + head.len(),
            revision_len: digits.len(),
        }
    }

    /// The object under the revision of its deletion, as DELETED events carry it.
    pub(crate) fn departed(&self, revision: u64) -> Object {
        let end = self.frame.len() - FRAME_TAIL.len();
        let tail_at = self.revision_at + self.revision_len;
        Object::assemble(
            self.key.clone(),
            revision,
            EventType::Deleted,
            &self.frame[self.json_at..self.revision_at],
            &self.frame[tail_at..end],
            Places {
                body_at: self.body_at - self.json_at,
                metadata_len: self.metadata_end - tail_at,
            },
            Arc::clone(&self.facets),
        )
    }

    /// The bytes that the object holds in memory, nearly.
    pub(crate) fn size(&self) -> usize {
        self.frame.len()
    }

    /// The object's JSON.
    pub(crate) fn json(&self) -> Bytes {
        self.frame
            .slice(self.json_at..self.frame.len() - FRAME_TAIL.len())
    }

    /// The object's JSON after `{` and without `kind` and `apiVersion`, which items of built-in
    /// lists do not carry.
    pub(crate) fn item_tail(&self) -> &[u8] {
        &self.frame[self.body_at..self.frame.len() - FRAME_TAIL.len()]
    }

    /// The line of a watch event; shared when the type is the one that this write had.
    pub(crate) fn frame(&self, event: EventType) -> Bytes {
        let prefix = event.head();
        if self.frame.starts_with(prefix) {
            return self.frame.clone();
        }
        let rest = &self.frame[self.json_at..];
        let mut frame = Vec::with_capacity(prefix.len() + rest.len());
        frame.extend_from_slice(prefix);
        frame.extend_from_slice(rest);
        frame.into()
    }

    /// The object's metadata as a `PartialObjectMetadata`, without a look at the rest of the object.
    pub(crate) fn metadata_json(&self) -> Bytes {
        self.metadata_between(b"", b"")
    }

    /// The line of a watch event with the object's metadata alone.
    pub(crate) fn metadata_frame(&self, event: EventType) -> Bytes {
        self.metadata_between(event.head(), FRAME_TAIL)
    }

    fn metadata_between(&self, before: &[u8], after: &[u8]) -> Bytes {
        let metadata = &self.frame[self.body_at..self.metadata_end];
        [before, METADATA_HEAD, metadata, b"}", after]
            .concat()
            .into()
    }

    /// The decoded object, a fresh copy.
    pub(crate) fn value(&self) -> Value {
        #[expect(
            clippy::expect_used,
            reason = "these bytes were encoded by this module"
        )]
        serde_json::from_slice(&self.json()).expect("decode what was encoded here")
    }
}

/// The line of a watch event for an object that is not the stored one (another version, metadata
/// only, a bookmark).
pub(crate) fn frame_of(kind: &str, object: &Value) -> Bytes {
    let mut frame = Vec::with_capacity(256);
    frame.extend_from_slice(b"{\"type\":");
    write(&mut frame, kind);
    frame.extend_from_slice(b",\"object\":");
    write(&mut frame, object);
    frame.extend_from_slice(FRAME_TAIL);
    frame.into()
}
