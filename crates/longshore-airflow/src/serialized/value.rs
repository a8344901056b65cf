//! Values of Python: JSON, and `{"__type": …, "__var": …}` for what JSON does not have.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value, json};

use super::{
    asset::Asset,
    error::Unreadable,
    params::Param,
    record::Json,
    relativedelta::Relativedelta,
    time::{Moment, Seconds, Zone},
    xcom::XcomRef,
};
use crate::pointer::Place;

/// A value of Python, as Airflow's `BaseSerialization` encodes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Var {
    /// `None`.
    Null,
    /// `True` or `False`.
    Bool(bool),
    /// An `int` or `float`. Those that are not finite are texts (`"nan"`).
    Number(Number),
    /// A `str`. Also a function (its source), and anything else that Airflow cannot encode.
    Text(String),
    /// A `list`.
    List(Vec<Var>),
    /// A `dict`: `dict`.
    Dict(BTreeMap<String, Var>),
    /// A `set`: `set`.
    Set(Vec<Var>),
    /// A `tuple`: `tuple`.
    Tuple(Vec<Var>),
    /// A `datetime`: `datetime`.
    Datetime(Moment),
    /// A `timedelta`: `timedelta`.
    Timedelta(Seconds),
    /// A time zone: `timezone`.
    Timezone(Zone),
    /// A `relativedelta`: `relativedelta`.
    Relativedelta(Box<Relativedelta>),
    /// A pod, as the Kubernetes API writes it: `k8s.V1Pod`.
    Pod(Value),
    /// What another task will return: `xcomref`.
    XcomRef(XcomRef),
    /// An asset, or several: `asset`, `asset_alias`, `asset_all`, `asset_any`, `asset_ref`.
    Asset(Asset),
    /// A parameter: `param`.
    Param(Box<Param>),
    /// An argument that was not given: `arg_not_set`.
    NotSet,
    /// Any other object, as it is: of a type that no scheduler looks into, or of none.
    Object(Map<String, Value>),
}

impl Json for Var {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(flag),
            Value::Number(number) => Self::Number(number),
            Value::String(text) => Self::Text(text),
            Value::Array(_) => Self::List(Json::read(value, at)?),
            Value::Object(object) => Self::read_object(object, at)?,
        })
    }

    fn write(&self) -> Value {
        let (name, content) = match self {
            Self::Null => return Value::Null,
            Self::Bool(flag) => return (*flag).into(),
            Self::Number(number) => return number.clone().into(),
            Self::Text(text) => return text.as_str().into(),
            Self::List(items) => return items.write(),
            Self::Datetime(moment) => return moment.write(),
            Self::Timedelta(seconds) => return seconds.write(),
            Self::Object(object) => return object.clone().into(),
            Self::Dict(members) => ("dict", members.write()),
            Self::Set(items) => ("set", items.write()),
            Self::Tuple(items) => ("tuple", items.write()),
            Self::Timezone(zone) => ("timezone", zone.write()),
            Self::Relativedelta(delta) => ("relativedelta", delta.write()),
            Self::Pod(pod) => ("k8s.V1Pod", pod.clone()),
            Self::XcomRef(reference) => ("xcomref", reference.write()),
            Self::Asset(asset) => asset.write_parts(),
            Self::Param(param) => ("param", param.write()),
            Self::NotSet => ("arg_not_set", Value::Null),
        };
        json!({"__type": name, "__var": content})
    }
}

impl Var {
    fn read_object(mut object: Map<String, Value>, at: &Place<'_>) -> Result<Self, Unreadable> {
        let is_typed = object.len() == 2 && object.contains_key("__var");
        let name = match object.get("__type") {
            Some(Value::String(name)) if is_typed => name.clone(),
            _ => return Ok(Self::Object(object)),
        };
        let var = object.remove("__var").unwrap_or_default();
        let at = at.member("__var");
        Ok(match name.as_str() {
            "dict" => Self::Dict(Json::read(var, &at)?),
            "set" => Self::Set(Json::read(var, &at)?),
            "tuple" => Self::Tuple(Json::read(var, &at)?),
            "datetime" => Self::Datetime(Moment::read_var(var, &at)?),
            "timedelta" => Self::Timedelta(Seconds::read_var(var, &at)?),
            "timezone" => Self::Timezone(Json::read(var, &at)?),
            "relativedelta" => Self::Relativedelta(Json::read(var, &at)?),
            "k8s.V1Pod" if var.is_object() => Self::Pod(var),
            "k8s.V1Pod" => return Err(Unreadable::form(&at, "a pod", &var)),
            "xcomref" => Self::XcomRef(Json::read(var, &at)?),
            "asset" | "asset_alias" | "asset_all" | "asset_any" | "asset_ref" => {
                Self::Asset(Asset::read_parts(&name, var, &at)?)
            }
            "param" => Self::Param(Json::read(var, &at)?),
            "arg_not_set" if var.is_null() => Self::NotSet,
            _ => {
                object.insert("__var".to_owned(), var);
                Self::Object(object)
            }
        })
    }

    /// The member of that name, of a `dict`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Dict(members) => members.get(name),
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::List(_)
            | Self::Set(_)
            | Self::Tuple(_)
            | Self::Datetime(_)
            | Self::Timedelta(_)
            | Self::Timezone(_)
            | Self::Relativedelta(_)
            | Self::Pod(_)
            | Self::XcomRef(_)
            | Self::Asset(_)
            | Self::Param(_)
            | Self::NotSet
            | Self::Object(_) => None,
        }
    }

    /// The value as Airflow encodes it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.write()
    }

    /// The value as JSON has it: lists and dicts without the words of the encoding. What JSON does not have stays encoded.
    #[must_use]
    pub fn to_plain(&self) -> Value {
        match self {
            Self::List(items) | Self::Set(items) | Self::Tuple(items) => {
                items.iter().map(Self::to_plain).collect()
            }
            Self::Dict(members) => {
                let members = members.iter();
                let plain = members.map(|(name, value)| (name.clone(), value.to_plain()));
                Value::Object(plain.collect())
            }
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Datetime(_)
            | Self::Timedelta(_)
            | Self::Timezone(_)
            | Self::Relativedelta(_)
            | Self::Pod(_)
            | Self::XcomRef(_)
            | Self::Asset(_)
            | Self::Param(_)
            | Self::NotSet
            | Self::Object(_) => self.write(),
        }
    }

    /// How many values a `list`, `tuple`, `set` or `dict` has. Nothing else can be mapped over.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        let length = match self {
            Self::List(items) | Self::Set(items) | Self::Tuple(items) => items.len(),
            Self::Dict(members) => members.len(),
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Datetime(_)
            | Self::Timedelta(_)
            | Self::Timezone(_)
            | Self::Relativedelta(_)
            | Self::Pod(_)
            | Self::XcomRef(_)
            | Self::Asset(_)
            | Self::Param(_)
            | Self::NotSet
            | Self::Object(_) => return None,
        };
        u64::try_from(length).ok()
    }
}
