//! What holds for any value, also one that no Airflow writes.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::{
    pointer::Place,
    serde::{decode, mapped_length, moment},
    serialized::record::Json,
};

/// Any JSON, with the names that mean something in it more often than by chance.
fn values() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "dict",
        "set",
        "tuple",
        "datetime",
        "timedelta",
        "timezone",
        "relativedelta",
        "k8s.V1Pod",
        "xcomref",
        "asset",
        "asset_any",
        "asset_ref",
        "param",
        "arg_not_set",
        "zip",
        "map",
        "a",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        names.clone().prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "task_id",
        "key",
        "type",
        "args",
        "arg",
        "name",
        "uri",
        "objects",
        "weekday",
        "days",
        "__class",
        "__type",
        "__var",
        "__classname__",
        "__version__",
        "__data__",
        "timestamp",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let typed = (names.clone(), inner.clone());
        let members = prop::collection::vec((keys.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            typed.prop_map(|(name, var)| json!({"__type": name, "__var": var})),
            members.prop_map(|members| {
                let members = members.into_iter();
                let members: Map<String, Value> = members
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect();
                members.into()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_refused_where_it_is_wrong_or_written_as_it_was_read(value in values()) {
        match Var::read(value.clone(), &Place::ROOT) {
            Ok(var) => prop_assert_eq!(var.write(), value),
            Err(error) => prop_assert!(value.pointer(error.at.as_str()).is_some(), "{}", error),
        }
    }

    #[test]
    fn values_of_workers_never_surprise(value in values()) {
        let is_plain = value.get("__classname__").is_none() && value.get("__type").is_none();
        if is_plain {
            prop_assert_eq!(decode(&value).unwrap(), crate::serde::Decoded::Plain(&value));
            prop_assert!(moment(&value).is_err());
            let length = value.as_array().map(Vec::len);
            let length = length.or_else(|| value.as_object().map(Map::len));
            let length = length.map(|length| u64::try_from(length).unwrap());
            prop_assert_eq!(mapped_length(&value).unwrap(), length);
        } else {
            let _ = (mapped_length(&value), moment(&value));
        }
    }

    #[test]
    fn a_changed_document_is_refused_or_written_as_it_was_read(
        place in any::<prop::sample::Index>(),
        changed in values(),
    ) {
        let mut value = json("vec");
        let places = places(&value);
        *value.pointer_mut(&places[place.index(places.len())]).unwrap() = changed;
        match Document::read(value.clone()) {
            Ok(document) => {
                prop_assert_eq!(document.to_json(), value);
                let _ = document.hash();
                for task in document.dag.tasks.iter() {
                    let _ = document.settings(task);
                    let _ = document.dag.n_instances(task, &|_| Some(2));
                }
            }
            Err(error) => prop_assert!(value.pointer(error.at.as_str()).is_some(), "{}", error),
        }
    }
}
