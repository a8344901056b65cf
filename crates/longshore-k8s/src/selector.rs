//! Label selectors: as objects carry them (`matchLabels`, `matchExpressions`) and as text (`a=b,c in (d,e)`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use crate::names;

mod object;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use object::{Fault, faults};
pub use words::faults_at;

/// Requirements that must all hold. The one without requirements selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// What the labels of a selected object must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

/// How a requirement relates a label to the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has the one value.
    Equals,
    /// There is no such label, or it has another value.
    NotEquals,
    /// The label has one of the values.
    In,
    /// There is no such label, or it has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer above the one value.
    GreaterThan,
    /// The label is an integer below the one value.
    LessThan,
}

/// A selector that API servers refuse, and why in their words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The object has another shape.
    #[error("not a label selector: {0}")]
    Shape(String),
    /// The operator is unknown.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// The text does not follow the grammar: what was found, and what is expected.
    #[error("{0}")]
    Text(String),
    /// A key or a value that no label can have, or values that do not fit the operator.
    #[error("{place}: Invalid value: {found}: {why}")]
    Requirement {
        /// The place in the requirement.
        place: String,
        /// The key or the values, as JSON.
        found: String,
        /// What is wrong with them.
        why: String,
    },
}

impl Operator {
    /// The operator of an entry of `matchExpressions`. Those of nodes also know `Gt` and `Lt`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::GreaterThan,
            "Lt" => Self::LessThan,
            _ => return None,
        })
    }

    /// What is wrong with these values: the place, the value, and the reason.
    fn refuses(self, values: &BTreeSet<String>) -> Option<InvalidSelector> {
        let refused = |place: &str, found: String, why: &str| {
            Some(InvalidSelector::Requirement {
                place: place.to_owned(),
                found,
                why: why.to_owned(),
            })
        };
        let all: Vec<&String> = values.iter().collect();
        let refused_all = |why: &str| refused("values", format!("{all:?}"), why);
        match self {
            Self::In | Self::NotIn if values.is_empty() => {
                refused_all("for 'in', 'notin' operators, values set can't be empty")
            }
            Self::Equals | Self::NotEquals if values.len() != 1 => {
                refused_all("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist if !values.is_empty() => {
                refused_all("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan if values.len() != 1 => {
                refused_all("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            Self::GreaterThan | Self::LessThan => {
                let wrong = values.iter().find(|value| integer(value).is_none())?;
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                refused("values[0]", format!("{wrong:?}"), why)
            }
            Self::In
            | Self::NotIn
            | Self::Equals
            | Self::NotEquals
            | Self::Exists
            | Self::DoesNotExist => None,
        }
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl Requirement {
    /// A requirement (upstream: `NewRequirement`).
    ///
    /// # Errors
    /// The key or a value cannot be that of a label, or the values do not fit the operator.
    pub fn new(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = String>,
    ) -> Result<Self, InvalidSelector> {
        let (key, values): (_, BTreeSet<String>) = (key.into(), values.into_iter().collect());
        require("key", &key, &names::key_violations(&key))?;
        if let Some(invalid) = operator.refuses(&values) {
            return Err(invalid);
        }
        for (n, value) in values.iter().enumerate() {
            let place = format!("values[{n}][{key}]");
            require(&place, value, &names::label_value_violations(value))?;
        }
        Ok(Self {
            key,
            operator,
            values,
        })
    }

    /// The key of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The values, one of which the label must have; `None` where an object may be selected without any of them.
    pub fn needed_values(&self) -> Option<&BTreeSet<String>> {
        match self.operator {
            Operator::Equals | Operator::In => Some(&self.values),
            Operator::NotEquals
            | Operator::NotIn
            | Operator::Exists
            | Operator::DoesNotExist
            | Operator::GreaterThan
            | Operator::LessThan => None,
        }
    }

    /// Whether a label of this key with this value, or none, is as required.
    pub fn allows(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::Equals | Operator::In => value.is_some_and(|it| self.values.contains(it)),
            Operator::NotEquals | Operator::NotIn => {
                value.is_none_or(|it| !self.values.contains(it))
            }
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compared(value).is_some_and(|it| it.is_gt()),
            Operator::LessThan => self.compared(value).is_some_and(|it| it.is_lt()),
        }
    }

    fn compared(&self, value: Option<&str>) -> Option<std::cmp::Ordering> {
        let bound = integer(self.values.first()?)?;
        Some(integer(value?)?.cmp(&bound))
    }
}

fn require(place: &str, text: &str, violations: &[String]) -> Result<(), InvalidSelector> {
    if violations.is_empty() {
        return Ok(());
    }
    Err(InvalidSelector::Requirement {
        place: place.to_owned(),
        found: format!("{text:?}"),
        why: violations.join("; "),
    })
}

impl Selector {
    /// Reads a selector as text; the empty one selects everything.
    ///
    /// # Errors
    /// Upstream's `labels.Parse` refuses the text.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        text::parse(text).map(Self::sorted)
    }

    /// Reads a selector as objects carry it; the empty one selects everything.
    ///
    /// # Errors
    /// Upstream's `LabelSelectorAsSelector` refuses the object.
    pub fn read(selector: &Value) -> Result<Self, InvalidSelector> {
        object::read(selector).map(Self::sorted)
    }

    /// The selector of objects that have all these labels, as Services and ReplicationControllers carry it. Like
    /// upstream, this does not ask whether an object can have them.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let equal = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: BTreeSet::from([value.clone()]),
        };
        Self(labels.iter().map(equal).collect())
    }

    fn sorted(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Self(requirements)
    }

    /// Whether the selector has no requirement.
    pub fn selects_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The requirements, by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Whether labels are as required.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.allows(|key| labels.get(key).map(String::as_str))
    }

    /// Whether the labels of an object are as required.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.allows(|key| {
            labels
                .get(key)
                .map(|value| value.as_str().unwrap_or_default())
        })
    }

    fn allows<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let mut requirements = self.0.iter();
        requirements.all(|it| it.allows(value_of(&it.key)))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, values, .. } = self;
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// The selector as text, as in the query of a list.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}
