//! The node dies and comes back: nothing is lost, nothing runs twice.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use longshore_node::{LogOptions, NodeConfig, PodsLifetime, take_successes};
use serde_json::{Value, json};

use crate::{
    node_rig::{Rig, RunningNode, end, script, until_removed},
    shim_rig::{eventually, is_alive},
};

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
    let record = rig.pod_dir("ends").await.join("main.0/record.json");
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

/// Starts a pod, then kills the node and the pod's processes: what is on disk afterwards is what it
/// is after the machine was switched off. Returns the path of the record.
async fn switched_off(rig: &Rig, first: RunningNode, name: &str, spec: Value) -> PathBuf {
    rig.run(name, spec).await;
    rig.until_phase(name, "Running").await;
    eventually("the program has started", || n_starts(rig) == 1);
    let dir = rig.pod_dir(name).await;
    first.kill().await;
    let shim = shim_of(&dir).expect("a shim");
    let record = dir.join("main.0/record.json");
    let pid = edit(&record, |_| {})["started"]["pid"].to_string();
    let killed = Command::new("kill").args(["-KILL", &shim]).status();
    assert!(killed.expect("kill runs").success());
    eventually("shim and container are gone", || {
        !is_alive(&shim) && !is_alive(&pid)
    });
    edit(&record, |record| record["boot"] = json!("another"));
    record
}

/// Changes the record at the beginning of its file; returns the record before.
fn edit(file: &Path, change: impl FnOnce(&mut Value)) -> Value {
    let text = std::fs::read(file).expect("a file");
    let mut parts = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
    let before = parts.next().expect("a record").expect("JSON");
    let mut after = before.clone();
    change(&mut after);
    let mut text = after.to_string().into_bytes();
    text.resize(8 * 1024, b' ');
    std::fs::write(file, text).expect("written");
    before
}

/// The process that has this pod directory as an argument.
pub(crate) fn shim_of(dir: &Path) -> Option<String> {
    let uid = dir.file_name()?.to_str()?;
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let found = all.into_iter().find(|process| {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command)
            .split('\0')
            .any(|arg| arg.ends_with(uid))
    });
    found?.file_name().into_string().ok()
}

/// The process that has started another one.
pub(crate) fn parent_of(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields = stat.rsplit_once(") ").expect("a name").1;
    fields.split(' ').nth(1).expect("a parent").to_owned()
}

/// Starts a pod that runs until it is stopped. Returns its shim.
async fn shim_of_sleeper(rig: &Rig, name: &str) -> String {
    rig.run(name, script("exec sleep 600")).await;
    rig.until_phase(name, "Running").await;
    shim_of(&rig.pod_dir(name).await).expect("a shim with the pod's directory as an argument")
}

/// Copies the directory of the rig's node as it is.
fn copied(rig: &Rig) -> PathBuf {
    let copy = rig.path().join("copy");
    let node = rig.path().join("node");
    let status = Command::new("cp").arg("-a").args([&node, &copy]).status();
    // An ordinary user cannot read all that the kernel keeps there of a writable layer.
    status.expect("cp runs");
    copy
}

