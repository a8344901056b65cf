//! Sidecars and hooks of real processes.

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::{
    node_rig::{PATIENCE, Rig, RunningNode, script},
    shim_rig::eventually,
};

/// Lets all containers write to the directory of the test, at its own path.
fn in_directory(rig: &Rig, node: &RunningNode, mut spec: Value) -> Value {
    if !node.has_mounts() {
        // Plain processes write there anyway.
        return spec;
    }
    let dir = rig.path();
    spec["volumes"] = json!([{"name": "dir", "hostPath": {"path": dir}}]);
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            container["volumeMounts"] = json!([{"name": "dir", "mountPath": dir}]);
        }
    }
    spec
}

fn read(rig: &Rig, file: &str) -> String {
    std::fs::read_to_string(rig.path().join(file)).unwrap_or_default()
}

fn container(name: &str, program: &str) -> Value {
    json!({"name": name, "image": "any", "command": ["sh", "-c", program]})
}

/// A sidecar that says when it starts and ends.
fn sidecar(rig: &Rig, name: &str) -> Value {
    let dir = rig.path().display();
    let program = format!(
        "trap 'echo {name} >> {dir}/ended; exit 0' TERM; echo {name} >> {dir}/order; while :; do sleep 0.01; done"
    );
    let mut sidecar = container(name, &program);
    sidecar["restartPolicy"] = json!("Always");
    let probe = format!("grep -q {name} {dir}/order");
    sidecar["startupProbe"] = json!({
        "exec": {"command": ["sh", "-c", probe]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 60,
    });
    sidecar
}

#[tokio::test]
async fn sidecars_begin_before_the_program_and_end_after_it() {
    let rig = Rig::new();
    let node = rig.start().await;
    let dir = rig.path().display();
    let say = |name: &str| container(name, &format!("echo {name} >> {dir}/order"));
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [sidecar(&rig, "a"), say("setup"), sidecar(&rig, "b")],
        "containers": [say("main")],
    });
    rig.run("crew", in_directory(&rig, &node, spec)).await;
    let status = rig.until_phase("crew", "Succeeded").await;
    assert_eq!(read(&rig, "order"), "a\nsetup\nb\nmain\n");
    assert_eq!(read(&rig, "ended"), "b\na\n");
    for index in [0, 2] {
        let sidecar = &status["initContainerStatuses"][index];
        assert_eq!(sidecar["state"]["terminated"]["exitCode"], 0, "{sidecar}");
        assert_eq!(sidecar["restartCount"], 0);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_sidecar_that_ends_runs_again_whatever_the_policy_of_the_pod() {
    let rig = Rig::new();
    let node = rig.start().await;
    let dir = rig.path().display();
    let mut ends = container(
        "ends",
        &format!(
            "echo x >> {dir}/starts; sleep 1; test $$(wc -l < {dir}/starts) -ge 2 && sleep 600; exit 0"
        ),
    );
    ends["restartPolicy"] = json!("Always");
    let main = format!("until test $$(wc -l < {dir}/starts) -ge 2; do sleep 0.01; done");
    let spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "initContainers": [ends],
        "containers": [container("main", &main)],
    });
    rig.run("again", in_directory(&rig, &node, spec)).await;
    let status = rig.until_phase("again", "Succeeded").await;
    assert_eq!(status["initContainerStatuses"][0]["restartCount"], 1);
    node.stop().await;
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_stop_signal() {
    let rig = Rig::new();
    let node = rig.start().await;
    let dir = rig.path().display();
    let say = |word: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {word} >> {dir}/order")]}});
    let program = format!(
        "trap 'echo term >> {dir}/order; exit 0' TERM; echo up > {dir}/up; while :; do sleep 0.01; done"
    );
    let mut spec = script(&program);
    spec["containers"][0]["lifecycle"] = json!({"postStart": say("post"), "preStop": say("pre")});
    rig.run("hooked", in_directory(&rig, &node, spec)).await;
    rig.until_phase("hooked", "Running").await;
    assert_eq!(read(&rig, "order"), "post\n");
    eventually("the program listens to signals", || {
        !read(&rig, "up").is_empty()
    });
    rig.delete("hooked").await;
    rig.until_gone("hooked").await;
    assert_eq!(read(&rig, "order"), "post\npre\nterm\n");
    node.stop().await;
}

#[tokio::test]
async fn a_pre_stop_hook_has_no_more_than_the_grace_of_its_pod() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("sleep 600");
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sleep", "600"]}}});
    rig.run("slow", spec).await;
    rig.until_phase("slow", "Running").await;
    rig.delete("slow").await;
    rig.until_gone("slow").await;
    node.stop().await;
}

/// Waits for an Event with this reason.
pub(crate) async fn until_event(rig: &Rig, reason: &str) {
    let events = Api::<Event>::default_namespaced(rig.client.clone());
    let told = async {
        loop {
            let all = events.list(&ListParams::default()).await.expect("a list");
            let mut all = all.items.iter();
            if all.any(|event| event.reason.as_deref() == Some(reason)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("the Event");
}

#[tokio::test]
async fn a_hook_that_fails_is_told_and_a_failed_start_is_repeated() {
    let rig = Rig::new();
    let node = rig.start().await;
    let fails = json!({"exec": {"command": ["false"]}});
    let mut spec = script("exec sleep 600");
    spec["restartPolicy"] = json!("Always");
    spec["containers"][0]["lifecycle"] = json!({"postStart": fails, "preStop": fails});
    rig.run("fails", spec).await;
    let status = rig
        .until("fails", "again", |s| {
            s["containerStatuses"][0]["restartCount"].as_u64() >= Some(1)
        })
        .await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 143, "{status}");
    until_event(&rig, "FailedPostStartHook").await;
    until_event(&rig, "FailedPreStopHook").await;
    rig.delete("fails").await;
    rig.until_gone("fails").await;
    node.stop().await;
}
