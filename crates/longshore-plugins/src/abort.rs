//! What an abort does with the resource of an attempt.

use longshore_core::{ObjectRef, PatchKind};
use serde_json::{Map, Value, json};

/// What an abort does: when a TaskAction is deleted, the executor applies this before the TaskAction may go.
///
/// A resource that an abort does not delete stays when its TaskAction is gone, as it is by then: without
/// [`disable_inject_owner_references`](crate::PluginProperties::disable_inject_owner_references) the garbage collector of
/// the cluster deletes it, and with `delete-resource-on-finalize` the executor does, unless
/// [`disable_delete_resource_on_finalize`](crate::PluginProperties::disable_delete_resource_on_finalize) says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct AbortBehavior {
    /// The object that the abort acts on, without a uid; `None` for the resource of the attempt. The executor needs the
    /// rights for it.
    pub object: Option<ObjectRef>,
    /// What is done with the object.
    pub effect: AbortEffect,
    /// Whether the object is deleted where the API server refuses the effect for good.
    pub deletes_on_error: bool,
}

/// What an abort does with an object.
#[derive(Clone, Debug, PartialEq)]
pub enum AbortEffect {
    /// Deletes it.
    Delete,
    /// Leaves it alone.
    Keep,
    /// Changes it. The patch is the same each time; the executor adds the uid of the object as a precondition, and
    /// repeats a patch whose answer it does not know.
    Patch {
        /// How `patch` is to be read.
        kind: PatchKind,
        /// The patch.
        patch: Value,
    },
}

impl AbortBehavior {
    fn of(effect: AbortEffect) -> Self {
        Self {
            object: None,
            effect,
            deletes_on_error: false,
        }
    }

    /// The resource is deleted, and the TaskAction waits until nothing of it runs: what an abort does unless a plugin
    /// says otherwise.
    pub fn delete() -> Self {
        Self::of(AbortEffect::Delete)
    }

    /// The resource is left alone.
    pub fn keep() -> Self {
        Self::of(AbortEffect::Keep)
    }

    /// The resource gets this merge patch (RFC 7386).
    pub fn patch(patch: Value) -> Self {
        let kind = PatchKind::Merge;
        Self::of(AbortEffect::Patch { kind, patch })
    }

    /// The resource `seen` becomes `wanted`, unless somebody else has changed it meanwhile: then the plugin is asked
    /// again. Identity and status stay.
    pub fn update(seen: &Value, wanted: &Value) -> Self {
        let mut patch = Map::new();
        let fields = names(seen, wanted).filter(|field| !FIXED.contains(field));
        patch.extend(fields.filter_map(|field| changed(seen, wanted, field)));
        let (metadata, to) = (&seen["metadata"], &wanted["metadata"]);
        let fields = ["annotations", "finalizers", "labels"].into_iter();
        let fields = fields.filter_map(|field| changed(metadata, to, field));
        let mut metadata: Map<String, Value> = fields.collect();
        if !patch.is_empty() || !metadata.is_empty() {
            let version = &seen["metadata"]["resourceVersion"];
            metadata.insert("resourceVersion".to_owned(), version.clone());
            patch.insert("metadata".to_owned(), Value::Object(metadata));
        }
        Self::patch(Value::Object(patch))
    }

    /// The same with another object. It is in the namespace of the TaskAction, or of the whole cluster.
    #[must_use]
    pub fn with_object(self, object: ObjectRef) -> Self {
        let object = Some(object);
        Self { object, ..self }
    }

    /// The same, and the object is deleted where the API server refuses that for good.
    #[must_use]
    pub fn or_delete(self) -> Self {
        Self {
            deletes_on_error: true,
            ..self
        }
    }

    /// Whether it does what the executor does anyway.
    pub fn is_usual(&self) -> bool {
        self.object.is_none() && self.effect == AbortEffect::Delete
    }
}

impl AbortEffect {
    /// Whether an object looks as this effect would leave it. Of patches that are no merge patches only empty ones are
    /// known to change nothing.
    pub fn holds(&self, object: &Value) -> bool {
        match self {
            Self::Delete => longshore_k8s::metadata::is_deleting(object),
            Self::Keep => true,
            Self::Patch {
                kind: PatchKind::Merge,
                patch,
            } => has(object, patch),
            Self::Patch {
                kind: PatchKind::Json | PatchKind::Strategic,
                patch,
            } => *patch == json!([]) || *patch == json!({}),
        }
    }
}

