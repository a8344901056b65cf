//! Pods from the API server to the process and back.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Preconditions};
use longshore_node::{ImageMap, LogOptions, PodsLifetime};
use serde_json::{Value, json};

use crate::node_rig::{Rig, end, is, script, until_removed};

#[tokio::test]
async fn a_pod_runs_succeeds_and_costs_two_writes_at_most() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("quick", script("echo hello; echo world >&2")).await;
    let status = rig.until_phase("quick", "Succeeded").await;
    assert_eq!(
        (&end(&status, 0)["exitCode"], &end(&status, 0)["reason"]),
        (&json!(0), &json!("Completed"))
    );
    assert!(
        is(&status, "PodScheduled", "True"),
        "the scheduler's condition is kept: {status:#}"
    );
    assert!(is(&status, "Ready", "False") && is(&status, "Initialized", "True"));
    let log = node.log("quick", LogOptions::default()).await;
    assert!(log.contains("hello\n") && log.contains("world\n"), "{log}");
    let writes = rig.writes();
    assert!(writes.len() <= 2, "{writes:?}");
    assert!(
        writes
            .iter()
            .all(|w| w == "PATCH /api/v1/namespaces/default/pods/quick/status"),
        "{writes:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn exit_code_signal_and_message_reach_the_status() {
    let rig = Rig::new();
    let node = rig.start().await;
    for (name, program, code, signal, reason) in [
        ("fails", "exit 3", 3, Value::Null, "Error"),
        ("killed", "kill -9 $$$$", 137, json!(9), "Error"),
    ] {
        rig.run(name, script(program)).await;
        let status = rig.until_phase(name, "Failed").await;
        let end = end(&status, 0);
        assert_eq!(
            (&end["exitCode"], &end["signal"], &end["reason"]),
            (&json!(code), &signal, &json!(reason))
        );
    }
    let mut missing = script("");
    missing["containers"][0]["command"] = json!(["no-such-program"]);
    rig.run("missing", missing).await;
    let status = rig.until_phase("missing", "Failed").await;
    assert_eq!(
        (&end(&status, 0)["exitCode"], &end(&status, 0)["reason"]),
        (&json!(127), &json!("StartError"))
    );
    let message = end(&status, 0)["message"].as_str().expect("a message");
    assert!(
        message.contains("main") && message.contains("no-such-program"),
        "{message}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_running_pod_is_ready_and_its_log_can_be_followed() {
    let rig = Rig::new();
    let node = rig.start().await;
    let gate = rig.path().join("gate");
    let mut spec = script(&format!(
        "echo one; until test -e {}; do sleep 0.01; done; echo two",
        gate.display()
    ));
    if node.has_mounts() {
        let dir = rig.path();
        spec["volumes"] = json!([{"name": "dir", "hostPath": {"path": dir}}]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "dir", "mountPath": dir}]);
    }
    rig.run("runs", spec).await;
    let status = rig.until("runs", "ready", |s| is(s, "Ready", "True")).await;
    assert_eq!(status["phase"], "Running");
    assert!(status["containerStatuses"][0]["state"]["running"]["startedAt"].is_string());
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let (log, ()) = tokio::join!(node.log("runs", follow), async {
        std::fs::write(&gate, "").expect("opens the gate");
    });
    assert_eq!(log, "one\ntwo\n");
    rig.until_phase("runs", "Succeeded").await;
    node.stop().await;
}

