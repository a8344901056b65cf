//! Deletes that are held until their pods may go: `--hold-deletes`.

use std::time::{Duration, Instant};

use longshore_api::podops::OperationLabel;
use serde_json::json;

use super::{http, place::Place, scenarios::denial, world::World};

const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/abc";
/// How long the controller of these tests holds.
const HELD: Duration = Duration::from_secs(6);
const HELD_NOW: &str = "longshore_podops_held_deletes";

/// All of it, with a controller of its own; the one before is stopped.
pub(super) async fn all(world: &World) {
    world.begin_again(&["--hold-deletes", "6s"]).await;
    let place = world.namespace("held").await;
    a_held_delete_is_answered_when_the_pod_may_go(&place).await;
    the_pods_of_a_collection_are_held_one_by_one(&place).await;
    a_delete_that_was_held_in_vain_reads_as_before(&place).await;
    whoever_goes_away_frees_their_place(&place).await;
    a_controller_that_stops_answers_whom_it_holds(&place).await;
    world.begin_again(&[]).await;
}

#[expect(clippy::disallowed_methods, reason = "a test that measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until so many deletes are held.
async fn until_held(place: &Place<'_>, n: f64) {
    for _ in 0..600 {
        if place.world.metric(HELD_NOW).await == Some(n) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{n} deletes are not held in time");
}

/// It succeeds, and it is this delete that removes the pod.
async fn a_held_delete_is_answered_when_the_pod_may_go(place: &Place<'_>) {
    place.serving(&["web-0", "web-1"]).await;
    place.delete("web-0").await.unwrap();
    place.until_gone("web-0").await;
    place.change("web-1", json!({"finalizers": [HOLDER]})).await;
    let trail = place.trail();
    let freeing = async {
        until_held(place, 1.0).await;
        place
            .until_label("web-1", &OperationLabel::Preparing.of("pod-delete"))
            .await;
        assert!(!place.pod("web-1").await.is_deleting);
        place.change("web-1", json!({"finalizers": []})).await;
    };
    let (deleted, ()) = tokio::join!(place.delete("web-1"), freeing);
    deleted.unwrap();
    place.until_gone("web-1").await;
    until_held(place, 0.0).await;
    let seen = trail.seen().into_iter();
    for pod in seen.filter(|pod| pod.is_deleting) {
        let granted = OperationLabel::Operate.of("pod-delete");
        assert!(pod.labels.contains_key(&granted), "{pod:?}");
    }
    // A dry run is answered at once.
    place.serving(&["web-2"]).await;
    let asked_at = now();
    let path = place.core("pods/web-2?dryRun=All");
    let dry = http::delete(place.client(), &path, json!({"dryRun": ["All"]})).await;
    assert!(dry.is_err() && asked_at.elapsed() < HELD, "{dry:?}");
    place.delete("web-2").await.unwrap();
    place.until_gone("web-2").await;
}

/// API servers ask about each pod of a collection that is deleted, and name none of them.
async fn the_pods_of_a_collection_are_held_one_by_one(place: &Place<'_>) {
    const NAMES: [&str; 3] = ["mix-0", "mix-1", "mix-2"];
    place.serving(&NAMES).await;
    let all = http::delete(place.client(), &place.core("pods"), json!({})).await;
    all.unwrap();
    for name in NAMES {
        place.until_gone(name).await;
    }
    until_held(place, 0.0).await;
}

/// The operation goes on, and the controller ends it.
async fn a_delete_that_was_held_in_vain_reads_as_before(place: &Place<'_>) {
    place.serving(&["web-3"]).await;
    place.change("web-3", json!({"finalizers": [HOLDER]})).await;
    let asked_at = now();
    match place.delete("web-3").await {
        Err(kube::Error::Api(status)) => {
            let with = format!(" with finalizers: [{HOLDER}]");
            assert_eq!((status.code, status.message), (403, denial(&with)));
        }
        other => panic!("{other:?}"),
    }
    let took = asked_at.elapsed();
    assert!(took >= HELD && took < 2 * HELD, "{took:?}");
    place.change("web-3", json!({"finalizers": []})).await;
    place.until_gone("web-3").await;
}

async fn whoever_goes_away_frees_their_place(place: &Place<'_>) {
    place.serving(&["web-4"]).await;
    place.change("web-4", json!({"finalizers": [HOLDER]})).await;
    let begun = async {
        until_held(place, 1.0).await;
        let begun = OperationLabel::Preparing.of("pod-delete");
        place.until_label("web-4", &begun).await;
    };
    tokio::select! {
        answered = place.delete("web-4") => panic!("{answered:?}"),
        () = begun => {}
    }
    let left_at = now();
    until_held(place, 0.0).await;
    assert!(left_at.elapsed() < HELD / 2, "{:?}", left_at.elapsed());
    place.change("web-4", json!({"finalizers": []})).await;
    place.until_gone("web-4").await;
}

async fn a_controller_that_stops_answers_whom_it_holds(place: &Place<'_>) {
    place.serving(&["web-5"]).await;
    place.change("web-5", json!({"finalizers": [HOLDER]})).await;
    let stopping = async {
        until_held(place, 1.0).await;
        place.world.stop().await;
    };
    let asked_at = now();
    let (answered, ()) = tokio::join!(place.delete("web-5"), stopping);
    assert!(
        answered.is_err() && asked_at.elapsed() < HELD,
        "{answered:?}"
    );
}
