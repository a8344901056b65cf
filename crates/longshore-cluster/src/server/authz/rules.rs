//! Rules of roles: what they allow, and how they read in a refusal. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    attributes::{Attributes, Target},
    coverage::Missing,
};

/// Stands for every verb, group, resource and path.
pub(super) const ALL: &str = "*";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) resource_names: Vec<String>,
    pub(crate) non_resource_urls: Vec<String>,
}

/// The texts in a list; nothing when there is no list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        Rule {
            verbs: texts(&rule["verbs"]),
            api_groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            resource_names: texts(&rule["resourceNames"]),
            non_resource_urls: texts(&rule["nonResourceURLs"]),
        }
    }

    /// The rules of a role.
    pub(crate) fn all_of(role: &Value) -> Vec<Rule> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(Rule::read).collect()
    }

    /// Everything: what only a member of `system:masters` or a cluster administrator holds.
    pub(crate) fn full_authority() -> Vec<Rule> {
        let all = || vec![ALL.to_owned()];
        let resources = Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Rule::default()
        };
        let paths = Rule {
            verbs: all(),
            non_resource_urls: all(),
            ..Rule::default()
        };
        vec![resources, paths]
    }

    /// The rule as objects carry it: empty lists are left out.
    pub(crate) fn to_json(&self) -> Value {
        let mut rule = Map::new();
        for (name, list) in self.lists() {
            if !list.is_empty() {
                rule.insert(name.to_owned(), json!(list));
            }
        }
        Value::Object(rule)
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
            ("verbs", &self.verbs),
        ]
    }

    /// Whether the rule allows what is asked.
    pub(crate) fn allows(&self, asked: &Attributes) -> bool {
        has_or_all(&self.verbs, &asked.verb)
            && match &asked.target {
                Target::Resource(target) => {
                    has_or_all(&self.api_groups, &target.group)
                        && self.names_resource(&target.resource, &target.subresource)
                        && (self.resource_names.is_empty()
                            || self.resource_names.contains(&target.name))
                }
                Target::Path(path) => {
                    let mut patterns = self.non_resource_urls.iter();
                    patterns.any(|pattern| pattern == ALL || path_covers(pattern, path))
                }
            }
    }

    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        let is_it = |named: &String| {
            if named == ALL {
                return true;
            }
            match named.split_once('/') {
                None => subresource.is_empty() && named == resource,
                Some((of, part)) => {
                    !subresource.is_empty() && part == subresource && (of == ALL || of == resource)
                }
            }
        };
        self.resources.iter().any(is_it)
    }

    /// The rule in a refusal: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        for (name, list) in self.lists() {
            let name = match name {
                "apiGroups" => "APIGroups",
                "resources" => "Resources",
                "nonResourceURLs" => "NonResourceURLs",
                "resourceNames" => "ResourceNames",
                _ => "Verbs",
            };
            if !list.is_empty() {
                parts.push(format!("{name}:{}", quoted(list)));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}

/// Texts as Go's `%q` prints a list of them.
pub(super) fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| it == ALL || it == wanted)
}

/// Whether a path of a rule, which may end in `*`, includes another path.
fn path_covers(pattern: &str, path: &str) -> bool {
    pattern == path || path_pattern(pattern).is_some_and(|prefix| path.starts_with(prefix))
}

/// What all paths begin with that a path of a rule includes; `None` where that is one path.
pub(super) fn path_pattern(path: &str) -> Option<&str> {
    path.ends_with('*').then(|| path.trim_end_matches('*'))
}

/// Missing rights for a refusal, a line each: the verbs of one resource are put together.
pub(super) fn describe(missing: &Missing) -> String {
    let mut lines = BTreeSet::new();
    let mut merged = BTreeMap::<_, Vec<String>>::new();
    for rule in &missing.pieces {
        if rule.non_resource_urls.is_empty() {
            let of = (&*rule.api_groups, &*rule.resources, &*rule.resource_names);
            merged.entry(of).or_default().extend_from_slice(&rule.verbs);
        } else {
            lines.insert(rule.describe());
        }
    }
    for ((groups, resources, names), verbs) in merged {
        let rule = Rule {
            verbs,
            api_groups: groups.to_vec(),
            resources: resources.to_vec(),
            resource_names: names.to_vec(),
            ..Rule::default()
        };
        lines.insert(rule.describe());
    }
    let mut lines = Vec::from_iter(lines);
    if missing.is_cut {
        lines.push("and more".to_owned());
    }
    if missing.is_unfinished {
        lines.push(
            "the rules are too many to be compared in full: write fewer rules, or fewer names in one".to_owned(),
        );
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: Value) -> Vec<Rule> {
        Rule::all_of(&json!({"rules": rules}))
    }

    fn allows(rule: Value, asked: &str) -> bool {
        rules(json!([rule]))[0].allows(&Attributes::for_test(asked))
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
        let log = json!({"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]});
        let scales = json!({"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]});
        let named = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "create"],
        });
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        for (rule, asked, expected) in [
            (&pods, "get /pods ns/a", true),
            (&pods, "list /pods ns/", true),
            (&pods, "list /pods /", true),
            (&pods, "watch /pods ns/", false),
            (&pods, "get apps/pods ns/a", false),
            (&pods, "get /pods/log ns/a", false),
            (&log, "get /pods/log ns/a", true),
            (&log, "get /pods ns/a", false),
            (&scales, "update apps/deployments/scale ns/a", true),
            (&scales, "update apps/deployments ns/a", false),
            (&scales, "update apps/deployments/status ns/a", false),
            (&named, "get /configmaps ns/a", true),
            (&named, "get /configmaps ns/b", false),
            (&named, "create /configmaps ns/", false),
            (&all, "deletecollection x.y/zs/part ns/a", true),
            (&all, "get @/version", false),
        ] {
            assert_eq!(allows(rule.clone(), asked), expected, "{rule} {asked}");
        }
    }

    #[test]
    fn a_rule_of_paths_may_end_in_a_star() {
        let rule = json!({"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]});
        for (asked, expected) in [
            ("get @/healthz", true),
            ("get @/healthz/ping", false),
            ("get @/api/v1", true),
            ("get @/api/", true),
            ("get @/api", false),
            ("post @/api/v1", false),
            ("get /pods ns/a", false),
        ] {
            assert_eq!(allows(rule.clone(), asked), expected, "{asked}");
        }
        let every = json!({"nonResourceURLs": ["*"], "verbs": ["*"]});
        assert!(allows(every, "post @/anything"));
    }
}
