//! The answers of a real server as they are kept: one line each, so that a change can be read.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::scenario::folder;

/// A record.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recorded {
    /// Which version answered, `v1.34.2`.
    pub(super) kubernetes: String,
    /// On which day.
    #[serde(rename = "recorded")]
    _recorded: String,
    /// Masked answers by the names of their requests.
    pub(super) answers: BTreeMap<String, Value>,
}

impl Recorded {
    fn path() -> PathBuf {
        folder().join("answers.json")
    }

    pub(super) fn read() -> Recorded {
        serde_json::from_slice(&fs::read(Recorded::path()).unwrap()).unwrap()
    }

    pub(super) fn write(version: &str, answers: &BTreeMap<String, Value>) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a record is dated by the day on which it was made"
        )]
        let today = jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        let lines: Vec<String> = answers
            .iter()
            .map(|(id, answer)| format!("{}: {answer}", json!(id)))
            .collect();
        let text = format!(
            "{{\n\"kubernetes\": {},\n\"recorded\": \"{today}\",\n\"answers\": {{\n{}\n}}\n}}\n",
            json!(version),
            lines.join(",\n")
        );
        fs::write(Recorded::path(), text).unwrap();
    }
}