#[tokio::test]
async fn a_copied_directory_does_not_end_what_runs_in_the_original() {
    for lifetime in [PodsLifetime::DieWithNode, PodsLifetime::OutliveNode] {
        let rig = Rig::new();
        let node = rig.start_with(rig.config(lifetime)).await;
        if !node.has_mounts() {
            return;
        }
        rig.run("goes-on", marked(&rig)).await;
        rig.until_phase("goes-on", "Running").await;
        eventually("the program has started", || n_starts(&rig) == 1);
        let copy = copied(&rig);
        let record = copy.join("pods").join(rig.uid("goes-on").await);
        let record = std::fs::read_to_string(record.join("main.0/record.json"));
        assert!(record.expect("a record").contains("\"started\""));
        assert!(take_successes(&copy).await.is_empty());
        open_gate(&rig);
        let status = rig.until_phase("goes-on", "Failed").await;
        assert_eq!(end(&status, 0)["exitCode"], 4, "{lifetime:?}");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_on_a_copied_directory_takes_its_pods_for_lost_and_says_why() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    let shim = shim_of_sleeper(&rig, "copied").await;
    let original = rig.pod_dir("copied").await;
    first.kill().await;
    let on_copy = NodeConfig {
        root: copied(&rig),
        ..config.clone()
    };
    let second = rig.start_with(on_copy).await;
    let status = rig.until_phase("copied", "Failed").await;
    assert_eq!(end(&status, 0)["reason"], "ContainerStatusUnknown");
    let message = end(&status, 0)["message"].as_str().unwrap_or_default();
    assert!(message.contains("was copied"), "{message}");
    second.stop().await;
    assert!(is_alive(&shim));
    let record = edit(&original.join("main.0/record.json"), |_| {});
    assert_eq!(record["exit"], Value::Null);
    let program = record["started"]["pid"].to_string();
    assert!(is_alive(&program));
    rig.delete("copied").await;
    let third = rig.start_with(config).await;
    rig.until_gone("copied").await;
    until_removed(&original).await;
    third.stop().await;
    eventually("the shim has ended", || !is_alive(&shim));
}

#[tokio::test]
async fn all_shims_are_forks_of_one_process_which_they_outlive() {
    let rig = Rig::new();
    let node = rig.start().await;
    let first = shim_of_sleeper(&rig, "first").await;
    let second = shim_of_sleeper(&rig, "second").await;
    let server = parent_of(&first);
    assert_eq!(parent_of(&second), server);
    assert_ne!(server, std::process::id().to_string());
    let killed = Command::new("kill").args(["-KILL", &server]).status();
    assert!(killed.expect("kill runs").success());
    eventually("the server is gone", || !is_alive(&server));
    let third = shim_of_sleeper(&rig, "third").await;
    assert!(is_alive(&first) && is_alive(&second));
    let server = parent_of(&third);
    node.stop().await;
    for process in [first, second, third, server] {
        eventually("the process has ended", || !is_alive(&process));
    }
}

/// A process whose children have a PID namespace of their own has no more children once the first one has ended.
#[tokio::test]
async fn a_pod_for_whose_shim_the_machine_has_no_room_says_so_and_starts_later() {
    if !nix::unistd::Uid::effective().is_root() {
        // Nobody else may make such a namespace.
        return;
    }
    let rig = Rig::new();
    let mut config = rig.config(PodsLifetime::DieWithNode);
    let unshare = ["unshare", "--pid"].map(Into::into);
    config.shim_command.splice(0..0, unshare);
    let node = rig.start_with(config).await;
    let first = shim_of_sleeper(&rig, "first").await;
    let server = parent_of(&first);
    let kill = |process: &str| {
        let killed = Command::new("kill").args(["-KILL", process]).status();
        assert!(killed.expect("kill runs").success());
        eventually("the process is gone", || !is_alive(process));
    };
    kill(&first);
    rig.run("second", script("exec sleep 600")).await;
    let refused = |status: &Value| {
        let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
        let message = message.as_str().unwrap_or_default();
        message.starts_with("cannot start the shim: Cannot allocate memory")
    };
    rig.until("second", "its refusal", refused).await;
    // The next server has room for one.
    kill(&server);
    rig.until_phase("second", "Running").await;
    node.stop().await;
}

#[tokio::test]
async fn a_pod_of_a_machine_that_was_started_anew_is_over_and_says_so() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    let record = switched_off(&rig, first, "anew", marked(&rig)).await;
    // Another process has the pid now, and even the start time: both count from the start of the machine.
    let mut other = Command::new("sleep").arg("600").spawn().expect("a process");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", other.id())).expect("a process");
    let ticks = stat.split(' ').nth(21).expect("a time").parse::<u64>();
    edit(&record, |record| {
        record["started"]["pid"] = json!(other.id());
        record["start_ticks"] = json!(ticks.expect("a number"));
    });
    let second = rig.start_with(config).await;
    let status = rig.until_phase("anew", "Failed").await;
    let end = end(&status, 0);
    assert_eq!(end["reason"], "ContainerStatusUnknown");
    assert_eq!(
        end["message"],
        "the machine was started anew while this container ran"
    );
    assert_eq!(n_starts(&rig), 1);
    assert!(is_alive(&other.id().to_string()), "a stranger was killed");
    other.kill().expect("a child");
    other.wait().expect("a child");
    second.stop().await;
}

