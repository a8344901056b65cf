//! The role `dags` in three replicas, of which one acts.

use std::fs;

use serde_json::Value;

use super::replica::{Plan, until};
use crate::{cluster::TestCluster, longshore, outcome};

/// Tasks of the DAG, in three layers.
const N_TASKS: usize = 36;

/// Tasks of half a second each.
fn dag() -> String {
    let mut text =
        "dag_id: many\nschedule: '@once'\nstart_date: 2026-01-01\ncatchup: true\ntasks:\n"
            .to_owned();
    let layer = N_TASKS / 3;
    for n in 0..N_TASKS {
        let before = if n < layer {
            String::new()
        } else {
            format!("depends_on: [t{}], ", n - layer)
        };
        text += &format!("  t{n}: {{image: scripted, {before}command: [run, 500ms, exit, '0']}}\n");
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_takes_over_when_the_leader_is_killed_or_stopped_and_nothing_is_lost_or_runs_twice()
 {
    let cluster = TestCluster::start().await;
    let mut plan = Plan::of(&cluster, "dags");
    if cluster.is_real() {
        plan.kubeconfig = cluster.account("dags").await;
    }
    let data = plan.data();
    fs::create_dir_all(data.join("dags")).unwrap();
    fs::write(data.join("dags/many.yaml"), dag()).unwrap();
    let ended = || {
        let history = cluster.node.history();
        let runs = history.runs().iter();
        runs.filter(|run| run.ended_at.is_some()).count()
    };

    let mut first = plan.start("first");
    until("the first one leads", || first.leads()).await;
    let second = plan.start("second");
    until("the second one waits, and says for whom", || second.waits()).await;
    until("some tasks ended", || ended() >= 4).await;
    first.kill();
    let third = plan.start("third");
    // Which of the two that wait is the next one is theirs to find out.
    until("one of the others leads", || {
        second.leads() || third.leads()
    })
    .await;
    let n_ended = ended();
    until("more tasks ended", || ended() >= n_ended + 4).await;
    let (mut leader, other) = match second.leads() {
        true => (second, third),
        false => (third, second),
    };
    assert!(other.waits(), "{}", other.log());
    assert_eq!(leader.stop(), Some(0), "{}", leader.log());
    until("the last one leads", || other.leads()).await;

    let run = || {
        let mut command = longshore();
        command
            .args(["runs", "list", "-o", "json"])
            .env("LONGSHORE_DATA_DIR", &data);
        let (_, stdout, _) = outcome(&mut command);
        let list: Value = serde_json::from_str(&stdout).unwrap_or_default();
        list["items"][0].clone()
    };
    until("the run is over", || run()["state"] == "success").await;
    let history = cluster.node.history();
    let mut tries: Vec<String> = history
        .runs()
        .iter()
        .map(|run| format!("{} try {}", run.labels["task_id"], run.labels["try_number"]))
        .collect();
    tries.sort();
    let mut expected: Vec<String> = (0..N_TASKS).map(|n| format!("t{n} try 1")).collect();
    expected.sort();
    assert_eq!(tries, expected, "each task once, and no try consumed");
}
