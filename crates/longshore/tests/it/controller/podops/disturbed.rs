//! Many pods at once, nodes that are drained, and controllers that are killed.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use futures::future::join_all;
use longshore_api::podops::{LABEL_SERVICE_AVAILABLE, LABEL_TO_DELETE, OperationLabel};
use serde_json::json;

use super::{
    place::{Place, Trail},
    workloads,
};

use OperationLabel::{
    Completing, Operate, Operated, Operating, OperationType, PreCheck, PreChecked, Preparing,
};

/// So many pods, where the machine of the test is a small one.
const PODS: &str = "LONGSHORE_TEST_PODS";

#[expect(clippy::disallowed_methods, reason = "tests read the environment")]
pub(super) fn n_pods() -> usize {
    std::env::var(PODS).map_or(40, |text| text.parse().unwrap())
}

/// 16.13: they all go within seconds, each after its operation. Prints how long it took.
///
/// On a busy machine a delete may pass that nobody has refused: an API server that has refused one by what its watch cache
/// has reads the pod again and asks once more within the same request, and by then the operation may be granted.
pub(super) async fn many_pods_are_deleted_at_once(place: &Place<'_>) {
    let names: Vec<String> = (0..n_pods()).map(|n| format!("web-{n}")).collect();
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    place.serving(&refs).await;
    let trail = place.trail();
    let began_at = now();
    let asked = names.iter().map(|name| async move {
        let asked_at = now();
        let _ = place.delete(name).await;
        asked_at.elapsed()
    });
    let mut answers = join_all(asked).await;
    answers.sort_unstable();
    join_all(names.iter().map(|name| place.until_gone(name))).await;
    let took = began_at.elapsed();
    for name in &names {
        trail.until_got(name, &Operate.of("pod-delete")).await;
    }
    println!(
        "podops: {} pods gone in {:.1} s, a delete answered in {} ms (median)",
        names.len(),
        took.as_secs_f64(),
        answers[answers.len() / 2].as_millis(),
    );
}

#[expect(clippy::disallowed_methods, reason = "a test that measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// 16.1: `kubectl drain` waits, and succeeds.
pub(super) async fn a_node_is_drained(place: &Place<'_>) {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(kubectl) = std::env::var_os("LONGSHORE_TEST_KUBECTL").map(PathBuf::from) else {
        println!("skipped: no kubectl (set LONGSHORE_TEST_KUBECTL)");
        return;
    };
    // Others are on this node as well.
    for name in ["web-0", "web-1", "web-2"] {
        place.serving(&[name]).await;
        place.label(name, json!({"drained": "yes"})).await;
    }
    if place.world.has_workloads {
        workloads::a_stateful_set_beside(place, 3, "drained").await;
    }
    let node = place.world.kubelet.switch().to_owned();
    let kubeconfig = place.world.kubeconfig();
    let drained = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args([
            "drain",
            &node,
            "--force",
            "--ignore-daemonsets",
            "--pod-selector=drained=yes",
            "--timeout=120s",
        ]);
        command.output().unwrap()
    });
    let trail = place.trail();
    let drained = drained.await.unwrap();
    let text = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(drained.status.success(), "{text}");
    for name in ["web-0", "web-1", "web-2"] {
        place.until_gone(name).await;
        trail.until_got(name, &Operate.of("pod-delete")).await;
    }
    if place.world.has_workloads {
        // The next pods of these names are on the other node, and no operation touched them.
        for name in ["set-0", "set-1"] {
            place.until_serving(name).await;
            let got = trail.got(name).into_iter();
            let n_granted = got.filter(|got| *got == Operate.of("pod-delete")).count();
            assert_eq!(n_granted, 1, "{name}");
        }
    }
}

/// 17.8: whenever it is killed, the next one goes on: a pod that is deleted.
pub(super) async fn a_deletion_survives_kills_at_every_label(place: &Place<'_>) {
    let labels = [
        LABEL_TO_DELETE.to_owned(),
        PreCheck.of("pod-delete"),
        PreChecked.of("pod-delete"),
        Preparing.of("pod-delete"),
        Operate.of("pod-delete"),
    ];
    for (n, label) in labels.iter().enumerate() {
        let name = format!("gone-{n}");
        place.serving(&[&name]).await;
        let trail = place.trail();
        place.world.note_asked().await;
        assert!(place.delete(&name).await.is_err(), "refused at first");
        killed_at(place, &trail, &name, label).await;
        place.until_gone(&name).await;
    }
}

/// The same: a pod that is operated on, and serves again.
pub(super) async fn an_operation_survives_kills_at_every_label(place: &Place<'_>) {
    for (n, label) in [PreCheck, Preparing, Operate, Operated, Completing]
        .into_iter()
        .enumerate()
    {
        let name = format!("kept-{n}");
        place.serving(&[&name]).await;
        let trail = place.trail();
        place.world.note_asked().await;
        let label = label.of("a");
        let work = async {
            let begin = json!({Operating.of("a"): "1", OperationType.of("a"): "update"});
            place.label(&name, begin).await;
            place.until_label(&name, &Operate.of("a")).await;
            place.insist(&name, json!({Operating.of("a"): null})).await;
        };
        tokio::join!(work, killed_at(place, &trail, &name, &label));
        let path = place.core(&format!("pods/{name}"));
        let is_clean = |pod: &serde_json::Value| {
            let labels = pod["metadata"]["labels"].as_object().unwrap();
            let is_left = labels.keys().any(|key| key.contains(".podopslifecycle."));
            labels.contains_key(LABEL_SERVICE_AVAILABLE) && !is_left
        };
        place.world.until_object(&path, is_clean).await;
        let granted = trail
            .got(&name)
            .into_iter()
            .filter(|got| *got == Operate.of("a"));
        assert_eq!(granted.count(), 1, "granted once");
    }
}

/// Kills the controller as soon as a pod has had this label, and starts the next one.
async fn killed_at(place: &Place<'_>, trail: &Trail, name: &str, label: &str) {
    while !trail.got(name).iter().any(|got| got == label) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    place.world.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    place.world.revive();
    // The pod may be gone by now, and the next one comes at once.
    place.world.until_it_serves().await;
}
