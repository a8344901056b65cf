//! Field selectors: `status.phase=Running,metadata.name!=x`.

use crate::server::{
    error::{ApiError, Result},
    hub::Object,
    registry::Resource,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Name,
    Namespace,
    /// Position in the resource's fields.
    Field(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    source: Source,
    is_equal: bool,
    value: String,
}

/// Requirements that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Requirement>);

impl FieldSelector {
    /// Parses a selector; a field that the resource does not have is refused.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<FieldSelector> {
        let mut requirements = Vec::new();
        for part in split_unescaped(text).iter().filter(|part| !part.is_empty()) {
            let Some((label, is_equal, value)) = split_requirement(part) else {
                let message = format!("invalid selector: '{part}'; can't understand '{part}'");
                return Err(ApiError::bad_request(message));
            };
            let source = match label {
                "metadata.name" => Source::Name,
                "metadata.namespace" => Source::Namespace,
                _ => resource
                    .fields
                    .iter()
                    .position(|field| field.label == label)
                    .map_or_else(
                        || {
                            Err(ApiError::bad_request(format!(
                                "field label not supported: {label}"
                            )))
                        },
                        |index| Ok(Source::Field(index)),
                    )?,
            };
            requirements.push(Requirement {
                source,
                is_equal,
                value: unescape(value),
            });
        }
        Ok(FieldSelector(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `metadata.name=name`.
    pub(crate) fn require_name(&mut self, name: &str) {
        let value = name.to_owned();
        self.0.push(Requirement {
            source: Source::Name,
            is_equal: true,
            value,
        });
    }

    /// Whether an object satisfies every requirement.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|requirement| {
            let (namespace, name) = object
                .key
                .as_str()
                .split_once('/')
                .unwrap_or(("", object.key.as_str()));
            let value = match requirement.source {
                Source::Name => name,
                Source::Namespace => namespace,
                Source::Field(index) => object.facets.fields.get(index).map_or("", String::as_str),
            };
            (value == requirement.value) == requirement.is_equal
        })
    }
}

/// The name that every selected object has, where a selector demands one.
pub(crate) fn required_name(text: &str) -> Option<String> {
    let mut required = None;
    for part in split_unescaped(text).iter().filter(|part| !part.is_empty()) {
        let (label, is_equal, value) = split_requirement(part)?;
        if label == "metadata.name" && is_equal && required.is_none() {
            required = Some(unescape(value));
        }
    }
    required
}

/// The label, whether its value must be equal, and the value of a requirement.
fn split_requirement(part: &str) -> Option<(&str, bool, &str)> {
    [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find_map(|(sign, is_equal)| {
            part.split_once(sign)
                .map(|(label, value)| (label, is_equal, value))
        })
}

/// Splits at commas that no backslash precedes.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for character in text.chars() {
        if character == ',' && !is_escaped {
            parts.push(String::new());
            continue;
        }
        is_escaped = character == '\\' && !is_escaped;
        if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next()),
            other => out.push(other),
        }
    }
    out
}
