//! What a pod says about the files and the rights of its programs, and what of it changes while they run.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use longshore_node::{LogOptions, Profile};
use serde_json::json;

use crate::node_rig::{Rig, end, is, script};

#[tokio::test]
async fn volumes_follow_what_they_show_and_sub_paths_do_not() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.create::<ConfigMap>(json!({"metadata": {"name": "conf"}, "data": {"key": "1\n"}}))
        .await;
    let mut spec = script(
        "cat /conf/key; until grep -q 2 /conf/key && grep -q new /info/labels && test -e /late/token; \
         do sleep 0.05; done; cat /conf/key /one /late/token",
    );
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    spec["volumes"] = json!([
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "late", "secret": {"secretName": "late", "optional": true}},
        {"name": "info", "downwardAPI": {"items": labels}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "conf", "mountPath": "/conf"},
        {"name": "conf", "mountPath": "/one", "subPath": "key"},
        {"name": "late", "mountPath": "/late"},
        {"name": "info", "mountPath": "/info"},
    ]);
    rig.run("follows", spec).await;
    rig.until_phase("follows", "Running").await;
    node.until_printed("follows", "1\n").await;
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"data": {"key": "2\n"}}));
    let maps = Api::<ConfigMap>::default_namespaced(rig.client.clone());
    maps.patch("conf", &params, &patch).await.expect("patched");
    let late = json!({"metadata": {"name": "late"}, "data": {"token": "M3JkCg=="}});
    rig.create::<Secret>(late).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"is": "new"}}}));
    let pods: Api<Pod> = rig.pods();
    pods.patch("follows", &params, &patch)
        .await
        .expect("patched");
    rig.until_phase("follows", "Succeeded").await;
    let log = node.log("follows", LogOptions::default()).await;
    assert_eq!(log, "1\n2\n1\n3rd\n");
    node.stop().await;
}

#[tokio::test]
async fn a_program_has_no_more_rights_than_its_pod_says() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    let bare = "grep -q 'CapBnd:.0000000000000000' /proc/self/status && grep -q 'CapEff:.0000000000000000' \
                /proc/self/status && grep -q 'NoNewPrivs:.1' /proc/self/status";
    let mut spec = script(&format!("{bare} && echo bare; sleep 600"));
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["securityContext"] = json!({
        "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
    });
    // A command that runs in it later has no more.
    spec["containers"][0]["readinessProbe"] = json!({
        "exec": {"command": ["sh", "-c", bare]}, "periodSeconds": 1, "timeoutSeconds": 10,
    });
    rig.run("bare", spec).await;
    rig.until("bare", "ready", |s| is(s, "Ready", "True")).await;
    let log = node.log("bare", LogOptions::default()).await;
    assert_eq!(log, "bare\n");
    node.stop().await;
}

/// The set of `capsh --decode=00000000a80425fb`.
const OF_RUNTIMES: u64 = 0xa804_25fb;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

/// What a container may have at most: in a user namespace everything, else what the node has.
fn most(profile: Profile) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let held = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    let held = held.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    match profile {
        Profile::User => u64::MAX,
        Profile::Full | Profile::None => held.expect("capabilities"),
    }
}

