//! The owner of an object: adoption of orphans, release of pods that are not selected. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    body::{Body, controller_of},
    hands::{Request, Target},
};

/// What a controller and an object are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Controlled, and staying so.
    Mine,
    /// Selected, active, and without a controller: the owner becomes its controller.
    Adopt,
    /// Controlled, and not selected any more.
    Release,
    /// Controlled by another object, or without a controller and not to be adopted.
    Foreign,
}

/// The owner that claims objects of one kind.
#[derive(Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) owner: &'a Body,
    /// The owner as their controller.
    pub(crate) reference: Value,
    pub(crate) target: Target,
}

impl Claimant<'_> {
    /// Whether an object is the owner's, or becomes so; what adopts it or lets it go is added to
    /// `requests`. `is_active`: it is worth adopting.
    pub(crate) fn takes(
        &self,
        meta: &ObjectMeta,
        is_selected: bool,
        is_active: bool,
        requests: &mut Vec<Request>,
    ) -> bool {
        match judge(self.owner, meta, is_selected, is_active) {
            Claim::Mine => true,
            Claim::Adopt => {
                requests.push(adopt(self.target, meta, &self.reference));
                true
            }
            Claim::Release => {
                requests.push(release(self.target, meta, self.owner));
                false
            }
            Claim::Foreign => false,
        }
    }
}

fn judge(owner: &Body, meta: &ObjectMeta, is_selected: bool, is_active: bool) -> Claim {
    match controller_of(meta) {
        Some(reference) if reference.uid != owner.uid() => Claim::Foreign,
        Some(_) if is_selected => Claim::Mine,
        // Whatever an owner that goes still controls goes with it.
        Some(_) if owner.is_deleting() => Claim::Foreign,
        Some(_) => Claim::Release,
        None if owner.is_deleting() || !is_selected || !is_active => Claim::Foreign,
        None if meta.deletion_timestamp.is_some() => Claim::Foreign,
        None => Claim::Adopt,
    }
}

/// The request that makes an object the owner's.
fn adopt(target: Target, meta: &ObjectMeta, reference: &Value) -> Request {
    let mut owners = references(meta, "");
    owners.push(reference.clone());
    change_owners(target, meta, owners)
}

/// The request that lets an object go.
fn release(target: Target, meta: &ObjectMeta, owner: &Body) -> Request {
    change_owners(target, meta, references(meta, owner.uid()))
}

fn references(meta: &ObjectMeta, without_uid: &str) -> Vec<Value> {
    let owners = meta.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.uid != without_uid)
        .map(|owner| json!(owner))
        .collect()
}

/// Changes exactly the version that was judged.
fn change_owners(target: Target, meta: &ObjectMeta, owners: Vec<Value>) -> Request {
    Request::Patch {
        target,
        name: meta.name.clone().unwrap_or_default(),
        patch: json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners,
        }}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn owner(deleted_at: Option<&str>) -> Body {
        Body {
            meta: from_value(json!({"name": "o", "uid": "u", "deletionTimestamp": deleted_at}))
                .unwrap(),
            data: Value::Null,
        }
    }

    fn owned_by(uid: &str) -> Value {
        let reference =
            json!({"apiVersion": "v1", "kind": "K", "name": "o", "uid": uid, "controller": true});
        json!({"ownerReferences": [reference]})
    }

    fn check(
        what: &str,
        owner: &Body,
        meta: Value,
        (is_selected, is_active): (bool, bool),
        expected: Claim,
    ) {
        let meta: ObjectMeta = from_value(meta).unwrap();
        assert_eq!(
            judge(owner, &meta, is_selected, is_active),
            expected,
            "{what}"
        );
    }

    #[test]
    fn objects_are_adopted_and_released_by_selector_and_owner() {
        let (stays, goes) = (owner(None), owner(Some(NOW)));
        let gone = json!({"deletionTimestamp": NOW});
        check("its own", &stays, owned_by("u"), (true, true), Claim::Mine);
        check(
            "its own that ends",
            &stays,
            owned_by("u"),
            (true, false),
            Claim::Mine,
        );
        check(
            "another's",
            &stays,
            owned_by("v"),
            (true, true),
            Claim::Foreign,
        );
        check(
            "a stray",
            &stays,
            owned_by("u"),
            (false, true),
            Claim::Release,
        );
        check(
            "a stray of one that goes",
            &goes,
            owned_by("u"),
            (false, true),
            Claim::Foreign,
        );
        check("an orphan", &stays, json!({}), (true, true), Claim::Adopt);
        check(
            "an orphan that is over",
            &stays,
            json!({}),
            (true, false),
            Claim::Foreign,
        );
        check(
            "an orphan that goes",
            &stays,
            gone,
            (true, true),
            Claim::Foreign,
        );
        check(
            "an orphan beside one that goes",
            &goes,
            json!({}),
            (true, true),
            Claim::Foreign,
        );
        check("no owner", &stays, json!({}), (false, true), Claim::Foreign);
    }
}
