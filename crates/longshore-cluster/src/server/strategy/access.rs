//! Roles and their bindings: rules, the role that a binding refers to, and its subjects.

use serde_json::{Value, json};

use crate::server::{admission::selector_violations, error::Cause, meta, names::NameRule};

const GROUP: &str = "rbac.authorization.k8s.io";
const SUBJECT_KINDS: &[&str] = &["ServiceAccount", "User", "Group"];

/// Sets the group of the role that a binding refers to, and of its subjects.
pub(crate) fn set_defaults(object: &mut Value) {
    if let Some(role) = object.get_mut("roleRef").and_then(Value::as_object_mut)
        && role.get("apiGroup").is_none_or(|group| group == "")
    {
        role.insert("apiGroup".into(), GROUP.into());
    }
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        let is_named = matches!(meta::text(subject, "/kind"), "User" | "Group");
        if is_named && meta::text(subject, "/apiGroup").is_empty() {
            meta::members(subject).insert("apiGroup".into(), GROUP.into());
        }
    }
}

/// What is wrong with an object of these kinds.
pub(crate) fn violations(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = content_violations(kind, new);
    let Some(old) = old else { return causes };
    // Upstream checks an update twice, and says it twice.
    causes.extend(content_violations(kind, new));
    if is_binding(kind) && new["roleRef"] != old["roleRef"] {
        let role = &new["roleRef"];
        // Upstream's internal type, which has no names for JSON.
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            json!(meta::text(role, "/apiGroup")),
            json!(meta::text(role, "/kind")),
            json!(meta::text(role, "/name"))
        );
        let message = format!("Invalid value: {shown}: cannot change roleRef");
        causes.push(Cause::new("FieldValueInvalid", "roleRef", message));
    }
    causes
}

fn is_binding(kind: &str) -> bool {
    matches!(kind, "RoleBinding" | "ClusterRoleBinding")
}

fn content_violations(kind: &str, object: &Value) -> Vec<Cause> {
    let is_namespaced = matches!(kind, "Role" | "RoleBinding");
    if is_binding(kind) {
        let mut causes = role_violations(is_namespaced, &object["roleRef"]);
        for (n, subject) in items(&object["subjects"]).enumerate() {
            let field = format!("subjects[{n}]");
            causes.extend(subject_violations(is_namespaced, &field, subject));
        }
        return causes;
    }
    let mut causes = Vec::new();
    for (n, rule) in items(&object["rules"]).enumerate() {
        let field = format!("rules[{n}]");
        causes.extend(rule_violations(is_namespaced, &field, rule));
    }
    if let Some(aggregation) = object.get("aggregationRule") {
        causes.extend(aggregation_violations(aggregation));
    }
    causes
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn aggregation_violations(aggregation: &Value) -> Vec<Cause> {
    let field = "aggregationRule.clusterRoleSelectors";
    let selectors: Vec<&Value> = items(&aggregation["clusterRoleSelectors"]).collect();
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        return vec![Cause::required(field, why)];
    }
    let mut causes = Vec::new();
    for (n, selector) in selectors.into_iter().enumerate() {
        let field = format!("{field}[{n}]");
        let faults = selector_violations(&field, selector);
        if !faults.is_empty() {
            causes.extend(faults);
            let why = "invalid label selector.";
            causes.push(Cause::invalid(&field, &Value::Null, why));
        }
    }
    causes
}

fn rule_violations(is_namespaced: bool, field: &str, rule: &Value) -> Vec<Cause> {
    let has = |name: &str| items(&rule[name]).next().is_some();
    let mut causes = Vec::new();
    let mut require = |name: &str, why: &str| {
        if !has(name) {
            causes.push(Cause::required(&format!("{field}.{name}"), why));
        }
    };
    require("verbs", "verbs must contain at least one value");
    if !has("nonResourceURLs") {
        require(
            "apiGroups",
            "resource rules must supply at least one api group",
        );
        require(
            "resources",
            "resource rules must supply at least one resource",
        );
        return causes;
    }
    let paths = &rule["nonResourceURLs"];
    let field = format!("{field}.nonResourceURLs");
    if is_namespaced {
        let why = "namespaced rules cannot apply to non-resource URLs";
        causes.push(Cause::invalid(&field, paths, why));
    }
    if has("apiGroups") || has("resources") || has("resourceNames") {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        causes.push(Cause::invalid(&field, paths, why));
    }
    causes
}

