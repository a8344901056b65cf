//! Brings answers to the version of their client.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    routes::Route,
    schema::{Life, Schema, ValueKind},
    version::ApiVersion,
};

impl Route {
    /// The body of a success, as the client's version has it.
    ///
    /// # Errors
    /// The value is no JSON, as a map whose keys are no texts.
    pub fn write(
        &self,
        answer: &impl Serialize,
        version: ApiVersion,
    ) -> Result<Value, serde_json::Error> {
        let mut body = serde_json::to_value(answer)?;
        if let Some(kind) = &self.answer {
            to_version(kind, &mut body, version);
        }
        Ok(body)
    }
}

/// Takes from a value of this kind what the version does not have, and adds what only this version has.
pub fn to_version(kind: &ValueKind, value: &mut Value, version: ApiVersion) {
    match kind {
        ValueKind::Object(schema) => object_to_version(schema, value, version),
        ValueKind::Nullable(kind) => to_version(kind, value, version),
        ValueKind::List(item) | ValueKind::SomeOf(item) => {
            for item_value in value.as_array_mut().into_iter().flatten() {
                to_version(item, item_value, version);
            }
        }
        // No answer has an object with a schema within these.
        ValueKind::Either(..) | ValueKind::Pair(..) | ValueKind::ByState(_) => {}
        ValueKind::Json
        | ValueKind::Text
        | ValueKind::TextUpTo(_)
        | ValueKind::Integer
        | ValueKind::Between(..)
        | ValueKind::Number
        | ValueKind::Boolean
        | ValueKind::Instant
        | ValueKind::Duration
        | ValueKind::Uuid
        | ValueKind::Map
        | ValueKind::Words(_) => {}
    }
}

fn object_to_version(schema: &Schema, value: &mut Value, version: ApiVersion) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    for member in schema.members {
        match member.life {
            Life::Since(_) | Life::Before(_) if !member.life.includes(version) => {
                object.remove(member.name);
            }
            Life::Before(_) => {
                object.entry(member.name).or_insert(Value::Null);
            }
            Life::NotNullBefore(first, stand_in) if version < first => {
                if object.get(member.name).is_none_or(Value::is_null)
                    && let Some(other) = object.get(stand_in).cloned()
                {
                    object.insert(member.name.to_owned(), other);
                }
            }
            Life::Always | Life::Since(_) | Life::NotNullBefore(..) => {}
        }
        if let Some(found) = object.get_mut(member.name) {
            if member.name == NEXT_KWARGS && version < ApiVersion::V2026_04_06 {
                to_old_kwargs(found);
            }
            to_version(&member.kind, found, version);
        }
    }
}

/// The member of the run context whose form differs by version.
const NEXT_KWARGS: &str = "next_kwargs";

/// Brings arguments from the form of the SDK's serde, which task SDK 1.2 and later write, to the older form, in which
/// each value that is more than JSON is `{"__type": …, "__var": …}`. Arguments in the older form stay as they are.
///
/// A class that the older form does not know keeps its object: the method that gets it sees a dictionary.
/// Upstream: `v2026_04_06.py`, `convert_next_kwargs_to_base_serialization`.
fn to_old_kwargs(kwargs: &mut Value) {
    let is_plain = kwargs
        .as_object()
        .is_some_and(|it| !it.contains_key(OLD_TYPE));
    if is_plain {
        *kwargs = to_old_value(kwargs);
    }
}

const OLD_TYPE: &str = "__type";
const CLASS: &str = "__classname__";
const DATA: &str = "__data__";

fn to_old_value(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(to_old_value).collect(),
        Value::Object(object) => {
            let class = object.get(CLASS).and_then(Value::as_str);
            let known = class.and_then(|class| to_old_class(class, object.get(DATA)?));
            known.unwrap_or_else(|| {
                let members = object.iter();
                let members: serde_json::Map<String, Value> = members
                    .map(|(name, it)| (name.clone(), to_old_value(it)))
                    .collect();
                old("dict", members.into())
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn to_old_class(class: &str, data: &Value) -> Option<Value> {
    match class {
        "datetime.datetime" | "pendulum.datetime.DateTime" => {
            let at = data.get("timestamp").unwrap_or(data);
            at.is_number().then(|| old("datetime", at.clone()))
        }
        "datetime.timedelta" => data.is_number().then(|| old("timedelta", data.clone())),
        "builtins.tuple" => Some(old("tuple", to_old_value(data))),
        "builtins.set" | "builtins.frozenset" => Some(old("set", to_old_value(data))),
        _ => None,
    }
}

fn old(name: &str, value: Value) -> Value {
    json!({ OLD_TYPE: name, "__var": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::schemas;

    fn downgraded(kind: &ValueKind, mut value: Value, version: ApiVersion) -> Value {
        to_version(kind, &mut value, version);
        value
    }

    #[test]
    fn a_run_that_has_not_started_starts_at_its_time_for_old_clients() {
        let run = json!({"run_after": "2026-01-01T00:00:00Z", "start_date": null});
        for (version, expected) in [
            (ApiVersion::V2026_06_30, Value::Null),
            (ApiVersion::V2026_04_06, Value::Null),
            (ApiVersion::V2025_11_05, json!("2026-01-01T00:00:00Z")),
        ] {
            let run = downgraded(&ValueKind::Object(&schemas::DAG_RUN), run.clone(), version);
            assert_eq!(run["start_date"], expected, "{version}");
        }
        let started = json!({"run_after": "2026-01-01T00:00:00Z", "start_date": "later"});
        let kind = ValueKind::Object(&schemas::DAG_RUN);
        let run = downgraded(&kind, started.clone(), ApiVersion::V2025_11_05);
        assert_eq!(run, started);
    }

    #[test]
    fn arguments_after_a_deferral_are_in_the_form_of_the_client() {
        let datetime = json!({
            "__classname__": "pendulum.datetime.DateTime", "__version__": 2,
            "__data__": {"timestamp": 1795231800.0, "tz": null},
        });
        let kwargs = json!({
            "event": {"at": datetime, "n": [1, {"a": null}]},
            "pair": {"__classname__": "builtins.tuple", "__version__": 1, "__data__": ["x", 2]},
        });
        let expected = json!({"__type": "dict", "__var": {
            "event": {"__type": "dict", "__var": {
                "at": {"__type": "datetime", "__var": 1795231800.0},
                "n": [1, {"__type": "dict", "__var": {"a": null}}],
            }},
            "pair": {"__type": "tuple", "__var": ["x", 2]},
        }});
        let context = json!({"next_kwargs": kwargs});
        let kind = ValueKind::Object(&schemas::RUN_CONTEXT);
        for (version, expected) in [
            (ApiVersion::V2026_06_30, &kwargs),
            (ApiVersion::V2026_04_06, &kwargs),
            (ApiVersion::V2025_11_05, &expected),
        ] {
            let context = downgraded(&kind, context.clone(), version);
            assert_eq!(&context["next_kwargs"], expected, "{version}");
        }
        // What an old worker wrote, and what is encrypted, it gets back as it was.
        for kept in [expected, json!("gAAAAAB")] {
            let context = json!({"next_kwargs": kept});
            let context = downgraded(&kind, context, ApiVersion::V2025_11_05);
            assert_eq!(context["next_kwargs"], kept);
        }
    }
}
