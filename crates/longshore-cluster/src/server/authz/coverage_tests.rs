//! What is missing of rules: by example, against a look at each combination, and for rules of hostile sizes.

use serde_json::{Value, json};

use super::{
    coverage::{MAX_NAMED, Missing, missing},
    rules::{ALL, Rule, describe, path_pattern},
};

fn rules(rules: Value) -> Vec<Rule> {
    Rule::all_of(&json!({"rules": rules}))
}

#[test]
fn what_is_missing_is_said_by_resource() {
    let held = rules(json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["*/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]},
        {"nonResourceURLs": ["/a/*"], "verbs": ["get"]},
    ]));
    for (wanted, expected) in [
        (
            json!([{"apiGroups": [""], "resources": ["pods", "nodes/status"], "verbs": ["get"]}]),
            "",
        ),
        (
            json!([{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]),
            "{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}",
        ),
        (
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["b", "c"], "verbs": ["get"]}]),
            "{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"c\"], Verbs:[\"get\"]}",
        ),
        (
            json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}",
        ),
        (
            json!([{"nonResourceURLs": ["/a/b", "/c"], "verbs": ["get"]}]),
            "{NonResourceURLs:[\"/c\"], Verbs:[\"get\"]}",
        ),
        (json!([{"apiGroups": [""], "resources": ["pods"]}]), ""),
    ] {
        let found = describe(&missing(&held, &rules(wanted.clone()), MAX_NAMED));
        assert_eq!(found, expected, "{wanted}");
    }
    let everything = Rule::full_authority();
    assert!(missing(&everything, &held, MAX_NAMED).is_empty());
    assert_eq!(missing(&held, &everything, MAX_NAMED).pieces.len(), 2);
}

/// A rule as rules of one verb and one resource, name or path each: what Kubernetes compares.
fn pieces(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let names: Vec<Vec<String>> = match rule.resource_names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(one).collect(),
    };
    let mut pieces = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                pieces.extend(names.iter().map(|name| Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    resource_names: name.clone(),
                    ..Rule::default()
                }));
            }
        }
    }
    for path in &rule.non_resource_urls {
        pieces.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: one(verb),
            non_resource_urls: one(path),
            ..Rule::default()
        }));
    }
    pieces
}

/// Whether a rule grants all that a piece of another one grants.
fn covers(rule: &Rule, piece: &Rule) -> bool {
    let has_all = |held: &[String], wanted: &[String]| {
        held.iter().any(|it| it == ALL) || wanted.iter().all(|it| held.contains(it))
    };
    let has = |named: &str| rule.resources.iter().any(|it| it == named);
    let covers_resource = |wanted: &String| {
        let part = wanted.split_once('/').map(|(_, part)| format!("*/{part}"));
        has(ALL) || has(wanted) || part.is_some_and(|part| has(&part))
    };
    let covers_path = |path: &String| {
        let mut patterns = rule.non_resource_urls.iter();
        patterns.any(|it| it == path || path_pattern(it).is_some_and(|it| path.starts_with(it)))
    };
    has_all(&rule.verbs, &piece.verbs)
        && has_all(&rule.api_groups, &piece.api_groups)
        && piece.resources.iter().all(covers_resource)
        && piece.non_resource_urls.iter().all(covers_path)
        && (rule.resource_names.is_empty()
            || (!piece.resource_names.is_empty()
                && has_all(&rule.resource_names, &piece.resource_names)))
}

/// A few of these texts, none twice, and another few with each call.
fn some(texts: &[&str], state: &mut u64) -> Vec<String> {
    let mut chosen = Vec::new();
    for text in texts {
        // The constants of Knuth's MMIX.
        *state = state.wrapping_mul(6_364_136_223_846_793_005);
        *state = state.wrapping_add(1_442_695_040_888_963_407);
        if *state >> 62 == 0 {
            chosen.push((*text).to_owned());
        }
    }
    chosen
}

