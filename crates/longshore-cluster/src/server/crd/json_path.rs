//! The part of kubectl's JSON paths that definitions use: `.spec.items[*].name`,
//! `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels.app\.kubernetes\.io/name`.

use serde_json::Value;

use crate::server::meta;

/// A compiled path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    /// Negative ones count from the end.
    Item(i64),
    Everything,
    Where {
        member: Vec<String>,
        is_equal: bool,
        value: String,
    },
    /// Items that have this member.
    Having(Vec<String>),
}

/// A path that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a step of a JSON path, found {rest:?}")]
pub(crate) struct BadPath {
    rest: String,
}

impl JsonPath {
    /// Reads a path, with or without braces around it.
    pub(crate) fn parse(text: &str) -> Result<JsonPath, BadPath> {
        let trimmed = text.trim();
        let inner = trimmed
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let mut rest = inner.unwrap_or(trimmed);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        if rest.is_empty() {
            return Err(BadPath {
                rest: text.to_owned(),
            });
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = next_step(rest).ok_or_else(|| BadPath {
                rest: rest.to_owned(),
            })?;
            steps.push(step);
            rest = after;
        }
        Ok(JsonPath(steps))
    }

    /// Every value that the path leads to.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found
                .into_iter()
                .flat_map(|value| step.take(value))
                .collect();
        }
        found
    }

    /// The members of a path that has nothing but members.
    pub(crate) fn members(&self) -> Option<Vec<String>> {
        self.0
            .iter()
            .map(|step| match step {
                Step::Member(name) => Some(name.clone()),
                Step::Item(_) | Step::Everything | Step::Where { .. } | Step::Having(_) => None,
            })
            .collect()
    }
}

fn next_step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, rest) = split_bracket(rest)?;
        return Some((bracket(inner.trim())?, rest));
    }
    let text = text.strip_prefix('.')?;
    if let Some(rest) = text.strip_prefix('*') {
        return Some((Step::Everything, rest));
    }
    let (name, rest) = split_name(text);
    (!name.is_empty()).then_some((Step::Member(name), rest))
}

/// A name up to the next unescaped dot or bracket.
fn split_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '.' | '[' if !is_escaped => return (name, &text[at..]),
            _ => name.push(character),
        }
        is_escaped = false;
    }
    (name, "")
}

/// The inside of a bracket; brackets in quotes do not end it.
fn split_bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, ']') => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::Everything);
    }
    if let Some(name) = unquote(inner) {
        return Some(Step::Member(name.to_owned()));
    }
    if let Some(condition) = inner.strip_prefix("?(") {
        return filter(condition.strip_suffix(')')?.trim());
    }
    inner.parse().ok().map(Step::Item)
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn filter(condition: &str) -> Option<Step> {
    let member = |text: &str| {
        JsonPath::parse(text.trim().strip_prefix('@')?)
            .ok()?
            .members()
    };
    for (sign, is_equal) in [("==", true), ("!=", false)] {
        if let Some((left, right)) = condition.split_once(sign) {
            let right = right.trim();
            return Some(Step::Where {
                member: member(left)?,
                is_equal,
                value: unquote(right).unwrap_or(right).to_owned(),
            });
        }
    }
    member(condition).map(Step::Having)
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Member(name) => value.get(name).into_iter().collect(),
            Step::Item(index) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let at = match usize::try_from(*index) {
                    Ok(at) => Some(at),
                    Err(_) => usize::try_from(index.unsigned_abs())
                        .ok()
                        .and_then(|back| items.len().checked_sub(back)),
                };
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Everything => children(value),
            Step::Where {
                member,
                is_equal,
                value: expected,
            } => {
                let fits = |item: &&Value| {
                    at(item, member).is_some_and(|it| (text_of(it) == *expected) == *is_equal)
                };
                children(value).into_iter().filter(fits).collect()
            }
            Step::Having(member) => {
                let has = |item: &&Value| at(item, member).is_some();
                children(value).into_iter().filter(has).collect()
            }
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Puts a value below a chain of members; maps on the way are made.
pub(crate) fn put(object: &mut Value, members: &[String], value: Value) {
    match members {
        [] => *object = value,
        [first, rest @ ..] => {
            let member = meta::members(object).entry(first.clone());
            put(member.or_insert(Value::Null), rest, value);
        }
    }
}

/// The value below a chain of members.
pub(crate) fn at<'a>(value: &'a Value, members: &[String]) -> Option<&'a Value> {
    members
        .iter()
        .try_fold(value, |value, name| value.get(name))
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "metadata": {"labels": {"app.io/name": "x"}},
            "spec": {"items": [{"name": "a"}, {"name": "b", "on": true}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
        });
        for (path, expected) in [
            (".spec.items[0].name", json!(["a"])),
            ("{.spec.items[-1].name}", json!(["b"])),
            ("$.spec.items[*].name", json!(["a", "b"])),
            (".spec.items[5].name", json!([])),
            (".spec.items[?(@.on==true)].name", json!(["b"])),
            (".spec.items[?(@.on)].name", json!(["b"])),
            (
                ".status.conditions[?(@.type=='Ready')].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type != \"Ready\")].status",
                json!(["False"]),
            ),
            (".metadata.labels.app\\.io/name", json!(["x"])),
            (".metadata.labels['app.io/name']", json!(["x"])),
            (".nowhere.to.go", json!([])),
        ] {
            let found = JsonPath::parse(path)
                .unwrap()
                .find(&object)
                .into_iter()
                .cloned();
            assert_eq!(Value::Array(found.collect()), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["", "spec", ".a..b", ".a[", ".a[x]", ".a[?(b)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
