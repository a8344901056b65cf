//! What is read of the documents that Airflow itself wrote, and of broken ones.

mod documents;
mod hash;
mod laws;
mod mapping;
mod refused;
mod relativedelta;
mod relevance;
mod schema;
mod settings;
mod timetables;
mod values;

use serde_json::Value;

use super::*;

macro_rules! example {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(
                "../../../testdata/serialization/example-",
                $name,
                ".json"
            )),
        )
    };
}
/// The documents of `testdata/serialization`, by the id of their DAG.
const EXAMPLES: [(&str, &str); 12] = [
    example!("t_asset_and"),
    example!("t_asset_or"),
    example!("t_continuous"),
    example!("t_cron_interval"),
    example!("t_cron_tz"),
    example!("t_daily"),
    example!("t_delta"),
    example!("t_delta_trigger"),
    example!("t_multicron"),
    example!("t_once"),
    example!("vec"),
    example!("zoo"),
];

fn json(name: &str) -> Value {
    let (_, text) = EXAMPLES.iter().find(|(id, _)| *id == name).unwrap();
    serde_json::from_str(text).unwrap()
}

fn document(name: &str) -> Document {
    Document::read(json(name)).unwrap()
}

/// Every place of a value, from the inside out.
fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(member, &format!("{at}/{name}"), found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{index}"), found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        found.push(at.to_owned());
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}
