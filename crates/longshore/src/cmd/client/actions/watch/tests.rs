use std::future::Future;

use futures::stream;
use serde_json::{Value, json};

use super::*;

/// Never, or at once.
struct Stop(bool);

impl Interrupts for Stop {
    fn next(&mut self) -> impl Future<Output = ()> {
        let is_now = self.0;
        async move {
            if !is_now {
                future::pending::<()>().await;
            }
        }
    }
}

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

async fn check(first: Action, changes: Vec<Option<Action>>, stop: Stop) -> (Watched, Vec<String>) {
    let mut told = Vec::new();
    let changes = stream::iter(changes).chain(stream::pending());
    let timeout = Some(Duration::from_secs(60));
    let watched = follow(first, changes, timeout, stop, &mut |line| told.push(line)).await;
    (watched, told)
}

#[tokio::test(start_paused = true)]
async fn each_phase_is_told_once_until_the_end() {
    let end = action(3, Some("Succeeded"));
    let changes = vec![
        Some(action(1, None)),
        Some(action(2, None)),
        Some(end.clone()),
    ];
    let (watched, told) = check(action(1, None), changes, Stop(false)).await;
    assert_eq!(watched, Watched::Over(Box::new(end)));
    let phases: Vec<&str> = told
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(phases, ["P0", "P1", "P2"]);
}

#[tokio::test(start_paused = true)]
async fn an_action_that_has_ended_is_over_at_once() {
    let end = action(1, Some("Failed"));
    let (watched, _) = check(end.clone(), vec![], Stop(true)).await;
    assert_eq!(watched, Watched::Over(Box::new(end)));
}

#[tokio::test(start_paused = true)]
async fn an_action_that_goes_away_is_gone() {
    let (watched, _) = check(action(0, None), vec![None], Stop(false)).await;
    assert_eq!(watched, Watched::Gone);
}

#[tokio::test(start_paused = true)]
async fn following_ends_with_the_time_or_the_wish() {
    let (watched, _) = check(action(0, None), vec![], Stop(false)).await;
    assert_eq!(watched, Watched::TimedOut);
    let (watched, _) = check(action(0, None), vec![], Stop(true)).await;
    assert_eq!(watched, Watched::Detached);
}
