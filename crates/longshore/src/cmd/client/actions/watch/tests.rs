use futures::stream;
use serde_json::{Value, json};

use super::*;

fn action(n_entries: usize, end: Option<&str>) -> Action {
    let at = "2026-11-21T01:00:00Z";
    let entries: Vec<Value> = (0..n_entries)
        .map(|n| json!({"phase": format!("P{n}"), "occurredAt": at}))
        .collect();
    let conditions: Vec<Value> = end
        .iter()
        .map(|kind| {
            json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at})
        })
        .collect();
    Action::of(&json!({
        "metadata": {"name": "r-a0", "creationTimestamp": at},
        "status": {"phaseHistory": entries, "conditions": conditions},
    }))
}

async fn check(first: Action, changes: Vec<Option<Action>>) -> (Option<Action>, Vec<String>) {
    let mut told = Vec::new();
    let changes = stream::iter(changes).chain(stream::pending());
    let last = last(first, changes, &mut |line| told.push(line)).await;
    (last, told)
}

#[tokio::test]
async fn each_phase_is_told_once_until_the_end() {
    let end = action(3, Some("Succeeded"));
    let changes = vec![
        Some(action(1, None)),
        Some(action(2, None)),
        Some(end.clone()),
    ];
    let (last, told) = check(action(1, None), changes).await;
    assert_eq!(last, Some(end));
    let phases: Vec<&str> = told
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(phases, ["P0", "P1", "P2"]);
}

#[tokio::test]
async fn an_action_that_has_ended_is_over_at_once() {
    let end = action(1, Some("Failed"));
    assert_eq!(check(end.clone(), vec![]).await.0, Some(end));
}

#[tokio::test]
async fn an_action_that_goes_away_is_gone() {
    assert_eq!(check(action(0, None), vec![None]).await.0, None);
}