#[tokio::test]
async fn init_containers_run_one_after_the_other_and_share_volumes_with_the_rest() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    let container = |name: &str, program: &str| {
        json!({"name": name, "image": "any", "command": ["sh", "-c", program],
            "volumeMounts": [{"name": "work", "mountPath": "/job"}]})
    };
    rig.run("steps", json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "work", "emptyDir": {}}],
        "initContainers": [container("a", "echo a >> /job/order"), container("b", "echo b >> /job/order")],
        "containers": [container("c", "echo c >> /job/order; cat /job/order")],
    })).await;
    let status = rig.until_phase("steps", "Succeeded").await;
    assert_eq!(
        status["initContainerStatuses"][1]["state"]["terminated"]["exitCode"],
        0
    );
    let log = node
        .node
        .logs("default", "steps", Some("c"), &LogOptions::default())
        .await;
    let text: Vec<_> = futures::TryStreamExt::try_collect(log.expect("a log"))
        .await
        .expect("reads");
    assert_eq!(text.concat(), b"a\nb\nc\n");

    rig.run(
        "stuck",
        json!({
            "restartPolicy": "Never",
            "volumes": [{"name": "work", "emptyDir": {}}],
            "initContainers": [container("a", "exit 9")],
            "containers": [container("c", "true")],
        }),
    )
    .await;
    let status = rig.until_phase("stuck", "Failed").await;
    assert_eq!(
        status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"],
        9
    );
    assert_eq!(
        status["containerStatuses"][0]["state"]["waiting"]["reason"],
        "PodInitializing"
    );
    node.stop().await;
}

