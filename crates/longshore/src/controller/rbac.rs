//! The role that the controller needs, made from what its code declares: what is not declared is not granted.

use longshore_kit::{Reach, Rule};
use serde_json::{Value, json};

use super::roles::Role;

/// The name of the objects, and of the service account.
const NAME: &str = "longshore";

/// What a role does with its lease, if it has one. `create` cannot be restricted to a name.
pub(super) fn lease_rules(leases: &'static [&'static str]) -> Vec<Rule> {
    const GROUP: &str = "coordination.k8s.io";
    if leases.is_empty() {
        return Vec::new();
    }
    vec![
        Rule::new(GROUP, &["leases"], &["create"]),
        Rule::new(GROUP, &["leases"], &["get", "patch"]).named(leases),
    ]
}

/// A ServiceAccount, and the roles that let it do what `roles` do, in this namespace.
pub(crate) fn objects(roles: &[&'static Role], namespace: &str) -> Vec<Value> {
    let mut rules: Vec<Rule> = Vec::new();
    for role in roles {
        let of_lease = lease_rules(role.lease.as_slice());
        rules.extend(role.rules.iter().copied().chain(of_lease));
    }
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    })];
    for reach in [Reach::Namespace, Reach::Cluster] {
        let rules = in_reach(&rules, reach);
        if !rules.is_empty() {
            objects.extend(role_and_binding(reach, namespace, rules));
        }
    }
    objects
}

/// The objects as a stream of YAML documents.
pub(crate) fn yaml(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| {
        // Our own objects always serialise; if one did not, the reason would be no YAML.
        serde_saphyr::to_string(object).unwrap_or_else(|why| format!("{{{{ {why}\n"))
    });
    documents.collect::<Vec<_>>().join("---\n")
}

fn in_reach(rules: &[Rule], reach: Reach) -> Vec<Value> {
    let mut in_reach = Vec::new();
    for rule in rules.iter().filter(|rule| rule.reach == reach) {
        let mut object = json!({
            "apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs,
        });
        if !rule.names.is_empty() {
            object["resourceNames"] = json!(rule.names);
        }
        // Two roles may declare the same.
        if !in_reach.contains(&object) {
            in_reach.push(object);
        }
    }
    in_reach
}

fn role_and_binding(reach: Reach, namespace: &str, rules: Vec<Value>) -> [Value; 2] {
    let kind = match reach {
        Reach::Namespace => "Role",
        Reach::Cluster => "ClusterRole",
    };
    // Objects outside of namespaces share their names: there may be a controller in each namespace.
    let metadata = match reach {
        Reach::Namespace => json!({"name": NAME, "namespace": namespace}),
        Reach::Cluster => json!({"name": format!("{NAME}:{namespace}")}),
    };
    let api_version = "rbac.authorization.k8s.io/v1";
    let name = metadata["name"].clone();
    [
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::controller::roles::{ROLES, defaults};

    #[test]
    fn the_manifest_in_the_repository_is_what_the_code_declares() {
        let made = format!("{HEAD}{}", yaml(&objects(&defaults(), "longshore")));
        is_in_the_repository("deploy/rbac.yaml", &made);
    }

    #[test]
    fn the_manifest_of_podops_is_what_the_code_declares_with_its_resource_and_service() {
        let podops: Vec<_> = ROLES.iter().filter(|role| role.name == "podops").collect();
        let resource = podops[0].definition.unwrap();
        let roles = yaml(&objects(&podops, "longshore"));
        let made = format!("{PODOPS_HEAD}{resource}---\n{roles}---\n{PODOPS_SERVICE}");
        is_in_the_repository("deploy/podops.yaml", &made);
    }

    /// `UPDATE=1` writes it anew.
    fn is_in_the_repository(path: &str, made: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path);
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, made).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, made, "UPDATE=1 cargo test -p longshore rbac");
    }

    const HEAD: &str = "\
# What `longshore controller` needs in a cluster, for the namespace `longshore`; made by
# `longshore controller rbac --namespace longshore` from what the code declares. Do not edit.
";

    const PODOPS_HEAD: &str = "\
# What `longshore controller --enable podops` needs in a cluster, for the namespace `longshore`: its resource, its roles, and
# the Service through which API servers reach its webhooks; made from what the code declares. Do not edit.
";

    const PODOPS_SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: longshore-podops
  namespace: longshore
spec:
  selector:
    app.kubernetes.io/name: longshore
  ports:
  - port: 443
    targetPort: 9443
";

    #[test]
    fn nothing_is_granted_on_everything() {
        let roles: Vec<_> = ROLES.iter().collect();
        let text = yaml(&objects(&roles, "longshore"));
        assert!(!text.contains('*'), "{text}");
    }
}
