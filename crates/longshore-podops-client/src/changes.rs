//! The changes of an object in memory, as a patch.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// The merge patch (RFC 7386) that makes the labels, annotations and finalizers of `before` those of `after`; `None` where
/// they are the same.
///
/// The API server refuses the patch when another client was first. The patch touches nothing else of the object: a
/// client that writes the whole object would drop the fields that are newer than its types.
pub fn changes_of(before: &ObjectMeta, after: &ObjectMeta) -> Option<Value> {
    let mut metadata = Map::new();
    let maps = [
        ("labels", &before.labels, &after.labels),
        ("annotations", &before.annotations, &after.annotations),
    ];
    for (field, before, after) in maps {
        let changes = changes_of_map(before.as_ref(), after.as_ref());
        if !changes.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(changes));
        }
    }
    let finalizers = |of: &ObjectMeta| of.finalizers.clone().unwrap_or_default();
    if finalizers(before) != finalizers(after) {
        metadata.insert("finalizers".to_owned(), json!(finalizers(after)));
    }
    if metadata.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(before.uid));
    metadata.insert("resourceVersion".to_owned(), json!(before.resource_version));
    Some(json!({"metadata": metadata}))
}

type Texts = BTreeMap<String, String>;

fn changes_of_map(before: Option<&Texts>, after: Option<&Texts>) -> Map<String, Value> {
    let nothing = Texts::new();
    let (before, after) = (before.unwrap_or(&nothing), after.unwrap_or(&nothing));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let set = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let set = set.map(|(key, value)| (key.clone(), json!(value)));
    gone.chain(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(labels: &[(&str, &str)], finalizers: &[&str]) -> ObjectMeta {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some(labels.iter().map(pair).collect()),
            finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_patch_has_what_was_changed_upon_what_was_read() {
        let before = meta(&[("stays", "1"), ("goes", "1"), ("turns", "1")], &["a"]);
        let after = meta(
            &[("stays", "1"), ("comes", "1"), ("turns", "2")],
            &["a", "b"],
        );
        let expected = json!({"metadata": {
            "uid": "u", "resourceVersion": "7",
            "labels": {"goes": null, "comes": "1", "turns": "2"},
            "finalizers": ["a", "b"],
        }});
        assert_eq!(changes_of(&before, &after), Some(expected));
        assert_eq!(changes_of(&before, &before), None);
        let bare = ObjectMeta::default();
        assert_eq!(changes_of(&bare, &meta(&[], &[])), None);
    }
}