#[tokio::test]
async fn a_program_that_names_no_capabilities_has_those_of_container_runtimes() {
    let rig = Rig::new();
    let node = rig.start().await;
    let most = most(node.node.profile());
    // The network of the pod is that of the machine.
    let unnamed = OF_RUNTIMES & !NET_RAW;
    let mut cases = vec![("plain", json!({}), most & unnamed)];
    if most & NET_ADMIN != 0 && node.node.profile() == Profile::Full {
        let more = json!({"capabilities": {"add": ["NET_ADMIN"]}});
        cases.push(("more", more, most & (unnamed | NET_ADMIN)));
    }
    if node.node.profile() == Profile::None && most == 0 {
        println!("SKIPPED: an ordinary user has nothing to give up");
        return;
    }
    for (name, security, expected) in cases {
        let bound = format!("CapBnd:.{expected:016x}");
        let mut spec = script(&format!(
            "grep ^CapBnd /proc/self/status; grep -q '{bound}' /proc/self/status"
        ));
        spec["containers"][0]["securityContext"] = security;
        rig.run(name, spec).await;
        let status = rig.until(name, "ended", |s| !end(s, 0).is_null()).await;
        let log = node.log(name, LogOptions::default()).await;
        assert_eq!(end(&status, 0)["exitCode"], 0, "{name}: {log}, not {bound}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_volume_belongs_to_the_group_of_the_pod() {
    let rig = Rig::new();
    let node = rig.start().await;
    if node.node.profile() != Profile::Full {
        println!("SKIPPED: only root gives files to groups");
        return;
    }
    let secret = json!({"metadata": {"name": "key"}, "data": {"token": "M3JkCg=="}});
    rig.create::<Secret>(secret).await;
    let mut spec = script(
        "stat -Lc '%g %a' /key/token /desk; cat /key/token; echo x > /desk/x; stat -c %g /desk/x",
    );
    spec["securityContext"] = json!({"runAsUser": 4321, "runAsGroup": 4321, "fsGroup": 1234});
    spec["volumes"] = json!([
        {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
        {"name": "work", "emptyDir": {}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "key", "mountPath": "/key"}, {"name": "work", "mountPath": "/desk"},
    ]);
    rig.run("group", spec).await;
    rig.until_phase("group", "Succeeded").await;
    let log = node.log("group", LogOptions::default()).await;
    assert_eq!(log, "1234 440\n1234 2777\n3rd\n1234\n");
    node.stop().await;
}

#[tokio::test]
async fn aliases_are_in_the_hosts_file_of_the_pod() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    let mut spec = script("cat /etc/hosts");
    spec["hostAliases"] = json!([{"ip": "10.9.8.7", "hostnames": ["foo", "bar"]}]);
    rig.run("aliases", spec).await;
    rig.until_phase("aliases", "Succeeded").await;
    let log = node.log("aliases", LogOptions::default()).await;
    assert!(log.ends_with("10.9.8.7\tfoo\tbar\n"), "{log}");
    node.stop().await;
}

#[tokio::test]
async fn a_sub_path_shows_the_file_that_an_init_container_has_made() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    let mut spec = script("cat /etc/app.conf && test -d /made && stat -c %a /made");
    spec["volumes"] = json!([{"name": "e", "emptyDir": {}}]);
    spec["initContainers"] = json!([{
        "name": "init", "image": "any", "command": ["sh", "-c", "echo conf > /e/app.conf"],
        "volumeMounts": [{"name": "e", "mountPath": "/e"}],
    }]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "e", "mountPath": "/etc/app.conf", "subPath": "app.conf"},
        {"name": "e", "mountPath": "/made", "subPath": "new/dir"},
    ]);
    rig.run("conf", spec).await;
    let status = rig.until("conf", "ended", |s| !end(s, 0).is_null()).await;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    let volume = rig.pod_dir("conf").await.join("volumes/e");
    let written = std::fs::read_to_string(volume.join("app.conf")).expect("the file");
    assert_eq!(written, "conf\n");
    assert!(volume.join("new/dir").is_dir());
    node.stop().await;
}

#[tokio::test]
async fn a_container_with_a_mistake_waits_alone() {
    let rig = Rig::new();
    let node = rig.start().await;
    let late = json!([{"configMapRef": {"name": "late"}}]);
    let mut spec = script("exit 0");
    spec["initContainers"] =
        json!([{"name": "init", "image": "any", "command": ["sh", "-c", "true"]}]);
    spec["containers"] = json!([
        {"name": "good", "image": "any", "command": ["sh", "-c", "true"]},
        {"name": "late", "image": "any", "command": ["sh", "-c", "true"], "envFrom": late},
    ]);
    rig.run("mixed", spec).await;
    let status = rig
        .until("mixed", "one ended, one refused", |status| {
            let reason = &status["containerStatuses"][1]["state"]["waiting"]["reason"];
            !end(status, 0).is_null() && reason == "CreateContainerConfigError"
        })
        .await;
    let init = &status["initContainerStatuses"][0]["state"]["terminated"];
    assert_eq!(init["exitCode"], 0, "{status:#}");
    assert_eq!(end(&status, 0)["exitCode"], 0, "{status:#}");
    rig.create::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"A": "b"}}))
        .await;
    rig.until_phase("mixed", "Succeeded").await;
    node.stop().await;
}