#[tokio::test]
async fn configuration_arrives_as_variables_and_files() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.create::<ConfigMap>(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"},
        "data": {"COLOR": "blue", "file.txt": "text"}}),
    )
    .await;
    rig.create::<Secret>(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"},
        "stringData": {"token": "s3cret"}, "data": {"token": "czNjcmV0"}}),
    )
    .await;
    let program = "echo $COLOR $GREETING $POD $HOSTNAME; cat /conf/file.txt; echo; cat /all/token; echo; cat /all/name; echo; \
        cat /one; echo; stat -Lc %a /all/token; ls /conf; touch /conf/x 2>/dev/null || echo read-only";
    rig.run("conf", json!({
        "restartPolicy": "Never",
        "volumes": [
            {"name": "conf", "configMap": {"name": "conf", "items": [{"key": "file.txt", "path": "file.txt"}]}},
            {"name": "all", "projected": {"defaultMode": 256, "sources": [
                {"secret": {"name": "key"}},
                {"configMap": {"name": "none", "optional": true}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
        ],
        "containers": [{
            "name": "main", "image": "any", "command": ["sh", "-c"], "args": [program],
            "envFrom": [{"configMapRef": {"name": "conf"}}],
            "env": [{"name": "GREETING", "value": "$(COLOR)sky"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [
                {"name": "conf", "mountPath": "/conf", "readOnly": true},
                {"name": "all", "mountPath": "/all"},
                {"name": "conf", "mountPath": "/one", "subPath": "file.txt"},
            ],
        }],
    })).await;
    rig.until_phase("conf", "Succeeded").await;
    let log = node.log("conf", LogOptions::default()).await;
    assert_eq!(
        log,
        "blue bluesky conf conf\ntext\ns3cret\nconf\ntext\n400\nfile.txt\nread-only\n"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_limit_is_published_however_its_quantity_is_written() {
    let rig = Rig::new();
    let node = rig.start().await;
    for (name, limit, divisor, expected) in [
        ("suffix", "1G", "1", "1000000000"),
        ("exponent", "1e9", "1", "1000000000"),
        ("capital", "1E9", "1k", "1000000"),
        ("signed", "+1e+9", "1Mi", "954"),
        ("fraction", ".5e9", "0", "500000000"),
        ("small", "1000000000000000000n", "1M", "1000"),
        ("binary", "1.5Gi", "1Ki", "1572864"),
    ] {
        let mut spec = script("echo $LIMIT");
        let reference = json!({"resource": "limits.memory", "divisor": divisor});
        let container = &mut spec["containers"][0];
        container["resources"] = json!({"limits": {"memory": limit}});
        container["env"] = json!([{"name": "LIMIT", "valueFrom": {"resourceFieldRef": reference}}]);
        rig.run(name, spec).await;
        rig.until_phase(name, "Succeeded").await;
        let log = node.log(name, LogOptions::default()).await;
        assert_eq!(log, format!("{expected}\n"), "{limit} in {divisor}");
    }
    node.stop().await;
}

#[tokio::test]
async fn what_the_node_cannot_do_is_refused_with_a_message() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut cases = vec![
        (
            "no-command",
            json!({"containers": [{"name": "main", "image": "busybox:1"}]}),
            "ImagePullBackOff",
            "images.yaml: \"busybox:1\"",
        ),
        (
            "shared",
            {
                let mut spec = script("sleep 60");
                spec["shareProcessNamespace"] = json!(true);
                spec
            },
            "CreateContainerConfigError",
            "shareProcessNamespace",
        ),
    ];
    if node.has_mounts() {
        cases.push((
            "volume",
            {
                let mut spec = script("sleep 60");
                spec["volumes"] = json!([{"name": "share", "nfs": {"server": "s", "path": "/p"}}]);
                spec["containers"][0]["volumeMounts"] =
                    json!([{"name": "share", "mountPath": "/s"}]);
                spec
            },
            "CreateContainerConfigError",
            "volume share is of a kind that this node does not know",
        ));
        cases.push((
            "claim",
            {
                let mut spec = script("sleep 60");
                spec["volumes"] =
                    json!([{"name": "data", "persistentVolumeClaim": {"claimName": "../other/data"}}]);
                spec["containers"][0]["volumeMounts"] =
                    json!([{"name": "data", "mountPath": "/s"}]);
                spec
            },
            "CreateContainerConfigError",
            "volume data: expected the name of a PersistentVolumeClaim",
        ));
    }
    for (name, spec, reason, message) in cases {
        rig.run(name, spec).await;
        let status = rig
            .until(name, "refused", |s| {
                s["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
            })
            .await;
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(status["phase"], "Pending");
        assert!(
            waiting["message"]
                .as_str()
                .expect("a message")
                .contains(message),
            "{waiting}"
        );
        rig.delete(name).await;
        rig.until_gone(name).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_pod_waits_for_what_it_refers_to() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("echo $COLOR");
    spec["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "late"}}]);
    rig.run("waits", spec).await;
    let status = rig
        .until("waits", "refused", |s| {
            !s["containerStatuses"][0]["state"]["waiting"].is_null()
        })
        .await;
    assert_eq!(
        status["containerStatuses"][0]["state"]["waiting"],
        json!({
            "reason": "CreateContainerConfigError", "message": "configmap \"late\" not found",
        })
    );
    rig.create::<ConfigMap>(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"},
        "data": {"COLOR": "blue"}}),
    )
    .await;
    rig.until_phase("waits", "Succeeded").await;
    assert_eq!(node.log("waits", LogOptions::default()).await, "blue\n");
    node.stop().await;
}

#[tokio::test]
async fn a_failed_container_runs_again_and_its_last_log_stays() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    let mut spec = script("echo try; test -e /state/x && exit 0; touch /state/x; exit 5");
    spec["restartPolicy"] = json!("OnFailure");
    spec["volumes"] = json!([{"name": "state", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "state", "mountPath": "/state"}]);
    rig.run("again", spec).await;
    let status = rig.until_phase("again", "Succeeded").await;
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 5);
    let previous = LogOptions {
        previous: true,
        ..LogOptions::default()
    };
    assert_eq!(node.log("again", previous).await, "try\n");
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_keeps_failing_waits_longer() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("exit 1");
    spec["restartPolicy"] = json!("Always");
    rig.run("crashes", spec).await;
    let status = rig
        .until("crashes", "back-off", |s| {
            s["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let container = &status["containerStatuses"][0];
    assert_eq!(
        (&status["phase"], &container["restartCount"]),
        (&json!("Running"), &json!(1))
    );
    assert!(
        container["state"]["waiting"]["message"]
            .as_str()
            .expect("text")
            .starts_with("back-off 10s")
    );
    rig.delete("crashes").await;
    rig.until_gone("crashes").await;
    node.stop().await;
}

#[tokio::test]
async fn a_deleted_pod_is_asked_to_end_and_its_object_goes_last() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run(
        "stops",
        script("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"),
    )
    .await;
    rig.until_phase("stops", "Running").await;
    let dir = rig.pod_dir("stops").await;
    rig.delete("stops").await;
    rig.until_gone("stops").await;
    let writes = rig.writes();
    assert_eq!(
        writes.last().expect("a write"),
        "DELETE /api/v1/namespaces/default/pods/stops"
    );
    assert!(
        writes[writes.len() - 2].starts_with("PATCH"),
        "the end was written before: {writes:?}"
    );
    until_removed(&dir).await;
    node.stop().await;
}

#[tokio::test]
async fn grace_is_the_time_between_asking_and_killing() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("trap '' TERM; echo ready; while :; do sleep 0.01; done");
    spec["terminationGracePeriodSeconds"] = json!(1);
    rig.run("stubborn", spec).await;
    rig.until_phase("stubborn", "Running").await;
    rig.delete("stubborn").await;
    rig.until_gone("stubborn").await;

    rig.run(
        "forced",
        script("trap '' TERM; echo ready; while :; do sleep 0.01; done"),
    )
    .await;
    rig.until_phase("forced", "Running").await;
    let uid = Some(rig.uid("forced").await);
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let dir = rig.pod_dir("forced").await;
    rig.pods().delete("forced", &now).await.expect("deleted");
    rig.until_gone("forced").await;
    until_removed(&dir).await;
    node.stop().await;
}

#[tokio::test]
async fn a_pod_past_its_deadline_fails() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("exec sleep 60");
    spec["activeDeadlineSeconds"] = json!(1);
    rig.run("late", spec).await;
    let status = rig.until_phase("late", "Failed").await;
    assert_eq!(
        (&status["reason"], &end(&status, 0)["exitCode"]),
        (&json!("DeadlineExceeded"), &json!(143))
    );
    node.stop().await;
}

#[tokio::test]
async fn an_image_can_be_a_directory_with_a_program() {
    let rig = Rig::new();
    let tree = rig.path().join("tree");
    std::fs::create_dir_all(tree.join("etc")).expect("a tree");
    std::fs::write(tree.join("etc/motto"), "all in a tree").expect("a file");
    let map = rig.path().join("images.yaml");
    let bin = json!([{"host": "/usr", "path": "/usr", "readOnly": true}, {"host": "/usr/bin", "path": "/bin"},
        {"host": "/lib", "path": "/lib"}, {"host": "/lib64", "path": "/lib64"}]);
    std::fs::write(
        &map,
        json!({
            "tree:*": {"rootfs": tree, "mounts": bin, "entrypoint": ["/bin/cat"],
                "command": ["/etc/motto"], "workdir": "/etc"},
            "bare:*": {"rootfs": tree, "mounts": bin, "workdir": "/etc"},
        })
        .to_string(),
    )
    .expect("a map");
    let mut config = rig.config(PodsLifetime::DieWithNode);
    config.images = ImageMap::load(&map).expect("a map");
    let node = rig.start_with(config).await;
    if !node.has_mounts() {
        return;
    }
    for (name, container) in [
        ("tree", json!({"name": "main", "image": "tree:1"})),
        // Without an entry point the arguments are the program.
        (
            "bare",
            json!({"name": "main", "image": "bare:1", "args": ["/bin/cat", "motto"]}),
        ),
    ] {
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        rig.run(name, spec).await;
        rig.until_phase(name, "Succeeded").await;
        let log = node.log(name, LogOptions::default()).await;
        assert_eq!(log, "all in a tree\n", "{name}");
    }
    assert!(
        !tree.join("usr").exists(),
        "mount points stay out of the image"
    );
    node.stop().await;
}
