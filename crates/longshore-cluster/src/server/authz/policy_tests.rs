//! Decisions of a policy.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    attributes::Attributes,
    policy::{Policy, PolicyKind, Verdict},
};
use crate::server::auth::UserInfo;

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        username: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": resources, "verbs": verbs})
}

fn role(rules: &[Value]) -> Value {
    json!({"rules": rules})
}

fn binding(kind: &str, role: &str, subjects: &[Value]) -> Value {
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

/// `reader` reads pods in namespace `a`: jane, the group `devs`, and the account `bot` there. `ops` reads nodes.
fn policy() -> Policy {
    let mut policy = Policy::default();
    let reader = role(&[rule(&["get", "list"], &["pods"])]);
    policy.put(PolicyKind::Role, "a/reader", &reader);
    let nodes = role(&[rule(&["get"], &["nodes", "pods"])]);
    policy.put(PolicyKind::ClusterRole, "nodes", &nodes);
    let subjects = [
        json!({"kind": "User", "name": "jane"}),
        json!({"kind": "Group", "name": "devs"}),
        json!({"kind": "ServiceAccount", "name": "bot"}),
    ];
    let readers = binding("Role", "reader", &subjects);
    policy.put(PolicyKind::RoleBinding, "a/readers", &readers);
    let ops = binding(
        "ClusterRole",
        "nodes",
        &[json!({"kind": "Group", "name": "ops"})],
    );
    policy.put(PolicyKind::ClusterRoleBinding, "ops", &ops);
    let local = binding(
        "ClusterRole",
        "nodes",
        &[json!({"kind": "User", "name": "local"})],
    );
    policy.put(PolicyKind::RoleBinding, "b/local", &local);
    policy
}

fn decide(policy: &Policy, user: &UserInfo, asked: &str) -> Verdict {
    policy.decide(user, &Attributes::for_test(asked))
}

#[test]
fn a_binding_grants_its_role_where_it_is() {
    let policy = policy();
    let account = "system:serviceaccount:a:bot";
    for (user, asked, expected) in [
        (user("jane", &[]), "list /pods a/", true),
        (user("jane", &[]), "list /pods b/", false),
        (user("jane", &[]), "list /pods /", false),
        (user("jane", &[]), "delete /pods a/p", false),
        (user("joe", &["devs"]), "get /pods a/p", true),
        (user("devs", &[]), "get /pods a/p", false),
        (user("joe", &["jane"]), "get /pods a/p", false),
        (user(account, &[]), "get /pods a/p", true),
        (
            user("system:serviceaccount:b:bot", &[]),
            "get /pods a/p",
            false,
        ),
        (user("bot", &[]), "get /pods a/p", false),
        (user("joe", &["ops"]), "get /nodes /n", true),
        (user("joe", &["ops"]), "get /pods any/p", true),
        (user("local", &[]), "get /pods b/p", true),
        (user("local", &[]), "get /pods a/p", false),
        (user("local", &[]), "get /nodes /n", false),
        (user("", &[]), "get /pods a/p", false),
    ] {
        let verdict = decide(&policy, &user, asked);
        assert_eq!(verdict.is_allowed, expected, "{} {asked}", user.username);
    }
}

#[test]
fn a_verdict_says_who_allows_it() {
    let policy = policy();
    for (user, asked, expected) in [
        (
            user("jane", &[]),
            "get /pods a/p",
            "RBAC: allowed by RoleBinding \"readers/a\" of Role \"reader\" to User \"jane\"",
        ),
        (
            user("system:serviceaccount:a:bot", &[]),
            "get /pods a/p",
            "RBAC: allowed by RoleBinding \"readers/a\" of Role \"reader\" to ServiceAccount \"bot/a\"",
        ),
        (
            user("joe", &["ops"]),
            "get /nodes /n",
            "RBAC: allowed by ClusterRoleBinding \"ops\" of ClusterRole \"nodes\" to Group \"ops\"",
        ),
        (user("joe", &[]), "get /nodes /n", ""),
    ] {
        assert_eq!(decide(&policy, &user, asked).reason, expected);
    }
}

#[test]
fn roles_that_do_not_exist_are_named() {
    let mut policy = policy();
    policy.remove(PolicyKind::Role, "a/reader");
    let jane = user("jane", &["devs"]);
    let one = "RBAC: role.rbac.authorization.k8s.io \"reader\" not found";
    assert_eq!(decide(&policy, &jane, "get /pods a/p").reason, one);
    let subject = json!({"kind": "User", "name": "jane"});
    let other = binding("ClusterRole", "gone", &[subject]);
    policy.put(PolicyKind::ClusterRoleBinding, "other", &other);
    let both = "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, \
                role.rbac.authorization.k8s.io \"reader\" not found]";
    assert_eq!(decide(&policy, &jane, "get /pods a/p").reason, both);
    assert_eq!(policy.rules_of(&jane, "a").missing.len(), 2);
}

#[test]
fn a_changed_binding_counts_and_a_deleted_one_does_not() {
    let mut policy = policy();
    let jane = user("jane", &[]);
    let joe = user("joe", &[]);
    let may = |policy: &Policy, user| decide(policy, user, "get /pods a/p").is_allowed;
    assert!(may(&policy, &jane) && !may(&policy, &joe));
    let changed = binding("Role", "reader", &[json!({"kind": "User", "name": "joe"})]);
    policy.put(PolicyKind::RoleBinding, "a/readers", &changed);
    assert!(!may(&policy, &jane) && may(&policy, &joe));
    policy.remove(PolicyKind::RoleBinding, "a/readers");
    assert!(!may(&policy, &joe));
    // Nothing of it is left in the indexes.
    let mut expected = Policy::default();
    for (kind, key) in [
        (PolicyKind::ClusterRoleBinding, "ops"),
        (PolicyKind::RoleBinding, "b/local"),
        (PolicyKind::Role, "a/reader"),
        (PolicyKind::ClusterRole, "nodes"),
    ] {
        policy.remove(kind, key);
        expected.remove(kind, key);
    }
    assert_eq!(policy, expected);
}

fn some_rule() -> impl Strategy<Value = Value> {
    let list = || proptest::collection::vec(select(vec!["a", "b", "*"]), 0..3);
    (list(), list(), list(), list()).prop_map(|(verbs, groups, resources, names)| {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    })
}

fn bound(rules: &[Value]) -> Policy {
    let mut policy = Policy::default();
    for (n, rule) in rules.iter().enumerate() {
        // Two rules a role.
        let name = format!("r{}", n / 2);
        let others: Vec<Value> = rules.iter().skip(n / 2 * 2).take(2).cloned().collect();
        debug_assert!(others.contains(rule));
        policy.put(PolicyKind::ClusterRole, &name, &role(&others));
        let subject = json!({"kind": "User", "name": "u"});
        let binding = binding("ClusterRole", &name, &[subject]);
        policy.put(PolicyKind::ClusterRoleBinding, &name, &binding);
    }
    policy
}

proptest! {
    #[test]
    fn the_order_of_rules_does_not_matter(
        (rules, shuffled) in proptest::collection::vec(some_rule(), 0..6)
            .prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        verb in select(vec!["a", "b", "c"]),
        group in select(vec!["a", "b", "c"]),
        resource in select(vec!["a", "b", "c"]),
        name in select(vec!["", "a", "c"]),
    ) {
        let asked = Attributes::for_test(&format!("{verb} {group}/{resource} ns/{name}"));
        let user = user("u", &[]);
        let first = bound(&rules).decide(&user, &asked).is_allowed;
        let second = bound(&shuffled).decide(&user, &asked).is_allowed;
        prop_assert_eq!(first, second);
        // And a role allows what one of its rules allows alone.
        let alone = rules.iter().any(|rule| {
            bound(std::slice::from_ref(rule)).decide(&user, &asked).is_allowed
        });
        prop_assert_eq!(first, alone);
    }
}
