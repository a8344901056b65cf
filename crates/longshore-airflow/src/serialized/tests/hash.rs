//! Which documents are the same version.

use serde_json::json;

use super::*;

fn hash(value: Value) -> String {
    Document::read(value).unwrap().hash().to_string()
}

/// The same value from a text in which the members of all objects come in the opposite order.
fn turned_round(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            let members: Vec<_> = members
                .map(|(name, member)| format!("{}:{}", json!(name), turned_round(member)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(turned_round).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[test]
fn the_same_dag_in_another_order_is_the_same_version() {
    for (name, text) in EXAMPLES {
        let value = json(name);
        let expected = hash(value.clone());
        assert_eq!(expected.len(), 64);
        let other = turned_round(&value);
        assert_ne!(other, text);
        assert_eq!(
            hash(serde_json::from_str(&other).unwrap()),
            expected,
            "{name}"
        );
    }
    let mut value = json("zoo");
    let expected = hash(value.clone());
    value["dag"]["tasks"].as_array_mut().unwrap().reverse();
    value["dag"]["tags"] = json!(["y", "x"]);
    value["dag"]["fileloc"] = json!("/elsewhere/zoo.py");
    value["dag"]["_processor_dags_folder"] = json!("/elsewhere");
    assert_eq!(hash(value), expected);
}

#[test]
fn whatever_else_changes_makes_another_version() {
    let original = json("zoo");
    let expected = hash(original.clone());
    let mut seen = vec![expected];
    for (place, changed) in [
        ("/dag/catchup", json!(true)),
        ("/dag/max_active_runs", json!(16.5)),
        ("/dag/relative_fileloc", json!("other/zoo.py")),
        ("/dag/tags", json!(["x"])),
        ("/dag/tasks/0/__var/retries", json!(3)),
        ("/dag/tasks/0/__var/x_new", json!(null)),
        ("/dag/tasks/0/__var/owner", json!("Team")),
        ("/dag/default_args/__var/retries", json!(3)),
        ("/client_defaults", json!({"tasks": {"retries": 1}})),
        ("/dag/tasks/1/__var/bash_command", json!("echo 3")),
    ] {
        let mut value = original.clone();
        let (parent, name) = place.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[name] = changed;
        if place.ends_with("max_active_runs") {
            assert!(Document::read(value).is_err(), "half a run");
            continue;
        }
        let hash = hash(value);
        assert!(!seen.contains(&hash), "{place}");
        seen.push(hash);
    }
}