fn role_violations(is_namespaced: bool, role: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let group = meta::text(role, "/apiGroup");
    if group != GROUP {
        causes.push(Cause::unsupported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kinds: &[&str] = match is_namespaced {
        true => &["Role", "ClusterRole"],
        false => &["ClusterRole"],
    };
    let kind = meta::text(role, "/kind");
    if !kinds.contains(&kind) {
        causes.push(Cause::unsupported("roleRef.kind", kind, kinds));
    }
    let name = meta::text(role, "/name");
    if name.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    } else {
        let faults = NameRule::PathSegment.violations(name).into_iter();
        let cause = |why: String| Cause::invalid("roleRef.name", &name.into(), &why);
        causes.extend(faults.map(cause));
    }
    causes
}

fn subject_violations(is_namespaced: bool, field: &str, subject: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (kind, name) = (meta::text(subject, "/kind"), meta::text(subject, "/name"));
    let group = meta::text(subject, "/apiGroup");
    let below = |member: &str| format!("{field}.{member}");
    if name.is_empty() {
        causes.push(Cause::required(&below("name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                let faults = NameRule::Subdomain.violations(name).into_iter();
                let cause = |why: String| Cause::invalid(&below("name"), &name.into(), &why);
                causes.extend(faults.map(cause));
            }
            if !group.is_empty() {
                causes.push(Cause::unsupported(&below("apiGroup"), group, &[""]));
            }
            if !is_namespaced && meta::text(subject, "/namespace").is_empty() {
                causes.push(Cause::required(&below("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                causes.push(Cause::unsupported(&below("apiGroup"), group, &[GROUP]));
            }
        }
        _ => causes.push(Cause::unsupported(&below("kind"), kind, SUBJECT_KINDS)),
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that are complained about.
    fn fields(kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
        let causes = violations(kind, new, old).into_iter();
        causes.map(|cause| cause.field).collect()
    }

    #[test]
    fn rules_are_about_resources_or_about_paths() {
        let verbs = json!(["get"]);
        for (kind, rule, expected) in [
            (
                "Role",
                json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs}),
                vec![],
            ),
            (
                "Role",
                json!({"apiGroups": [""], "resources": ["pods"]}),
                vec!["rules[0].verbs"],
            ),
            (
                "Role",
                json!({"verbs": verbs}),
                vec!["rules[0].apiGroups", "rules[0].resources"],
            ),
            (
                "Role",
                json!({"nonResourceURLs": ["/a"], "verbs": verbs}),
                vec!["rules[0].nonResourceURLs"],
            ),
            (
                "ClusterRole",
                json!({"nonResourceURLs": ["/a"], "verbs": verbs}),
                vec![],
            ),
            (
                "ClusterRole",
                json!({"nonResourceURLs": ["/a"], "resources": ["pods"], "verbs": verbs}),
                vec!["rules[0].nonResourceURLs"],
            ),
        ] {
            let found = fields(kind, &json!({"rules": [rule]}), None);
            assert_eq!(found, expected, "{kind} {rule}");
        }
        let empty = json!({"aggregationRule": {}});
        let expected = ["aggregationRule.clusterRoleSelectors"];
        assert_eq!(fields("ClusterRole", &empty, None), expected);
    }

    #[test]
    fn a_binding_names_a_role_and_subjects() {
        let good = json!({"kind": "ClusterRole", "name": "r"});
        for (kind, role, subject, expected) in [
            (
                "RoleBinding",
                good.clone(),
                json!({"kind": "User", "name": "u"}),
                vec![],
            ),
            (
                "RoleBinding",
                good.clone(),
                json!({"kind": "ServiceAccount", "name": "a"}),
                vec![],
            ),
            (
                "ClusterRoleBinding",
                good.clone(),
                json!({"kind": "ServiceAccount", "name": "a"}),
                vec!["subjects[0].namespace"],
            ),
            (
                "ClusterRoleBinding",
                json!({"kind": "Role", "name": "r"}),
                json!({"kind": "Group", "name": "g"}),
                vec!["roleRef.kind"],
            ),
            (
                "RoleBinding",
                json!({"kind": "Pod", "apiGroup": "x"}),
                json!({"kind": "Robot"}),
                vec![
                    "roleRef.apiGroup",
                    "roleRef.kind",
                    "roleRef.name",
                    "subjects[0].name",
                    "subjects[0].kind",
                ],
            ),
            (
                "RoleBinding",
                good.clone(),
                json!({"kind": "ServiceAccount", "name": "A", "apiGroup": GROUP}),
                vec!["subjects[0].name", "subjects[0].apiGroup"],
            ),
        ] {
            let mut binding = json!({"roleRef": role, "subjects": [subject]});
            set_defaults(&mut binding);
            assert_eq!(fields(kind, &binding, None), expected, "{kind} {binding}");
        }
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        let mut old = json!({"roleRef": {"kind": "Role", "name": "r"}});
        set_defaults(&mut old);
        assert_eq!(old["roleRef"]["apiGroup"], GROUP);
        assert!(violations("RoleBinding", &old, Some(&old)).is_empty());
        let mut new = old.clone();
        new["roleRef"]["name"] = "other".into();
        let causes = violations("RoleBinding", &new, Some(&old));
        let expected = "Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: \
                        cannot change roleRef";
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].message, expected);
    }
}
