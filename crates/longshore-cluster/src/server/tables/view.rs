//! One object as the printers read it.

use jiff::Timestamp;
use serde_json::Value;

use super::age;

/// What an empty cell says.
pub(super) const NONE: &str = "<none>";

/// An object, and the time at which its table row is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> View<'a> {
    /// A string, empty when it is missing.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    /// A string, or what stands for a missing one.
    pub(super) fn text_or(&self, pointer: &str, missing: &str) -> Value {
        match self.text(pointer) {
            "" => missing.into(),
            text => text.into(),
        }
    }

    /// A whole number, 0 when it is missing.
    pub(super) fn number(&self, pointer: &str) -> i64 {
        self.object
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.object
            .pointer(pointer)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }

    /// The items of a list, none when it is missing.
    pub(super) fn items(&self, pointer: &str) -> &'a [Value] {
        self.object
            .pointer(pointer)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// How many members an object has.
    pub(super) fn n_members(&self, pointer: &str) -> usize {
        self.object
            .pointer(pointer)
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len)
    }

    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    /// Time since the object was made.
    pub(super) fn age(&self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    /// Time since a time stamp.
    pub(super) fn since(&self, pointer: &str) -> String {
        self.since_text(self.text(pointer))
    }

    /// Time since a time stamp as text.
    pub(super) fn since_text(&self, time: &str) -> String {
        match time.parse() {
            Ok(time) => age::between(time, self.now),
            Err(_) => "<unknown>".to_owned(),
        }
    }

    pub(super) fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    pub(super) fn is_deleting(&self) -> bool {
        !self.text("/metadata/deletionTimestamp").is_empty()
    }

    /// Whether a condition of the status is `True`.
    pub(super) fn is_condition_true(&self, condition: &str) -> bool {
        self.items("/status/conditions")
            .iter()
            .any(|found| found["type"] == condition && found["status"] == "True")
    }

    /// `name=value` pairs of labels, or of a selector of labels.
    pub(super) fn labels(&self, pointer: &str) -> Value {
        let labels = self.object.pointer(pointer).and_then(Value::as_object);
        let pairs = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
        or_none(join(pairs))
    }

    /// One member of each item of a list.
    pub(super) fn each(&self, pointer: &str, member: &str) -> Value {
        let texts = self.items(pointer).iter();
        join(texts.map(|item| item[member].as_str().unwrap_or("").to_owned())).into()
    }
}

/// Texts with commas between them.
pub(super) fn join(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// The text, or what an empty cell says.
pub(super) fn or_none(text: String) -> Value {
    if text.is_empty() {
        NONE.into()
    } else {
        text.into()
    }
}
