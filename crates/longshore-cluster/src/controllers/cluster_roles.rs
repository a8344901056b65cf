//! Aggregated ClusterRoles: their rules are those of the ClusterRoles that their selectors select.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use longshore_k8s::Selector;
use serde_json::json;

use super::queue::Queue;

type Roles = BTreeMap<String, ClusterRole>;

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let api: Api<ClusterRole> = Api::all(client);
    let mut events = watcher(api.clone(), Config::default())
        .default_backoff()
        .boxed();
    let (mut roles, mut listed) = (Roles::new(), Roles::new());
    let mut queue: Queue<String> = Queue::new();
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => match event {
                Ok(event) => {
                    if take(event, &mut roles, &mut listed) {
                        // Any role may count for any other one.
                        for name in roles.keys() {
                            queue.add(name.clone());
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "watch failed, starting again"),
            },
            name = queue.next() => match write(&api, &roles, &name).await {
                Ok(()) => queue.succeed(&name),
                Err(error) => {
                    tracing::debug!(%error, role = name, "role not aggregated, trying again");
                    queue.retry(name);
                }
            },
        }
    }
}

/// Takes in an event; returns whether the roles are known and may have changed.
fn take(event: Event<ClusterRole>, roles: &mut Roles, listed: &mut Roles) -> bool {
    match event {
        Event::Apply(role) => {
            roles.insert(name_of(&role), role);
            true
        }
        Event::Delete(role) => {
            roles.remove(&name_of(&role));
            true
        }
        Event::Init => {
            listed.clear();
            false
        }
        Event::InitApply(role) => {
            listed.insert(name_of(&role), role);
            false
        }
        Event::InitDone => {
            *roles = std::mem::take(listed);
            true
        }
    }
}

fn name_of(role: &ClusterRole) -> String {
    role.metadata.name.clone().unwrap_or_default()
}

/// Gives a role the rules that it gathers, when it has others.
async fn write(api: &Api<ClusterRole>, roles: &Roles, name: &str) -> Result<(), Error> {
    let Some(rules) = roles.get(name).and_then(|role| lacking(role, roles)) else {
        return Ok(());
    };
    let patch = Patch::Merge(json!({"rules": rules}));
    let parameters = PatchParams {
        field_manager: Some("clusterrole-aggregation-controller".to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &parameters, &patch).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The rules that a role should have, when it has others; none for a role that gathers no rules.
fn lacking(role: &ClusterRole, roles: &Roles) -> Option<Vec<PolicyRule>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        // The API server accepts no other ones.
        let selector = Selector::read(&json!(selector)).ok()?;
        let selected = roles.values().filter(|other| {
            let labels = other.metadata.labels.as_ref();
            let is_other = other.metadata.name != role.metadata.name;
            is_other && selector.matches(labels.unwrap_or(&BTreeMap::new()))
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    let present = role.rules.as_deref().unwrap_or_default();
    (rules != present).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: &str, gathers: &str, verbs: &[&str]) -> ClusterRole {
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        });
        if !label.is_empty() {
            role["metadata"]["labels"] = json!({label: "true"});
        }
        if !gathers.is_empty() {
            let selectors = json!([{"matchLabels": {gathers: "true"}}]);
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        let rules = verbs
            .iter()
            .map(|verb| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}));
        role["rules"] = rules.collect();
        serde_json::from_value(role).unwrap()
    }

    fn verbs(rules: Option<Vec<PolicyRule>>) -> Option<Vec<String>> {
        rules.map(|rules| rules.into_iter().flat_map(|rule| rule.verbs).collect())
    }

    #[test]
    fn a_role_gathers_the_rules_of_those_that_it_selects() {
        let all = [
            role("view", "to-edit", "to-view", &["old"]),
            role("a", "to-view", "", &["get"]),
            role("b", "to-view", "", &["get", "list"]),
            role("c", "other", "", &["delete"]),
            role("d", "", "", &["watch"]),
            role("self", "to-self", "to-self", &["x"]),
            role("done", "", "to-view", &["get", "list"]),
        ];
        let roles: Roles = all.into_iter().map(|role| (name_of(&role), role)).collect();
        for (name, expected) in [
            ("view", Some(vec!["get", "list"])),
            ("a", None),
            ("self", Some(vec![])),
            ("done", None),
        ] {
            let expected: Option<Vec<String>> =
                expected.map(|verbs| verbs.into_iter().map(str::to_owned).collect());
            assert_eq!(verbs(lacking(&roles[name], &roles)), expected, "{name}");
        }
    }
}
