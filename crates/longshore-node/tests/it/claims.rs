//! PersistentVolumeClaims and their directories.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use longshore_node::{LogOptions, MissingClaims, NodeConfig, PodsLifetime};
use serde_json::{Value, json};

use crate::node_rig::{PATIENCE, Rig, is, script, until_removed};

/// A pod spec that has the claim `data` at `/claim`.
fn with_claim(program: &str) -> Value {
    let mut spec = script(program);
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["volumes"] = json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "claim", "mountPath": "/claim"}]);
    spec
}

impl Rig {
    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.client.clone())
    }

    async fn make_claim(&self) {
        self.create::<PersistentVolumeClaim>(json!({
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    }

    async fn delete_claim(&self) {
        let params = DeleteParams::default();
        let deleted = self.claims().delete("data", &params).await;
        deleted.expect("deleted");
    }

    async fn claim(&self) -> Option<PersistentVolumeClaim> {
        self.claims().get_opt("data").await.expect("an answer")
    }

    async fn until_claim_gone(&self) {
        let gone = async {
            while self.claim().await.is_some() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let gone = tokio::time::timeout(PATIENCE, gone).await;
        assert!(gone.is_ok(), "the claim goes");
    }

    async fn until_waiting(&self, pod: &str, message: &str) {
        let expected = json!({"reason": "ContainerCreating", "message": message});
        let is_expected =
            |status: &Value| status["containerStatuses"][0]["state"]["waiting"] == expected;
        self.until(pod, message, is_expected).await;
    }
}

#[tokio::test]
async fn a_claim_keeps_its_files_and_memory_is_forgotten() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.make_claim().await;
    for (name, program) in [
        ("writes", "echo kept > /claim/x; echo lost > /memory/x"),
        ("reads", "cat /claim/x; ls /memory"),
    ] {
        let mut spec = with_claim(program);
        let memory = json!({"name": "memory", "emptyDir": {"medium": "Memory"}});
        let mount = json!({"name": "memory", "mountPath": "/memory"});
        for (list, more) in [("/volumes", memory), ("/containers/0/volumeMounts", mount)] {
            let list = spec.pointer_mut(list).and_then(Value::as_array_mut);
            list.expect("a list").push(more);
        }
        rig.run(name, spec).await;
        rig.until_phase(name, "Succeeded").await;
    }
    assert_eq!(node.log("reads", LogOptions::default()).await, "kept\n");
    node.stop().await;
}

#[tokio::test]
async fn a_pod_waits_for_its_claim() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.run("early", with_claim("echo found")).await;
    rig.until_waiting("early", "persistentvolumeclaim \"data\" not found")
        .await;
    rig.make_claim().await;
    rig.until_phase("early", "Succeeded").await;
    assert_eq!(node.log("early", LogOptions::default()).await, "found\n");
    node.stop().await;
}

#[tokio::test]
async fn the_directory_of_a_claim_goes_with_it_when_no_pod_uses_it() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.make_claim().await;
    rig.run("uses", with_claim("touch /claim/x; sleep 600"))
        .await;
    rig.until("uses", "ready", |s| is(s, "Ready", "True")).await;
    let dir = rig.path().join("node/volumes/default/data");

    rig.delete_claim().await;
    // A pod that comes later does not hold it.
    rig.run("late", with_claim("ls /claim; echo end")).await;
    rig.until_waiting("late", "persistentvolumeclaim \"data\" is being deleted")
        .await;
    assert!(dir.is_dir());
    let claim = rig.claim().await.expect("a pod uses it");
    assert!(claim.metadata.deletion_timestamp.is_some());

    rig.delete("uses").await;
    rig.until_claim_gone().await;
    assert!(!dir.exists(), "the directory goes before the object");
    rig.until_waiting("late", "persistentvolumeclaim \"data\" not found")
        .await;
    rig.make_claim().await;
    rig.until_phase("late", "Succeeded").await;
    assert_eq!(node.log("late", LogOptions::default()).await, "end\n");
    node.stop().await;
}

/// What was deleted while no node ran, and what lost its finalizer.
#[tokio::test]
async fn no_directory_stays_behind_a_claim_however_it_went() {
    let rig = Rig::new();
    let config = || rig.config(PodsLifetime::OutliveNode);
    let node = rig.start_with(config()).await;
    if !node.has_mounts() {
        return;
    }
    let dir = rig.path().join("node/volumes/default/data");
    rig.make_claim().await;
    rig.run("first", with_claim("touch /claim/x")).await;
    rig.until_phase("first", "Succeeded").await;
    rig.delete("first").await;
    rig.until_gone("first").await;
    node.stop().await;
    rig.delete_claim().await;
    assert!(rig.claim().await.is_some() && dir.is_dir());
    let node = rig.start_with(config()).await;
    rig.until_claim_gone().await;
    assert!(!dir.exists());

    rig.make_claim().await;
    rig.run("second", with_claim("touch /claim/x; sleep 600"))
        .await;
    rig.until("second", "ready", |s| is(s, "Ready", "True"))
        .await;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    let patched = rig.claims().patch("data", &params, &none).await;
    patched.expect("patched");
    rig.delete_claim().await;
    assert!(rig.claim().await.is_none() && dir.is_dir());
    rig.delete("second").await;
    until_removed(&dir).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_without_users_makes_claims_that_are_missing() {
    let rig = Rig::new();
    let config = NodeConfig {
        missing_claims: MissingClaims::Make,
        ..rig.config(PodsLifetime::DieWithNode)
    };
    let node = rig.start_with(config).await;
    if !node.has_mounts() {
        return;
    }
    rig.run("any", with_claim("touch /claim/x")).await;
    rig.until_phase("any", "Succeeded").await;
    assert!(rig.path().join("node/volumes/default/data/x").exists());
    node.stop().await;
}
