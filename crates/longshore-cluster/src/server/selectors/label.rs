//! Label selectors: `a=b, c!=d, e in (f,g), h notin (i), j, !k`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::server::error::{ApiError, Result};
use crate::server::meta;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

/// Requirements that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses a selector; the empty text selects everything.
    pub(crate) fn parse(text: &str) -> Result<LabelSelector> {
        split_outside_parentheses(text)
            .into_iter()
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| {
                parse_requirement(part).ok_or_else(|| {
                    let message = format!("unable to parse requirement: found {part:?}");
                    ApiError::bad_request(message)
                })
            })
            .collect::<Result<_>>()
            .map(LabelSelector)
    }

    /// Reads a selector as objects carry it, `matchLabels` and `matchExpressions`; none when an
    /// operator is unknown.
    pub(crate) fn of(selector: &Value) -> Option<LabelSelector> {
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        let equal = labels.into_iter().flatten().map(|(key, value)| {
            let value = value.as_str().unwrap_or("").to_owned();
            Some(Requirement {
                key: key.clone(),
                operator: Operator::In(BTreeSet::from([value])),
            })
        });
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        let others = expressions.into_iter().flatten().map(|expression| {
            let values = expression.get("values").and_then(Value::as_array);
            let values = values.into_iter().flatten().filter_map(Value::as_str);
            let values: BTreeSet<String> = values.map(str::to_owned).collect();
            let operator = match meta::text(expression, "/operator") {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Absent,
                _ => return None,
            };
            let key = meta::text(expression, "/key").to_owned();
            Some(Requirement { key, operator })
        });
        equal
            .chain(others)
            .collect::<Option<_>>()
            .map(LabelSelector)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels satisfy every requirement.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.operator {
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            }
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    let requirement = |key: &str, operator| {
        let key = key.trim();
        is_key(key).then(|| Requirement {
            key: key.to_owned(),
            operator,
        })
    };
    let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
    if let Some(key) = part.strip_prefix('!') {
        return requirement(key, Operator::Absent);
    }
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => requirement(key, Operator::In(values)),
            "notin" => requirement(key, Operator::NotIn(values)),
            _ => None,
        };
    }
    for (sign, is_equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = part.split_once(sign) {
            let operator = if is_equal {
                Operator::In(one(value))
            } else {
                Operator::NotIn(one(value))
            };
            return is_value(value.trim())
                .then(|| requirement(key, operator))
                .flatten();
        }
    }
    requirement(part, Operator::Exists)
}

fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    !key.is_empty() && key.bytes().all(is_allowed)
}

fn is_value(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select_what_kubernetes_selects() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", ""), ("example.com/x", "1")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        for (selector, is_match) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=", true),
            ("app = db", false),
            ("app!=db", true),
            ("missing!=db", true),
            ("app in (db, web),tier", true),
            ("app notin (web)", false),
            ("missing notin (web)", true),
            ("missing in (web)", false),
            ("!missing, example.com/x", true),
            ("!app", false),
        ] {
            let parsed = LabelSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&labels), is_match, "{selector}");
        }
    }

    #[test]
    fn selectors_of_objects_are_the_same() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let of = |expression: Value| json!({"matchExpressions": [expression]});
        for (selector, is_match) in [
            (Value::Null, true),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (
                of(json!({"key": "app", "operator": "In", "values": ["db", "web"]})),
                true,
            ),
            (
                of(json!({"key": "x", "operator": "NotIn", "values": ["db"]})),
                true,
            ),
            (of(json!({"key": "x", "operator": "Exists"})), false),
            (of(json!({"key": "x", "operator": "DoesNotExist"})), true),
        ] {
            let read = LabelSelector::of(&selector).unwrap();
            assert_eq!(read.matches(&labels), is_match, "{selector}");
        }
        let unknown = of(json!({"key": "app", "operator": "Gt"}));
        assert_eq!(LabelSelector::of(&unknown), None);
    }

    #[test]
    fn broken_selectors_are_refused() {
        for selector in ["app=(x", "=x", "app near (x)", "a b", "app=we b", "app>"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }
}
