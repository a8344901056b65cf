//! What Airflow's own JSON schema of the format lists is read.

use std::collections::BTreeSet;

use serde_json::Map;

use super::*;

fn schema() -> Value {
    let text = include_str!("../../../testdata/serialization/dag-schema.json");
    serde_json::from_str(text).unwrap()
}

fn properties<'a>(schema: &'a Value, definition: &str) -> &'a Map<String, Value> {
    let properties = &schema["definitions"][definition]["properties"];
    properties.as_object().unwrap()
}

#[test]
fn every_member_of_the_schema_has_a_field() {
    let schema = schema();
    for (definition, members) in [
        ("dag", [Dag::MEMBERS, DagSettings::MEMBERS].concat()),
        ("operator", [Operator::MEMBERS, Settings::MEMBERS].concat()),
        ("task_group", TaskGroup::MEMBERS.to_vec()),
        ("param", Param::MEMBERS.to_vec()),
        ("asset_definition", OneAsset::MEMBERS.to_vec()),
    ] {
        let properties = properties(&schema, definition);
        assert!(properties.len() > 3);
        let unread: Vec<_> = properties
            .keys()
            .filter(|name| !members.contains(&name.as_str()))
            .collect();
        assert!(unread.is_empty(), "{definition}: {unread:?}");
    }
    let top = schema["allOf"][0]["properties"].as_object().unwrap();
    let top: BTreeSet<&str> = top.keys().map(String::as_str).collect();
    assert_eq!(top, Document::MEMBERS.iter().copied().collect());
}

#[test]
fn what_is_left_out_has_the_default_of_the_schema() {
    let schema = schema();
    let mut ours = Map::new();
    Settings::defaults().put(&mut ours);
    // Members of the operator itself, for which nothing and the default are the same to a scheduler.
    let elsewhere = [
        "_is_mapped",
        "_is_sensor",
        "downstream_task_ids",
        "start_from_trigger",
        "task_type",
        "template_ext",
        "template_fields",
        "template_fields_renderers",
        "ui_color",
        "ui_fgcolor",
    ];
    let mut others = Vec::new();
    for (name, property) in properties(&schema, "operator") {
        match property.get("default").filter(|default| !default.is_null()) {
            None => assert!(!ours.contains_key(name), "{name} has no default"),
            Some(default) if ours.contains_key(name) => assert_eq!(&ours[name], default, "{name}"),
            Some(_) => others.push(name.as_str()),
        }
    }
    assert_eq!(others, elsewhere);
    let mut ours = Map::new();
    DagSettings::defaults().put(&mut ours);
    for (name, property) in properties(&schema, "dag") {
        if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
            assert_eq!(ours.get(name), Some(default), "{name}");
        }
    }
}
