//! The roles and bindings that every cluster has. They are data, `policy/bootstrap.jsonl`.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use super::{
    index::GROUP,
    policy::PolicyKind,
    reconcile::{AUTOUPDATE, Reconciled, reconcile},
};
use crate::server::{
    Server,
    hub::{Change, Collection, Draft, Expected, Key},
    meta,
};

const POLICY: &str = include_str!("../../../policy/bootstrap.jsonl");

/// A write that the stored objects lack.
struct Write {
    collection: Arc<Collection>,
    key: Key,
    expected: Expected,
    change: Change,
}

/// Stores the roles and bindings that are missing, and completes the others. Blocks; the writes share the waiting for
/// the disk. A write that fails is left to the next start.
pub(crate) fn ensure(server: &Server) {
    let writes = expected().filter_map(|(kind, object)| write(server, kind, object));
    let commits = writes.map(|it| {
        let hub = Arc::clone(&server.hub);
        async move {
            hub.commit(&it.collection, it.key, it.expected, it.change)
                .await
        }
    });
    // The caller may be a task that has used up its budget, which would never wake here.
    let all = tokio::task::unconstrained(join_all(commits));
    for failed in futures::executor::block_on(all)
        .into_iter()
        .filter_map(Result::err)
    {
        tracing::warn!(error = %failed, "a default role or binding was not stored");
    }
}

fn write(server: &Server, kind: PolicyKind, mut object: Value) -> Option<Write> {
    let collection = Arc::clone(server.authorizer.index.collection(kind)?);
    let namespace = meta::text(&object, "/metadata/namespace");
    let namespace = (!namespace.is_empty()).then_some(namespace);
    let key = Key::new(namespace, meta::name(&object));
    let stored = collection.get(&key);
    let expected = stored
        .as_ref()
        .map_or(Expected::Absent, |stored| Expected::At(stored.revision));
    let outcome = stored.map(|stored| reconcile(&stored.value(), &object));
    let object = match outcome {
        Some(Reconciled::Unchanged) => return None,
        Some(Reconciled::Completed(completed)) => completed,
        Some(Reconciled::Replaced) | None => {
            server.stamp(&mut object);
            object
        }
    };
    let change = Change::Put(Draft::new(&collection.resource, &object));
    Some(Write {
        collection,
        key,
        expected,
        change,
    })
}

/// Every default role and binding, as a client would have sent it.
fn expected() -> impl Iterator<Item = (PolicyKind, Value)> {
    POLICY.lines().filter_map(read)
}

fn read(line: &str) -> Option<(PolicyKind, Value)> {
    let short: Value = serde_json::from_str(line).ok()?;
    let kind = PolicyKind::of(meta::text(&short, "/kind"))?;
    let mut labels = short.get("labels").cloned().unwrap_or_else(|| json!({}));
    labels["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
    let mut object = json!({
        "kind": kind.name(), "apiVersion": format!("{GROUP}/v1"),
        "metadata": {
            "name": short["name"], "labels": labels, "annotations": {AUTOUPDATE: "true"},
        },
    });
    if let Some(namespace) = short.get("namespace") {
        object["metadata"]["namespace"] = namespace.clone();
    }
    if let Some(gathered) = short["aggregates"].as_array() {
        let selectors: Vec<Value> = gathered
            .iter()
            .map(|labels| json!({"matchLabels": labels}))
            .collect();
        object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    if let Some(rules) = short.get("rules") {
        object["rules"] = rules.clone();
    }
    if let Some(role) = short.get("roleRef") {
        object["roleRef"] = json!({"apiGroup": GROUP, "kind": role["kind"], "name": role["name"]});
        let subjects = short["subjects"].as_array().into_iter().flatten();
        object["subjects"] = subjects.cloned().collect();
    }
    Some((kind, object))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::server::strategy;

    #[test]
    fn every_line_is_a_role_or_a_binding() {
        assert_eq!(expected().count(), POLICY.lines().count());
        let names: BTreeSet<(PolicyKind, String)> = expected()
            .map(|(kind, object)| (kind, meta::name(&object).to_owned()))
            .collect();
        for name in [
            "admin",
            "cluster-admin",
            "edit",
            "system:basic-user",
            "system:discovery",
            "system:node",
            "system:public-info-viewer",
            "system:service-account-issuer-discovery",
            "view",
        ] {
            assert!(
                names.contains(&(PolicyKind::ClusterRole, name.to_owned())),
                "{name}"
            );
        }
        assert!(names.contains(&(PolicyKind::ClusterRoleBinding, "cluster-admin".to_owned())));
        assert!(
            names
                .iter()
                .any(|(kind, _)| *kind == PolicyKind::RoleBinding)
        );
    }

    #[test]
    fn every_default_would_be_accepted_from_a_client() {
        for (kind, mut object) in expected() {
            let before = object.clone();
            strategy::access::set_defaults(&mut object);
            assert_eq!(object, before, "a default that is not in the data");
            let causes = strategy::access::violations(kind.name(), &object, None);
            assert!(causes.is_empty(), "{object}: {causes:?}");
        }
    }
}
