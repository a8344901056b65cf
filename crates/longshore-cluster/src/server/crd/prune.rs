//! Pruning: members that the schema does not know are dropped, and named.

use serde_json::Value;

use super::schema::{Additional, Schema};

/// Members of every object's metadata.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

impl Schema {
    /// Drops everything that the schema does not know from a whole object. Returns the dropped paths, as
    /// `spec.items[0].x`.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruned = Pruned::default();
        pruned.in_object(Some(self), object, true);
        pruned.paths
    }
}

/// Where pruning is, and what it has dropped.
#[derive(Default)]
struct Pruned {
    path: String,
    paths: Vec<String>,
}

impl Pruned {
    /// Goes one step down.
    fn below(&mut self, step: &str, visit: impl FnOnce(&mut Pruned)) {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }

    fn drop_member(&mut self, name: &str) {
        self.below(name, |pruned| pruned.paths.push(pruned.path.clone()));
    }

    /// `schema` is `None` below members about which nothing is said.
    fn in_object(&mut self, schema: Option<&Schema>, value: &mut Value, is_root: bool) {
        match value {
            Value::Object(members) => members.retain(|name, member| {
                if is_root && name == "metadata" {
                    self.below(name, |pruned| pruned.in_metadata(member));
                    return true;
                }
                if is_root && (name == "apiVersion" || name == "kind") {
                    return true;
                }
                match (schema.and_then(|it| it.properties.get(name)), schema) {
                    (Some(property), _) => {
                        let is_embedded = property.is_embedded;
                        self.below(name, |it| it.in_object(Some(property), member, is_embedded));
                    }
                    (None, Some(schema)) => match &schema.additional {
                        Additional::Like(like) => {
                            let is_embedded = like.is_embedded;
                            self.below(name, |it| it.in_object(Some(like), member, is_embedded));
                        }
                        _ if schema.preserves_unknown => {}
                        Additional::Anything => {
                            self.below(name, |it| it.in_object(None, member, false));
                        }
                        Additional::Undeclared => {
                            self.drop_member(name);
                            return false;
                        }
                    },
                    (None, None) => {
                        self.drop_member(name);
                        return false;
                    }
                }
                true
            }),
            Value::Array(items) => {
                let like = schema.and_then(|schema| schema.items.as_deref());
                if like.is_none() && schema.is_some_and(|schema| schema.preserves_unknown) {
                    return;
                }
                let is_embedded = like.is_some_and(|like| like.is_embedded);
                for (index, item) in items.iter_mut().enumerate() {
                    self.below(&format!("[{index}]"), |it| {
                        it.in_object(like, item, is_embedded);
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn in_metadata(&mut self, metadata: &mut Value) {
        let Some(members) = metadata.as_object_mut() else {
            return;
        };
        members.retain(|name, _| {
            let is_known = METADATA.contains(&name.as_str());
            if !is_known {
                self.drop_member(name);
            }
            is_known
        });
    }
}
