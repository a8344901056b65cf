//! Selectors as objects carry them: `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{InvalidSelector, Operator, Requirement};
use crate::names;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<WireExpression>>,
}

#[derive(Deserialize)]
struct WireExpression {
    #[serde(default)]
    key: String,
    #[serde(default)]
    operator: String,
    values: Option<Vec<String>>,
}

fn wire(selector: &Value) -> Result<Wire, InvalidSelector> {
    let wire = Option::<Wire>::deserialize(selector);
    let wire = wire.map_err(|error| InvalidSelector::Shape(error.to_string()))?;
    Ok(wire.unwrap_or_default())
}

/// The operator of an expression over labels: those of nodes know two more.
fn operator(word: &str) -> Option<Operator> {
    Operator::parse(word)
        .filter(|operator| !matches!(operator, Operator::GreaterThan | Operator::LessThan))
}

pub(super) fn read(selector: &Value) -> Result<Vec<Requirement>, InvalidSelector> {
    let wire = wire(selector)?;
    let labels = wire.match_labels.into_iter().flatten();
    let equal = labels.map(|(key, value)| Requirement::new(key, Operator::Equals, [value]));
    let expressions = wire.match_expressions.into_iter().flatten();
    let others = expressions.map(|expression| {
        let operator =
            operator(&expression.operator).ok_or(InvalidSelector::Operator(expression.operator))?;
        let values = expression.values.into_iter().flatten();
        Requirement::new(expression.key, operator, values)
    });
    equal.chain(others).collect()
}

/// One thing that is wrong with a selector. `at` is the place of an expression in `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The object has another shape; why.
    Shape(String),
    /// No label can have this key, or this value, of `matchLabels`.
    Label {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// No label can have this key.
    Key {
        /// The expression.
        at: usize,
        /// The key that was found.
        key: String,
    },
    /// The operator is unknown.
    Operator {
        /// The expression.
        at: usize,
        /// The operator that was found.
        operator: String,
    },
    /// The operator needs values, and there are none.
    ValuesMissing {
        /// The expression.
        at: usize,
        /// `In` or `NotIn`.
        operator: String,
    },
    /// The operator takes no values, and there are some.
    ValuesForbidden {
        /// The expression.
        at: usize,
        /// `Exists` or `DoesNotExist`.
        operator: String,
        /// The values that were found.
        values: Vec<String>,
    },
    /// No label can have this value.
    Value {
        /// The expression.
        at: usize,
        /// The place of the value.
        n: usize,
        /// The value that was found.
        value: String,
    },
}

/// All that makes API servers refuse a selector as objects carry it; nothing for `null`.
pub fn faults(selector: &Value) -> Vec<Fault> {
    let wire = match wire(selector) {
        Ok(wire) => wire,
        Err(InvalidSelector::Shape(why)) => return vec![Fault::Shape(why)],
        Err(other) => return vec![Fault::Shape(other.to_string())],
    };
    let labels = wire.match_labels.into_iter().flatten();
    let labels = labels.filter(|(key, value)| {
        !names::key_violations(key).is_empty() || !names::label_value_violations(value).is_empty()
    });
    let mut faults: Vec<Fault> = labels
        .map(|(key, value)| Fault::Label { key, value })
        .collect();
    let expressions = wire.match_expressions.into_iter().flatten();
    for (at, expression) in expressions.enumerate() {
        faults.extend(expression.faults(at));
    }
    faults
}

impl WireExpression {
    fn faults(self, at: usize) -> Vec<Fault> {
        let values = self.values.unwrap_or_default();
        let operator = self.operator;
        let mut faults = Vec::new();
        match (self::operator(&operator), values.is_empty()) {
            (None, _) => faults.push(Fault::Operator { at, operator }),
            (Some(Operator::In | Operator::NotIn), true) => {
                faults.push(Fault::ValuesMissing { at, operator });
            }
            (Some(Operator::Exists | Operator::DoesNotExist), false) => {
                let values = values.clone();
                faults.push(Fault::ValuesForbidden {
                    at,
                    operator,
                    values,
                });
            }
            (Some(_), _) => {}
        }
        let key = self.key;
        if !names::key_violations(&key).is_empty() {
            faults.push(Fault::Key { at, key });
        }
        let values = values.into_iter().enumerate();
        let impossible = values.filter(|(_, it)| !names::label_value_violations(it).is_empty());
        faults.extend(impossible.map(|(n, value)| Fault::Value { at, n, value }));
        faults
    }
}
