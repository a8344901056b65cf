//! What is wrong with a request, in the form of FastAPI's answer 422.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All problems of a request, in the order of its members. It holds at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidRequest(pub(super) Vec<ValidationError>);

impl InvalidRequest {
    /// The problems.
    #[must_use]
    pub fn errors(&self) -> &[ValidationError] {
        &self.0
    }
}

/// One problem of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationError {
    /// Which rule is broken: `missing`, `extra_forbidden`, `string_type`, ….
    #[serde(rename = "type")]
    pub kind: String,
    /// Where: `["body", "pid"]`, `["query", "limit"]`.
    pub loc: Vec<LocPart>,
    /// For people.
    pub msg: String,
    /// What was found there. Of a missing member, the object that lacks it.
    pub input: Value,
    /// What was expected, where the rule has a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Map<String, Value>>,
}

impl fmt::Display for ValidationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in self.loc.iter().enumerate() {
            let separator = if at == 0 { "" } else { "." };
            write!(formatter, "{separator}{place}")?;
        }
        write!(formatter, ": {}", self.msg)
    }
}

/// A step of a path into a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LocPart {
    /// A part of the request, a member, or the name of an alternative.
    Name(String),
    /// An item of a list, from 0.
    Item(usize),
}

impl From<&str> for LocPart {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl fmt::Display for LocPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Item(at) => write!(formatter, "{at}"),
        }
    }
}
