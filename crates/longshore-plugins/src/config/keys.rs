//! The keys that the sections of a configuration may hold, recorded while a configuration is read: for the reference.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// From the root, as `plugins.k8s.default-cpus`. `NAME` stands for a name that the user chooses, `[]` for each element
    /// of a list.
    pub path: String,
    /// What the code does with its value.
    pub key_use: KeyUse,
}

/// What the code does with the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The key is read.
    Read {
        /// The values that it can have, in words.
        expected: &'static str,
        /// The default, as text; empty for none.
        default: String,
    },
    /// Upstream reads it, and it changes nothing here.
    Unsupported {
        /// What Longshore does instead.
        instead: String,
    },
}

/// A section without keys, which a recording reading enters where the document has none.
pub(super) fn nothing() -> Value {
    Value::Object(serde_json::Map::new())
}

/// As `1h30m`, which is how a configuration has it.
pub(super) fn duration_text(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (millis.into(), "ms"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let text: String = parts
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// As `name: value, other: value`.
pub(super) fn map_text<V>(map: &BTreeMap<String, V>, value_text: impl Fn(&V) -> String) -> String {
    let pairs = map.iter();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}: {}", value_text(value)))
        .collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_written_as_a_configuration_has_them() {
        for (seconds, text) in [(0, "0s"), (90, "1m30s"), (3600, "1h"), (180, "3m")] {
            assert_eq!(duration_text(Duration::from_secs(seconds)), text);
        }
        assert_eq!(duration_text(Duration::from_millis(1_500)), "1s500ms");
        let map = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(map_text(&map, ToString::to_string), "a: 1, b: 2");
    }
}
