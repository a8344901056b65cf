//! The node dies and comes back: nothing is lost, nothing runs twice.

use longshore_node::{LogOptions, PodsLifetime};
use serde_json::{Value, json};

use crate::node_rig::{Rig, end, script, until_removed};
use crate::shim_rig::eventually;

/// A pod that marks each of its starts and runs until a file appears; both in the rig's directory.
fn marked(rig: &Rig) -> Value {
    let dir = rig.path().display();
    let mut spec = script(&format!(
        "echo started >> {dir}/starts; until test -e {dir}/gate; do sleep 0.01; done; exit 4"
    ));
    spec["volumes"] = json!([{"name": "dir", "hostPath": {"path": rig.path()}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "dir", "mountPath": rig.path()}]);
    spec
}

fn n_starts(rig: &Rig) -> usize {
    std::fs::read_to_string(rig.path().join("starts"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn open_gate(rig: &Rig) {
    std::fs::write(rig.path().join("gate"), "").expect("opens the gate");
}

#[tokio::test]
async fn a_pod_that_outlives_its_node_is_taken_over() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    rig.run("keeps", marked(&rig)).await;
    rig.until_phase("keeps", "Running").await;
    eventually("the program has started", || n_starts(&rig) == 1);
    first.kill().await;
    let second = rig.start_with(config).await;
    open_gate(&rig);
    let status = rig.until_phase("keeps", "Failed").await;
    assert_eq!(end(&status, 0)["exitCode"], 4);
    assert_eq!(
        (
            n_starts(&rig),
            &status["containerStatuses"][0]["restartCount"]
        ),
        (1, &json!(0))
    );
    assert_eq!(second.log("keeps", LogOptions::default()).await, "");
    second.stop().await;
}

#[tokio::test]
async fn an_exit_while_the_node_is_away_is_not_lost() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    rig.run("ends", marked(&rig)).await;
    rig.until_phase("ends", "Running").await;
    let record = rig
        .pod_dir("ends")
        .await
        .join("containers/main/0/record.json");
    first.kill().await;
    open_gate(&rig);
    eventually("the exit is on disk", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"exit\""))
    });
    let second = rig.start_with(config).await;
    let status = rig.until_phase("ends", "Failed").await;
    assert_eq!(
        (&end(&status, 0)["exitCode"], n_starts(&rig)),
        (&json!(4), 1)
    );
    second.stop().await;
}

#[tokio::test]
async fn pods_that_die_with_the_node_are_stopped_and_told_by_the_next() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::DieWithNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    rig.run("dies", marked(&rig)).await;
    rig.until_phase("dies", "Running").await;
    eventually("the program has started", || n_starts(&rig) == 1);
    first.stop().await;
    let second = rig.start_with(config).await;
    let status = rig.until_phase("dies", "Failed").await;
    assert_eq!(
        (&end(&status, 0)["exitCode"], n_starts(&rig)),
        (&json!(143), 1)
    );
    second.stop().await;
}

#[tokio::test]
async fn a_pod_deleted_while_the_node_was_away_is_ended() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    rig.run("orphan", marked(&rig)).await;
    rig.until_phase("orphan", "Running").await;
    let dir = rig.pod_dir("orphan").await;
    first.kill().await;
    let force = kube::api::DeleteParams {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    rig.pods().delete("orphan", &force).await.expect("deleted");
    let second = rig.start_with(config).await;
    until_removed(&dir).await;
    second.stop().await;
}

#[tokio::test]
async fn a_pod_whose_directory_is_lost_does_not_run_again() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::DieWithNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    rig.run("lost", marked(&rig)).await;
    rig.until_phase("lost", "Running").await;
    eventually("the program has started", || n_starts(&rig) == 1);
    let dir = rig.pod_dir("lost").await;
    first.stop().await;
    std::fs::remove_dir_all(dir).expect("loses the directory");
    let second = rig.start_with(config).await;
    let status = rig.until_phase("lost", "Failed").await;
    assert_eq!(end(&status, 0)["reason"], "ContainerStatusUnknown");
    assert_eq!(n_starts(&rig), 1);
    second.stop().await;
}