#[tokio::test]
async fn the_restart_policy_decides_after_the_machine_was_started_anew() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    let mut spec = marked(&rig);
    spec["restartPolicy"] = json!("OnFailure");
    switched_off(&rig, first, "again", spec).await;
    let second = rig.start_with(config).await;
    let status = rig
        .until("again", "runs again", |s| {
            s["containerStatuses"][0]["restartCount"] == 1
                && s["containerStatuses"][0]["state"]["running"].is_object()
        })
        .await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["reason"], "ContainerStatusUnknown");
    eventually("it has started again", || n_starts(&rig) == 2);
    rig.delete("again").await;
    rig.until_gone("again").await;
    second.stop().await;
}

/// Deletes a pod with this grace that does not care for SIGTERM, and takes the node away as soon as it has asked.
async fn stubborn(rig: &Rig, first: RunningNode, grace: u32) -> PathBuf {
    let mut spec = marked(rig);
    let script = format!(
        "trap '' TERM; echo started >> {}/starts; while :; do sleep 0.01; done",
        rig.path().display()
    );
    spec["containers"][0]["command"][2] = json!(script);
    spec["terminationGracePeriodSeconds"] = json!(grace);
    rig.run("stubborn", spec).await;
    rig.until_phase("stubborn", "Running").await;
    eventually("the program has started", || n_starts(rig) == 1);
    let dir = rig.pod_dir("stubborn").await;
    rig.delete("stubborn").await;
    let stop = dir.join("stop.json");
    let written = async {
        let is_asked =
            || std::fs::read_to_string(&stop).is_ok_and(|text| text.contains("\"asked\":[{"));
        while !is_asked() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let written = tokio::time::timeout(Duration::from_secs(60), written).await;
    written.expect("the node begins to stop the pod");
    first.kill().await;
    stop
}

#[tokio::test]
async fn the_grace_of_a_pod_goes_on_while_the_node_is_away() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    let stop = stubborn(&rig, first, 86_400).await;
    let dir = stop.parent().expect("a directory").to_owned();
    // As if the node had been away for two days.
    edit(&stop, |stop| {
        let since: jiff::Timestamp = stop["since"]
            .as_str()
            .expect("text")
            .parse()
            .expect("a time");
        let earlier = since - jiff::SignedDuration::from_hours(48);
        stop["since"] = json!(earlier.to_string());
    });
    let second = rig.start_with(config).await;
    rig.until_gone("stubborn").await;
    until_removed(&dir).await;
    second.stop().await;
}

#[tokio::test]
async fn a_pod_that_was_asked_to_end_while_the_node_was_away_ends_in_its_grace() {
    let rig = Rig::new();
    let config = rig.config(PodsLifetime::OutliveNode);
    let first = rig.start_with(config.clone()).await;
    if !first.has_mounts() {
        return;
    }
    let mut spec = marked(&rig);
    let dir = rig.path().display();
    spec["containers"][0]["command"][2] = json!(format!(
        "trap 'echo asked >> {dir}/asked; exit 0' TERM; echo started >> {dir}/starts; \
         while :; do sleep 0.01; done"
    ));
    rig.run("asked", spec).await;
    rig.until_phase("asked", "Running").await;
    eventually("the program has started", || n_starts(&rig) == 1);
    let pod_dir = rig.pod_dir("asked").await;
    first.kill().await;
    rig.delete("asked").await;
    let second = rig.start_with(config).await;
    rig.until_gone("asked").await;
    until_removed(&pod_dir).await;
    let asked = std::fs::read_to_string(rig.path().join("asked")).expect("it was asked");
    assert_eq!(
        (asked.as_str(), n_starts(&rig)),
        (
            "asked
", 1
        )
    );
    second.stop().await;
}
