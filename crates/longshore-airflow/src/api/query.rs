//! Queries: the parameters behind the `?` of a request, read by the kinds of their schema.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    schema::{Schema, ValueKind},
    time::UtcDateTime,
    words::{DagRunState, TaskInstanceState},
};

/// The object of a query: each parameter that the schema names, in its kind where the text can be read so, else as
/// the text, which the check then refuses. Of a parameter that is repeated the last one counts, unless it is a list.
pub(super) fn to_object(schema: &Schema, query: &[(String, String)]) -> Value {
    let mut object = Map::new();
    for member in schema.members {
        let of_member = query.iter().filter(|(name, _)| name == member.name);
        let mut texts = of_member.map(|(_, text)| text.as_str()).peekable();
        if texts.peek().is_none() {
            continue;
        }
        let kind = without_null(&member.kind);
        let value = if let ValueKind::List(item) = kind {
            texts.map(|text| scalar(item, text)).collect()
        } else {
            scalar(kind, texts.last().unwrap_or_default())
        };
        object.insert(member.name.to_owned(), value);
    }
    Value::Object(object)
}

fn without_null(kind: &ValueKind) -> &ValueKind {
    if let ValueKind::Nullable(kind) = kind {
        kind
    } else {
        kind
    }
}

fn scalar(kind: &ValueKind, text: &str) -> Value {
    let read = match kind {
        ValueKind::Integer | ValueKind::Between(..) => {
            text.trim().parse::<i64>().ok().map(Value::from)
        }
        ValueKind::Boolean => boolean(text).map(Value::from),
        ValueKind::Json
        | ValueKind::Text
        | ValueKind::TextUpTo(_)
        | ValueKind::Number
        | ValueKind::Instant
        | ValueKind::Duration
        | ValueKind::Uuid
        | ValueKind::Map
        | ValueKind::Words(_)
        | ValueKind::List(_)
        | ValueKind::SomeOf(_)
        | ValueKind::Nullable(_)
        | ValueKind::Either(..)
        | ValueKind::Pair(..)
        | ValueKind::Object(_)
        | ValueKind::ByState(_) => None,
    };
    read.unwrap_or_else(|| text.into())
}

/// The words that Pydantic takes for yes and no.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

/// Which asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssetSelector {
    /// The active one of this name.
    Name(String),
    /// The active one of this address.
    Uri(String),
}

/// Which asset events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    /// Name of the asset, or of the alias.
    #[serde(default)]
    pub name: Option<String>,
    /// Address of the asset.
    #[serde(default)]
    pub uri: Option<String>,
    /// Not before.
    #[serde(default)]
    pub after: Option<UtcDateTime>,
    /// Not after.
    #[serde(default)]
    pub before: Option<UtcDateTime>,
    /// Oldest first.
    #[serde(default = "yes")]
    pub ascending: bool,
    /// At most so many.
    #[serde(default)]
    pub limit: Option<i64>,
}

fn yes() -> bool {
    true
}

fn unmapped() -> i32 {
    -1
}

fn page() -> u32 {
    1_000
}

/// Which runs to count. An empty list is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFilter {
    /// Of this DAG.
    pub dag_id: String,
    /// With one of these logical dates.
    #[serde(default)]
    pub logical_dates: Option<Vec<UtcDateTime>>,
    /// With one of these ids.
    #[serde(default)]
    pub run_ids: Option<Vec<String>>,
    /// In one of these states.
    #[serde(default)]
    pub states: Option<Vec<String>>,
}

/// Which earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousRunQuery {
    /// Of this DAG.
    pub dag_id: String,
    /// The last one before this logical date.
    pub logical_date: UtcDateTime,
    /// In this state only.
    #[serde(default)]
    pub state: Option<DagRunState>,
}

/// Which task instances. An empty list is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInstanceFilter {
    /// Of this DAG.
    pub dag_id: String,
    /// With this map index.
    #[serde(default)]
    pub map_index: Option<i32>,
    /// Of one of these tasks.
    #[serde(default)]
    pub task_ids: Option<Vec<String>>,
    /// In this task group.
    #[serde(default)]
    pub task_group_id: Option<String>,
    /// Of runs with one of these logical dates.
    #[serde(default)]
    pub logical_dates: Option<Vec<UtcDateTime>>,
    /// Of one of these runs.
    #[serde(default)]
    pub run_ids: Option<Vec<String>>,
    /// In one of these states; `null` is a state, too. Only when they are counted.
    #[serde(default)]
    pub states: Option<Vec<String>>,
}

/// Which earlier instance of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousTaskInstanceQuery {
    /// Before this logical date.
    #[serde(default)]
    pub logical_date: Option<UtcDateTime>,
    /// With this map index.
    #[serde(default = "unmapped")]
    pub map_index: i32,
    /// In this state only.
    #[serde(default)]
    pub state: Option<TaskInstanceState>,
}

