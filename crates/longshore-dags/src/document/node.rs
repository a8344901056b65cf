//! A YAML document as a tree whose every part knows its place in the text.

use std::{collections::BTreeSet, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Options, Spanned};

/// Deepest nesting that is read.
pub(super) const MAX_DEPTH: usize = 64;
/// Nodes that aliases may add to those in the text.
const MAX_ALIASED_NODES: usize = 100_000;

/// A place in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// Byte in the text.
    pub(super) offset: usize,
    /// Bytes from there.
    pub(super) len: usize,
    /// Line, from 1.
    pub(super) line: usize,
    /// Character in the line, from 1.
    pub(super) column: usize,
}

/// A part of the document.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

/// What a part of the document is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text. A key may occur twice: see [`duplicates`].
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping, as text whatever it looks like.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Span,
}

impl Node {
    /// What it is, for a message.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("`{value}`"),
            Kind::Number(number) => format!("the number `{number}`"),
            Kind::Text(text) => format!("the text `{}`", shortened(text)),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// As JSON; the last one of a duplicate key counts.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(Self::to_json).collect(),
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.text.clone(), node.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// A text for a message: one line, not long.
pub(super) fn shortened(text: &str) -> String {
    shortened_to(text, 60)
}

/// A text for a message: one line of at most so many characters, without control characters.
pub(super) fn shortened_to(text: &str, longest: usize) -> String {
    let mut line = String::new();
    for c in text.chars().take(longest) {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    if text.chars().nth(longest).is_some() {
        line.push('…');
    }
    line
}

/// Reads a text that holds one YAML document.
///
/// A mapping with a key that occurs twice is read too, with both: only [`Error::DuplicateMappingKey`] of the first
/// such key is returned beside the tree.
pub(super) fn read(text: &str) -> Result<(Node, Option<Error>), Error> {
    match serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(node) => Ok((node, None)),
        Err(duplicate @ Error::DuplicateMappingKey { .. }) => {
            let options = options(DuplicateKeyPolicy::LastWins);
            let node = serde_saphyr::from_str_with_options(text, options)?;
            Ok((node, Some(duplicate)))
        }
        Err(error) => Err(error),
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED_NODES,
        },
        duplicate_keys: duplicate_keys,
        // `on`, `yes` and `n` are texts, as in YAML 1.2.
        strict_booleans: true,
        with_snippet: false,
    }
}

/// All keys that occur a second time in their mapping.
pub(super) fn duplicates(node: &Node) -> Vec<&Key> {
    let mut found = Vec::new();
    let mut next = vec![node];
    while let Some(node) = next.pop() {
        match &node.kind {
            Kind::List(items) => next.extend(items),
            Kind::Map(entries) => {
                let mut seen = BTreeSet::new();
                for (key, value) in entries {
                    if !seen.insert(&key.text) {
                        found.push(key);
                    }
                    next.push(value);
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => {}
        }
    }
    found
}

impl From<Location> for Span {
    fn from(location: Location) -> Self {
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            offset: number(location.span().byte_offset().unwrap_or(0)),
            len: number(location.span().byte_len().unwrap_or(0)),
            line: number(location.line()).max(1),
            column: number(location.column()).max(1),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Where a value is written, not where an alias stands for it: there it must be mended.
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self {
            kind: spanned.value,
            span: spanned.defined.into(),
        })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        // JSON has no infinity: as in the text then, and refused where a number is needed.
        Ok(Number::from_f64(value).map_or_else(|| Kind::Text(value.to_string()), Kind::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Kind, E> {
        Ok(Kind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element()? {
            nodes.push(node);
        }
        Ok(Kind::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key {
                text: key.value,
                span: key.defined.into(),
            };
            entries.push((key, map.next_value()?));
        }
        Ok(Kind::Map(entries))
    }
}
