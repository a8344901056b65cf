//! What a campaign has found, and what it must not find: items that have passed before, and lists of which too few pass.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::{
    items::{FLOORS, GROUPS, group},
    outcomes::Outcome,
};
use crate::repository;

/// Where results are, from the root of the repository.
const RESULTS: &str = "conformance/campaigns/conformance/";

/// How each item ended.
pub(super) type ByItem = BTreeMap<String, Outcome>;

/// The result that is committed.
pub(super) fn result(kubernetes: &str, build: &str, outcomes: &ByItem) -> Value {
    let count = |is_meant: &dyn Fn(&str) -> bool| {
        let meant = || outcomes.iter().filter(move |(item, _)| is_meant(item));
        let n_passed = meant().filter(|(_, it)| it.passed()).count();
        json!({"items": meant().count(), "passed": n_passed})
    };
    let groups = GROUPS.into_iter().map(|name| {
        let found = count(&|item| group(item) == Some(name));
        (name.to_owned(), found)
    });
    let floors = FLOORS.iter().map(|floor| {
        let items = floor.items();
        let mut found = count(&|item| items.contains(item));
        found["at_least"] = json!(floor.at_least);
        (floor.name.to_owned(), found)
    });
    let items = outcomes
        .iter()
        .map(|(item, it)| (item.clone(), it.to_json()));
    json!({
        "kubernetes": kubernetes,
        "build": build,
        "groups": groups.collect::<Map<_, _>>(),
        "floors": floors.collect::<Map<_, _>>(),
        "items": items.collect::<Map<_, _>>(),
    })
}

/// Items that passed in an earlier result and do not pass in this one.
pub(super) fn lost<'a>(before: &'a Value, outcomes: &'a ByItem) -> Vec<(&'a str, &'a Outcome)> {
    let items = before["items"].as_object().into_iter().flatten();
    items
        .filter(|(_, it)| it["state"] == "passed")
        .filter_map(|(item, _)| Some((item.as_str(), outcomes.get(item)?)))
        .filter(|(_, it)| !it.passed())
        .collect()
}

/// What is wrong with these outcomes, a line each.
pub(super) fn violations(before: Option<&Value>, outcomes: &ByItem) -> Vec<String> {
    let lost = before.into_iter().flat_map(|before| lost(before, outcomes));
    let mut violations: Vec<String> = lost
        .map(|(item, it)| format!("passed before: {item}: {}: {}", it.state, it.reason))
        .collect();
    for floor in &FLOORS {
        let items = floor.items();
        let unknown = items.iter().filter(|item| !outcomes.contains_key(**item));
        violations.extend(unknown.map(|item| {
            format!(
                "the list \"{}\" has an item that the suite has not: {item}",
                floor.name
            )
        }));
        let has_passed = |item: &&&str| outcomes.get(**item).is_some_and(Outcome::passed);
        let n_passed = items.iter().filter(has_passed).count();
        if n_passed < floor.at_least {
            violations.push(format!(
                "{}: {n_passed} of {} items pass, expected at least {}",
                floor.name,
                items.len(),
                floor.at_least
            ));
        }
    }
    violations
}

/// The newest result that is committed; a newer one of the work tree is not asked.
pub(super) fn last_committed() -> Result<Option<Value>> {
    let names = git(&["ls-tree", "--name-only", "HEAD", RESULTS])?;
    let Some(newest) = names.lines().filter(|name| name.ends_with(".json")).max() else {
        return Ok(None);
    };
    let text = git(&["show", &format!("HEAD:{newest}")])?;
    let result = serde_json::from_str(&text).with_context(|| format!("{newest} is no JSON"))?;
    Ok(Some(result))
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(repository::root())
        .output()
        .context("git cannot be run, which has the result to compare with")?;
    if !output.status.success() {
        bail!(
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All items of the lists pass, but for the first ones.
    fn all_but(n_failed: usize) -> ByItem {
        let items = FLOORS.iter().flat_map(|floor| {
            let items = floor.items().into_iter().enumerate();
            items.map(|(at, item)| {
                let state = if at < n_failed { "failed" } else { "passed" };
                (item.to_owned(), Outcome::new(state, "no pod", 1))
            })
        });
        items.collect()
    }

    #[test]
    fn as_many_items_of_each_list_pass_as_have_to() {
        assert_eq!(violations(None, &all_but(9)), [""; 0]);
        assert_eq!(
            violations(None, &all_but(10)),
            [
                "environment, volumes, probes, hooks and lifecycle of pods: 39 of 49 items pass, expected at least 40"
            ]
        );
        let mut outcomes = all_but(0);
        let missing = FLOORS[1].items().into_iter().next().unwrap();
        outcomes.remove(missing);
        let found = violations(None, &outcomes);
        assert!(found.len() == 1 && found[0].contains(missing), "{found:?}");
    }

    #[test]
    fn an_item_that_passed_before_has_to_pass() {
        let before = result("1.34.2", "release", &all_but(1));
        assert_eq!(violations(Some(&before), &all_but(1)), [""; 0]);
        assert_eq!(violations(Some(&before), &all_but(0)), [""; 0]);
        let found = violations(Some(&before), &all_but(2));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("passed before: [sig-") && found[0].ends_with(": failed: no pod")
        );
        // The suite of another version need not have an item.
        assert!(lost(&before, &ByItem::new()).is_empty());
    }

    #[test]
    fn the_result_says_how_many_items_passed_and_why_others_did_not() {
        let result = result("1.34.2", "release", &all_but(3));
        assert_eq!(
            result["groups"]["[sig-node]"],
            json!({"items": 49, "passed": 46})
        );
        assert_eq!(
            result["floors"][FLOORS[0].name],
            json!({"items": 79, "passed": 76, "at_least": 55})
        );
        let item = FLOORS[0].items().into_iter().next().unwrap();
        assert_eq!(
            result["items"][item],
            json!({"state": "failed", "reason": "no pod"})
        );
    }
}
