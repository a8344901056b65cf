//! Which requests the rules of a webhook match. Pure.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::question::Operation;

/// The parts of a request that rules match.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) plural: &'a str,
    /// Empty for the object itself.
    pub(super) subresource: &'a str,
    /// Whether the object is in a namespace; namespaces themselves are not.
    pub(super) is_namespaced: bool,
}

/// An item of `rules`. Empty lists match nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<String>,
}

impl From<RuleWithOperations> for Rule {
    fn from(rule: RuleWithOperations) -> Rule {
        Rule {
            operations: rule.operations.unwrap_or_default(),
            groups: rule.api_groups.unwrap_or_default(),
            versions: rule.api_versions.unwrap_or_default(),
            resources: rule.resources.unwrap_or_default(),
            scope: rule.scope,
        }
    }
}

impl Rule {
    /// Whether the rule is about a request.
    pub(super) fn matches(&self, asked: &Asked<'_>) -> bool {
        names(&self.versions, asked.version) && self.matches_a_version(asked)
    }

    /// Whether it would be, were its resource served in another version.
    pub(super) fn matches_a_version(&self, asked: &Asked<'_>) -> bool {
        names(&self.operations, asked.operation.name())
            && names(&self.groups, asked.group)
            && self.names_resource(asked)
            && match self.scope.as_deref() {
                Some("Namespaced") => asked.is_namespaced,
                Some("Cluster") => !asked.is_namespaced,
                Some(_) | None => true,
            }
    }

    fn names_resource(&self, asked: &Asked<'_>) -> bool {
        self.resources.iter().any(|entry| {
            let (plural, subresource) = entry.split_once('/').unwrap_or((entry, ""));
            (plural == "*" || plural == asked.plural)
                && (subresource == "*" || subresource == asked.subresource)
        })
    }
}

fn names(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_match(rule: Value, subresource: &str, is_namespaced: bool) -> bool {
        let mut whole = json!({
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        });
        json_patch::merge(&mut whole, &rule);
        let rule: RuleWithOperations = serde_json::from_value(whole).unwrap();
        Rule::from(rule).matches(&Asked {
            operation: Operation::Create,
            group: "",
            version: "v1",
            plural: "pods",
            subresource,
            is_namespaced,
        })
    }

    #[test]
    fn rules_name_what_they_are_about_or_everything() {
        for (rule, subresource, expected) in [
            (json!({}), "", true),
            (json!({}), "status", false),
            (json!({"operations": ["*"]}), "", true),
            (json!({"operations": ["DELETE", "UPDATE"]}), "", false),
            (json!({"apiGroups": ["*"], "apiVersions": ["*"]}), "", true),
            (json!({"apiGroups": ["apps"]}), "", false),
            (json!({"apiVersions": ["v1beta1"]}), "", false),
            (json!({"apiVersions": []}), "", false),
            (json!({"resources": ["*"]}), "", true),
            (json!({"resources": ["*"]}), "status", false),
            (json!({"resources": ["*/*"]}), "", true),
            (json!({"resources": ["*/*"]}), "status", true),
            (json!({"resources": ["pods/*"]}), "eviction", true),
            (json!({"resources": ["*/status"]}), "status", true),
            (json!({"resources": ["pods/status"]}), "", false),
            (
                json!({"resources": ["configmaps", "pods/eviction"]}),
                "eviction",
                true,
            ),
        ] {
            assert_eq!(
                is_match(rule.clone(), subresource, true),
                expected,
                "{rule} {subresource}"
            );
        }
    }

    #[test]
    fn rules_have_a_scope() {
        for (scope, of_namespaced, of_others) in [
            ("*", true, true),
            ("Namespaced", true, false),
            ("Cluster", false, true),
        ] {
            let rule = json!({"scope": scope});
            assert_eq!(is_match(rule.clone(), "", true), of_namespaced, "{scope}");
            assert_eq!(is_match(rule, "", false), of_others, "{scope}");
        }
    }
}
