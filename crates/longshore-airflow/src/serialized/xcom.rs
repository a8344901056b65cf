//! What a mapped task maps over: values in the document, and results of other tasks (spec section 8).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    error::Unreadable,
    record::{Json, Members, record},
    value::Var,
};
use crate::pointer::Place;

record! {
    /// A value of one task.
    pub struct PlainRef {
        /// The task.
        "task_id" needs task_id: String,
        /// Which of its values: `return_value`.
        "key" needs key: String,
    }
}

record! {
    /// A value to which functions are applied, item by item, in the worker.
    pub struct MapRef {
        /// The value.
        "arg" needs arg: Box<XcomRef>,
        /// Sources of the functions.
        "callables" may callables: Vec<Value>,
    }
}

record! {
    /// Several values: behind one another, or side by side (then a `fillvalue` may be in `rest`).
    pub struct ManyRef {
        /// They.
        "args" needs args: Vec<XcomRef>,
    }
}

/// A reference to what other tasks return.
#[derive(Clone, Debug, PartialEq)]
pub enum XcomRef {
    /// A value of one task.
    Plain(PlainRef),
    /// One with functions applied.
    Map(MapRef),
    /// Several behind one another.
    Concat(ManyRef),
    /// Several side by side.
    Zip(ManyRef),
}

impl Json for XcomRef {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        // The type stays a member of `rest`, and so is written again.
        let kind = value.get("type").cloned();
        Ok(match kind.as_ref().map(|kind| kind.as_str()) {
            None => Self::Plain(Json::read(value, at)?),
            Some(Some("map")) => Self::Map(Json::read(value, at)?),
            Some(Some("concat")) => Self::Concat(Json::read(value, at)?),
            Some(Some("zip")) => Self::Zip(Json::read(value, at)?),
            Some(_) => {
                let expected = "`map`, `concat` or `zip`";
                return Err(Unreadable::form(
                    &at.member("type"),
                    expected,
                    &value["type"],
                ));
            }
        })
    }

    fn write(&self) -> Value {
        match self {
            Self::Plain(plain) => plain.write(),
            Self::Map(map) => map.write(),
            Self::Concat(many) | Self::Zip(many) => many.write(),
        }
    }
}

impl XcomRef {
    /// The tasks whose values it needs, with the keys of these.
    pub fn tasks(&self) -> Vec<&PlainRef> {
        match self {
            Self::Plain(plain) => vec![plain],
            Self::Map(map) => map.arg.tasks(),
            Self::Concat(many) | Self::Zip(many) => {
                many.args.iter().flat_map(Self::tasks).collect()
            }
        }
    }

    /// How many items it has, where `of_task` knows how many the value of a task has: the stored `mapped_length` of its
    /// return value, for a mapped task the number of its instances that returned something. `None` until all are known.
    pub fn length(&self, of_task: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
        match self {
            // The key does not matter: only the length of the whole return value is recorded.
            Self::Plain(plain) => of_task(&plain.task_id),
            Self::Map(map) => map.arg.length(of_task),
            Self::Concat(many) => {
                let lengths = many.args.iter().map(|arg| arg.length(of_task));
                lengths.sum()
            }
            Self::Zip(many) => {
                let lengths = many.args.iter().map(|arg| arg.length(of_task));
                let lengths: Vec<u64> = lengths.collect::<Option<_>>()?;
                // With something to fill in, the longest decides.
                if many.rest.contains_key("fillvalue") {
                    lengths.into_iter().max()
                } else {
                    lengths.into_iter().min()
                }
            }
        }
    }
}

/// What a task or a task group is mapped over.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpandInput {
    /// What.
    pub over: Over,
    /// Members that Longshore does not know.
    pub rest: Map<String, Value>,
}

/// The two ways to map.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// `expand(a=…, b=…)`: each combination of one item of each.
    Product(BTreeMap<String, Var>),
    /// `expand_kwargs(…)`: one instance for each set of arguments.
    Each(Var),
}

const PRODUCT: &str = "dict-of-lists";
const EACH: &str = "list-of-dicts";

impl Json for ExpandInput {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let mut members = Members::of(value, at)?;
        let kind: String = members.needs("type")?;
        let value: Var = members.needs("value")?;
        let place = at.member("value");
        let over = match (kind.as_str(), value) {
            (PRODUCT, Var::Dict(arguments)) => {
                if let Some((name, other)) = arguments.iter().find(|(_, value)| !can_map(value)) {
                    let (var, expected) = (place.member("__var"), "something to map over");
                    return Err(Unreadable::form(
                        &var.member(name),
                        expected,
                        &other.write(),
                    ));
                }
                Over::Product(arguments)
            }
            (EACH, value) if can_map(&value) => Over::Each(value),
            (PRODUCT, other) => {
                let expected = "a dict of what to map over";
                return Err(Unreadable::form(&place, expected, &other.write()));
            }
            (EACH, other) => {
                let expected = "a list of arguments, or a reference to one";
                return Err(Unreadable::form(&place, expected, &other.write()));
            }
            (_, _) => {
                let expected = "`dict-of-lists` or `list-of-dicts`";
                return Err(Unreadable::form(&at.member("type"), expected, &kind.into()));
            }
        };
        let rest = members.rest();
        Ok(Self { over, rest })
    }

    fn write(&self) -> Value {
        let mut map = self.rest.clone();
        let (kind, value) = match &self.over {
            Over::Product(arguments) => (PRODUCT, Var::Dict(arguments.clone()).write()),
            Over::Each(value) => (EACH, value.write()),
        };
        map.insert("type".to_owned(), kind.into());
        map.insert("value".to_owned(), value);
        map.into()
    }
}

fn can_map(value: &Var) -> bool {
    value.length().is_some() || reference(value).is_some()
}

fn reference(value: &Var) -> Option<&XcomRef> {
    match value {
        Var::XcomRef(reference) => Some(reference),
        Var::Null
        | Var::Bool(_)
        | Var::Number(_)
        | Var::Text(_)
        | Var::List(_)
        | Var::Dict(_)
        | Var::Set(_)
        | Var::Tuple(_)
        | Var::Datetime(_)
        | Var::Timedelta(_)
        | Var::Timezone(_)
        | Var::Relativedelta(_)
        | Var::Pod(_)
        | Var::Asset(_)
        | Var::Param(_)
        | Var::NotSet
        | Var::Object(_) => None,
    }
}

impl ExpandInput {
    /// The tasks whose values decide how many instances there are: the *mapping sources*.
    pub fn sources(&self) -> Vec<&PlainRef> {
        let references: Vec<&XcomRef> = match &self.over {
            Over::Product(arguments) => arguments.values().filter_map(reference).collect(),
            Over::Each(Var::List(items)) => items.iter().filter_map(reference).collect(),
            Over::Each(value) => reference(value).into_iter().collect(),
        };
        references.into_iter().flat_map(XcomRef::tasks).collect()
    }

    /// How many instances there are (spec section 8); `of_task` as for [`XcomRef::length`]. `None` until all lengths are
    /// known. It may exceed the limit `[core] max_map_length`.
    pub fn length(&self, of_task: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
        let of = |value: &Var| match reference(value) {
            Some(reference) => reference.length(of_task),
            None => value.length(),
        };
        match &self.over {
            Over::Product(arguments) if arguments.is_empty() => Some(0),
            Over::Product(arguments) => arguments.values().try_fold(1_u64, |product, value| {
                Some(product.saturating_mul(of(value)?))
            }),
            Over::Each(value) => of(value),
        }
    }
}