/// What an update does not change at the top of an object; of the metadata it changes some.
const FIXED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The fields of two objects, each once.
fn names<'a>(seen: &'a Value, wanted: &'a Value) -> impl Iterator<Item = &'a str> {
    let of = |value: &'a Value| value.as_object().into_iter().flatten();
    let new = of(wanted).filter(move |(field, _)| seen.get(field.as_str()).is_none());
    of(seen).chain(new).map(|(field, _)| field.as_str())
}

/// The part of a merge patch that makes a field of `seen` the same as in `wanted`; `None` where it is.
fn changed(seen: &Value, wanted: &Value, field: &str) -> Option<(String, Value)> {
    let (before, after) = (seen.get(field), wanted.get(field));
    if before == after {
        return None;
    }
    let patch = match (before, after) {
        (_, None) => Value::Null,
        (Some(before @ Value::Object(_)), Some(after @ Value::Object(_))) => {
            let within = names(before, after);
            let within = within.filter_map(|field| changed(before, after, field));
            Value::Object(within.collect())
        }
        (_, Some(after)) => after.clone(),
    };
    Some((field.to_owned(), patch))
}

/// Whether a merge patch changes nothing of a value.
fn has(value: &Value, patch: &Value) -> bool {
    let Value::Object(fields) = patch else {
        return value == patch;
    };
    let holds = |(field, patch): (&String, &Value)| match (value.get(field), patch) {
        (None, patch) => patch.is_null(),
        (Some(_), Value::Null) => false,
        (Some(value), patch) => has(value, patch),
    };
    value.is_object() && fields.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_holds_where_it_changes_nothing() {
        let job =
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"suspend": true, "args": [1]}});
        for (patch, holds) in [
            (json!({}), true),
            (json!({"spec": {"suspend": true}}), true),
            (json!({"spec": {"suspend": false}}), false),
            (json!({"spec": {"suspend": null}}), false),
            (json!({"spec": {"other": null}}), true),
            (json!({"spec": {"other": {}}}), false),
            (json!({"spec": {"suspend": {}}}), false),
            (json!({"spec": {"args": [1]}}), true),
            (json!({"spec": {"args": [1, 2]}}), false),
            (json!({"metadata": {"labels": {"a": "1", "b": "2"}}}), false),
        ] {
            let behavior = AbortBehavior::patch(patch.clone());
            assert_eq!(behavior.effect.holds(&job), holds, "{patch}");
        }
    }

    #[test]
    fn an_update_is_the_difference_upon_the_version_that_was_seen() {
        let seen = json!({
            "kind": "Job",
            "metadata": {"resourceVersion": "7", "uid": "u", "labels": {"a": "1", "b": "2"}},
            "spec": {"suspend": false, "template": {"x": 1}, "old": 1},
            "status": {"active": 1},
        });
        let mut wanted = seen.clone();
        wanted["spec"] = json!({"suspend": true, "template": {"x": 1}});
        wanted["metadata"]["labels"] = json!({"a": "1", "c": "3"});
        wanted["status"] = json!({});
        let update = AbortBehavior::update(&seen, &wanted);
        let expected = AbortBehavior::patch(json!({
            "metadata": {"labels": {"b": null, "c": "3"}, "resourceVersion": "7"},
            "spec": {"suspend": true, "old": null},
        }));
        assert_eq!(update, expected);
        assert!(!update.effect.holds(&seen));
        let done = AbortBehavior::update(&wanted, &wanted);
        assert_eq!(done, AbortBehavior::patch(json!({})));
        assert!(done.effect.holds(&wanted));
    }

    #[test]
    fn whatever_else_is_done_is_known_to_hold_or_is_repeated() {
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let holds = |behavior: &AbortBehavior, object: &Value| behavior.effect.holds(object);
        assert!(!holds(&AbortBehavior::delete(), &json!({})));
        assert!(holds(&AbortBehavior::delete(), &going));
        assert!(holds(&AbortBehavior::keep(), &json!({})));
        let of = |patch: Value| AbortEffect::Patch {
            kind: PatchKind::Json,
            patch,
        };
        let replace = json!([{"op": "add", "path": "/spec", "value": {}}]);
        assert!(!of(replace).holds(&json!({"spec": {}})));
        assert!(of(json!([])).holds(&json!({})));
    }
}
