//! Documents are written as they were read.

use serde_json::json;

use super::*;

#[test]
fn documents_of_airflow_are_written_as_they_were_read() {
    for (name, text) in EXAMPLES {
        let value: Value = serde_json::from_str(text).unwrap();
        let document = Document::read(value.clone()).unwrap();
        assert_eq!(document.dag.dag_id, name);
        assert_eq!(document.to_json(), value, "{name}");
    }
}

#[test]
fn members_that_nobody_knows_survive_everywhere() {
    // Members of these are things with a name of their own, and cannot be anything.
    let maps = ["/children", "/edge_info", "/owner_links", "/value/__var"];
    for (name, at_least) in [
        ("zoo", 100),
        ("vec", 50),
        ("t_asset_or", 6),
        ("t_multicron", 4),
    ] {
        let mut value = json(name);
        let mut n_added = 0;
        for place in places(&value) {
            let is_map = maps.iter().any(|end| place.ends_with(end));
            let Some(object) = value.pointer_mut(&place).and_then(Value::as_object_mut) else {
                continue;
            };
            // With a third member, `__type` and `__var` would be something else.
            if is_map || object.contains_key("__var") {
                continue;
            }
            object.insert("x_new".to_owned(), json!({"a": [1, null, 2.5]}));
            n_added += 1;
        }
        assert!(n_added >= at_least, "{n_added} in {name}");
        let document = Document::read(value.clone()).unwrap();
        assert_eq!(document.to_json(), value, "{name}");
    }
}

#[test]
fn what_is_null_or_left_out_stays_so() {
    let mut value = json("t_daily");
    value["dag"]["end_date"] = Value::Null;
    value["dag"]["tags"] = Value::Null;
    value["dag"].as_object_mut().unwrap().remove("catchup");
    let document = Document::read(value.clone()).unwrap();
    assert_eq!(document.dag.settings.end_date, None);
    assert!(document.dag.settings.tags().is_empty());
    assert!(!document.dag.settings.catchup());
    assert_eq!(document.to_json(), value);
}

#[test]
fn whatever_is_changed_is_refused_or_written_as_it_was_read() {
    let original = json("zoo");
    let (mut n_read, mut n_refused) = (0, 0);
    // Tasks are much alike: every seventh place meets all kinds of members.
    for place in places(&original).into_iter().step_by(7) {
        for changed in [json!(null), json!("x"), json!(-7), json!([]), json!({})] {
            let mut value = original.clone();
            *value.pointer_mut(&place).unwrap() = changed;
            match Document::read(value.clone()) {
                Ok(document) => {
                    n_read += 1;
                    assert_eq!(document.to_json(), value, "at {place}");
                }
                Err(error) => {
                    n_refused += 1;
                    let at = error.at.as_str();
                    assert!(value.pointer(at).is_some(), "{error} for {place}");
                }
            }
        }
    }
    assert!(n_read > 300 && n_refused > 300, "{n_read} {n_refused}");
}