/// Which page of the keys of variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableKeysQuery {
    /// They begin with this.
    #[serde(default)]
    pub prefix: Option<String>,
    /// At most so many, 1 to 10,000.
    #[serde(default = "page")]
    pub limit: u32,
    /// After so many.
    #[serde(default)]
    pub offset: u64,
}

/// Which value of an XCom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XComQuery {
    /// Of this map index, unless there is an offset.
    #[serde(default = "unmapped")]
    pub map_index: i32,
    /// Also of earlier runs.
    #[serde(default)]
    pub include_prior_dates: bool,
    /// The value at this place of the order by map index; a negative one counts from the end.
    #[serde(default)]
    pub offset: Option<i64>,
}

/// How an XCom is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetXComQuery {
    /// Of this map index.
    #[serde(default = "unmapped")]
    pub map_index: i32,
    /// Whether it is the result of the DAG.
    #[serde(default)]
    pub dag_result: bool,
    /// How many task instances a downstream task is to have, one for each item of the value.
    #[serde(default)]
    pub mapped_length: Option<i64>,
}

/// Which values of an XCom: a slice of Python, in the order of the map indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceQuery {
    /// From this place on; a negative one counts from the end.
    pub start: Option<i64>,
    /// Before this place; a negative one counts from the end.
    pub stop: Option<i64>,
    /// Every so many; negative: backwards. Zero counts as 1.
    pub step: Option<i64>,
    /// Also of earlier runs.
    pub include_prior_dates: bool,
}

impl SliceQuery {
    /// The places that the slice takes of so many values, in its order: Python's `range(n)[start:stop:step]`.
    pub fn places(&self, n: usize) -> impl Iterator<Item = usize> + use<> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let step = match self.step {
            None | Some(0) => 1,
            Some(step) => step,
        };
        let (lowest, highest) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let clamp = |place: i64| {
            let place = if place < 0 {
                place.saturating_add(n)
            } else {
                place
            };
            place.clamp(lowest, highest)
        };
        let (first, end) = if step > 0 {
            (lowest, highest)
        } else {
            (highest, lowest)
        };
        let start = self.start.map_or(first, clamp);
        let stop = self.stop.map_or(end, clamp);
        let places = std::iter::successors(Some(start), move |place| place.checked_add(step));
        let is_inside = move |place: &i64| {
            if step > 0 {
                *place < stop
            } else {
                *place > stop
            }
        };
        places
            .take_while(is_inside)
            .filter_map(|place| usize::try_from(place).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::schemas;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        query.iter().map(owned).collect()
    }

    #[test]
    fn parameters_are_read_by_their_kind() {
        let query = pairs(&[
            ("map_index", "3"),
            ("map_index", "4"),
            ("include_prior_dates", "True"),
            ("offset", "-1"),
            ("other", "x"),
        ]);
        assert_eq!(
            to_object(&schemas::GET_XCOM, &query),
            json!({"map_index": 4, "include_prior_dates": true, "offset": -1})
        );
        let query = pairs(&[("dag_id", "7"), ("states", "null"), ("states", "failed")]);
        assert_eq!(
            to_object(&schemas::COUNT_RUNS, &query),
            json!({"dag_id": "7", "states": ["null", "failed"]})
        );
        let query = pairs(&[("map_index", "x"), ("include_prior_dates", "perhaps")]);
        assert_eq!(
            to_object(&schemas::GET_XCOM, &query),
            json!({"map_index": "x", "include_prior_dates": "perhaps"})
        );
    }

    #[test]
    fn a_slice_is_that_of_python() {
        // Each expectation is what Python's `list(range(5))[start:stop:step]` gives.
        for (start, stop, step, expected) in [
            (None, None, None, vec![0, 1, 2, 3, 4]),
            (Some(1), Some(3), None, vec![1, 2]),
            (Some(-2), None, None, vec![3, 4]),
            (None, Some(-2), None, vec![0, 1, 2]),
            (None, None, Some(-1), vec![4, 3, 2, 1, 0]),
            (Some(3), Some(0), Some(-2), vec![3, 1]),
            (Some(-1), Some(-4), Some(-1), vec![4, 3, 2]),
            (Some(-9), Some(9), Some(2), vec![0, 2, 4]),
            (Some(9), Some(-9), Some(-2), vec![4, 2, 0]),
            (Some(3), Some(1), None, vec![]),
            (Some(9), None, None, vec![]),
            (Some(i64::MIN), Some(i64::MAX), Some(i64::MAX), vec![0]),
        ] {
            let slice = SliceQuery {
                start,
                stop,
                step,
                include_prior_dates: false,
            };
            let places: Vec<usize> = slice.places(5).collect();
            assert_eq!(places, expected, "{start:?}:{stop:?}:{step:?}");
            assert_eq!(slice.places(0).count(), 0);
        }
    }
}
