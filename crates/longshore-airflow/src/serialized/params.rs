//! Parameters of DAGs and tasks: names with a default value and a JSON schema, in the order of the DAG file.

use serde_json::{Value, json};

use super::{
    error::Unreadable,
    record::{Json, pair, record},
    value::Var,
};
use crate::pointer::Place;

record! {
    /// A parameter.
    pub struct Param {
        /// The Python class: `airflow.sdk.definitions.param.Param`.
        "__class" needs class: String,
        /// The value where a run gives none. `None` is also Python's `None`.
        "default" may default: Var,
        /// For people.
        "description" may description: String,
        /// JSON schema that a value must satisfy: a `dict`.
        "schema" may schema: Var,
        /// Who declared it: `dag` or `task`.
        "source" may source: String,
    }
}

/// Parameters with their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub Vec<(String, Param)>);

impl Json for Params {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let entries = Vec::<Value>::read(value, at)?.into_iter().enumerate();
        let entries = entries.map(|(index, entry)| {
            let at = at.item(index);
            let [name, param] = pair(entry, "a name and a parameter", &at)?;
            let name = String::read(name, &at.item(0))?;
            Ok((name, Param::read(param, &at.item(1))?))
        });
        entries.collect::<Result<_, _>>().map(Self)
    }

    fn write(&self) -> Value {
        let entries = self.0.iter();
        entries
            .map(|(name, param)| json!([name, param.write()]))
            .collect()
    }
}

impl Params {
    /// The parameter of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Param> {
        let mut entries = self.0.iter();
        entries.find_map(|(entry, param)| (entry == name).then_some(param))
    }
}