fn any_rules(state: &mut u64) -> Vec<Rule> {
    let texts = ["", "apps", "batch", "*"];
    let resources = [
        "pods",
        "pods/log",
        "jobs/status",
        "*/log",
        "*",
        "*/status",
        "jobs",
    ];
    let rule = |state: &mut u64| Rule {
        verbs: some(&["get", "list", "watch", "create", "*"], state),
        api_groups: some(&texts, state),
        resources: some(&resources, state),
        resource_names: some(&["a", "b", "c"], state),
        non_resource_urls: some(&["/a", "/a/b", "/a/*", "*", "/b*"], state),
    };
    (0..4).map(|_| rule(state)).collect()
}

#[test]
fn as_much_is_missing_as_when_each_combination_is_looked_at() {
    let mut state = 38;
    let (mut n_wanted, mut n_lacking) = (0, 0);
    for round in 0..3_000 {
        let (held, wanted) = (any_rules(&mut state), any_rules(&mut state));
        let all = wanted.iter().flat_map(pieces);
        let expected: Vec<Rule> = all
            .filter(|piece| !held.iter().any(|rule| covers(rule, piece)))
            .collect();
        let found = missing(&held, &wanted, usize::MAX);
        assert_eq!(found.pieces, expected, "round {round}: {held:?} {wanted:?}");
        assert!(!found.is_cut && !found.is_unfinished);
        n_wanted += wanted.iter().flat_map(pieces).count();
        n_lacking += expected.len();
    }
    let n_covered = n_wanted - n_lacking;
    assert!(
        n_lacking > 1_000 && n_covered > 1_000,
        "{n_lacking} {n_covered}"
    );
}

fn named(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|at| format!("{prefix}{at}")).collect()
}

/// A look at each of its combinations would need more memory than machines have.
#[test]
fn a_rule_of_10_to_the_12_combinations_is_compared() {
    let rule = Rule {
        verbs: named("v", 1_000),
        api_groups: named("g", 1_000),
        resources: named("r", 1_000),
        resource_names: named("n", 1_000),
        ..Rule::default()
    };
    let wanted = std::slice::from_ref(&rule);
    assert!(missing(wanted, wanted, MAX_NAMED).is_empty());
    let found = missing(&[], wanted, MAX_NAMED);
    assert!(found.is_cut && !found.is_unfinished);
    let text = describe(&found);
    assert!(text.len() < 2 * MAX_NAMED && text.ends_with("\nand more"));
    // All but one combination.
    let mut held = vec![rule.clone(), rule.clone(), rule.clone(), rule.clone()];
    held[0].verbs.remove(7);
    held[1].api_groups.remove(8);
    held[2].resources.remove(9);
    held[3].resource_names.remove(10);
    assert_eq!(
        describe(&missing(&held, wanted, MAX_NAMED)),
        "{APIGroups:[\"g8\"], Resources:[\"r9\"], ResourceNames:[\"n10\"], Verbs:[\"v7\"]}"
    );
}

/// Who makes the rules can make many: what is not compared is not held.
#[test]
fn rules_that_are_too_many_to_compare_are_refused() {
    let diagonal = |at: usize| Rule {
        verbs: named("v", 400)[at..].to_vec(),
        api_groups: named("g", 400)[..=at].to_vec(),
        resources: named("r", 400)[at / 2..].to_vec(),
        resource_names: named("n", 400)[at / 3..].to_vec(),
        ..Rule::default()
    };
    let held: Vec<Rule> = (0..400).map(diagonal).collect();
    let wanted = Rule {
        verbs: named("v", 400),
        api_groups: named("g", 400),
        resources: named("r", 400),
        resource_names: named("n", 400),
        ..Rule::default()
    };
    let wanted = vec![wanted; 20];
    let found: Missing = missing(&held, &wanted, MAX_NAMED);
    assert!(found.is_unfinished && !found.is_empty());
    assert!(describe(&found).contains("too many to be compared in full"));
}
