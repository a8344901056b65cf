//! The service over a database in memory; what needs a cluster is tested where there is one.

use super::*;
use crate::progress::fixtures::{Adjectives, run_change, task_change};

fn run(n: usize, state: &str) -> objects::Run {
    objects::Run {
        dag_id: "etl".to_owned(),
        run_id: n.to_string(),
        state: state.to_owned(),
        ..objects::Run::default()
    }
}

#[test]
fn pages_follow_each_other_without_gap_or_overlap() {
    let states = ["running", "failed", "success"];
    let all: Vec<objects::Run> = (0..20).map(|n| run(n, states[n % 3])).collect();
    for (states, n_expected) in [(&[][..], 20), (&["failed"][..], 7)] {
        for limit in [1, 3, 7, 19, 20, 50] {
            let mut query = RunQuery {
                states: states.iter().map(|state| (*state).to_owned()).collect(),
                limit,
                ..RunQuery::default()
            };
            let mut seen = Vec::new();
            loop {
                let RunPage { runs, has_more } = page(all.iter().cloned(), &query);
                assert!(runs.len() <= limit);
                seen.extend(runs.iter().map(|run| run.run_id.clone()));
                if !has_more {
                    break;
                }
                let last = runs.last().unwrap();
                query.after = Some(RunName {
                    dag_id: last.dag_id.clone(),
                    run_id: last.run_id.clone(),
                });
            }
            let unique: std::collections::BTreeSet<_> = seen.iter().collect();
            assert_eq!(
                (seen.len(), unique.len()),
                (n_expected, n_expected),
                "{limit}"
            );
        }
    }
}

#[tokio::test]
async fn the_feed_tells_what_the_scheduler_tells_in_the_same_words() {
    use longshore_store::{RunState, TaskState};

    let changes = [
        run_change(0, None, RunState::Queued, None),
        task_change(
            5,
            "extract",
            Some(TaskState::Running),
            Some(TaskState::UpForRetry),
        )
        .in_try(2)
        .with_pod("etl-extract-x1")
        .because_it_failed(),
    ];
    let (tell, told) = broadcast::channel(8);
    let feed = Feed::default();
    let mut reader = feed.reader(None);
    for change in &changes {
        tell.send(change.clone()).unwrap();
    }
    drop(tell);
    publish_changes(told, feed).await;
    for change in &changes {
        let Some(longshore_console::feed::Next::Change(_, published)) = reader.next().await else {
            panic!("expected a change");
        };
        assert_eq!(
            serde_json::to_value(&*published).unwrap(),
            crate::progress::objects::change(change)
        );
    }
}
