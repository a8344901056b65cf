use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, client::Body};
use longshore_kit::{Cache, ListWatch, Update};
use serde_json::json;

/// What a watch answers: after how long, and which pods have been deleted at which versions. Then it ends.
type Answer = (Duration, &'static [u64]);

/// An API server that answers one watch after the other like this, and the last one for ever.
fn server(answers: &[Answer]) -> Client {
    let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answers = Arc::clone(&answers);
        async move {
            let answer = answers.lock().unwrap().pop_front();
            let Some((time, versions)) = answer else {
                return std::future::pending().await;
            };
            tokio::time::sleep(time).await;
            let lines: String = versions.iter().map(|version| deleted(*version)).collect();
            Ok::<_, Infallible>(http::Response::new(Body::from(lines.into_bytes())))
        }
    });
    Client::new(service, "default")
}

fn deleted(version: u64) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{version}"), "namespace": "default", "uid": "u",
            "resourceVersion": version.to_string(),
        },
    });
    format!("{}\n", json!({"type": "DELETED", "object": pod}))
}

/// The versions that are told before the watch says that it has caught up.
async fn caught_up(answers: &[Answer]) -> Vec<u64> {
    let watch = ListWatch::new(Api::<Pod>::default_namespaced(server(answers)));
    let updates = watch.start_at(3).catching_up_to(9);
    let mut updates = Box::pin(updates.into_cache(Cache::new()));
    let mut told = Vec::new();
    loop {
        let update = tokio::time::timeout(Duration::from_secs(3_600), updates.next()).await;
        match update.unwrap().unwrap() {
            Update::Applied(pod) | Update::Deleted(pod) => {
                told.push(
                    pod.metadata
                        .resource_version
                        .as_ref()
                        .unwrap()
                        .parse()
                        .unwrap(),
                );
            }
            Update::Reached(version) => {
                assert_eq!(version, 9);
                return told;
            }
        }
    }
}

const AT_ONCE: Duration = Duration::ZERO;
const IN_TIME: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_silent_for_its_time_has_caught_up() {
    assert!(caught_up(&[(IN_TIME, &[])]).await.is_empty());
}

/// A server that goes down ends its watches without a word.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_early_has_not_caught_up() {
    let told = caught_up(&[(AT_ONCE, &[]), (AT_ONCE, &[7]), (IN_TIME, &[])]).await;
    assert_eq!(told, [7]);
}

/// The time was over before all could be sent.
#[tokio::test(start_paused = true)]
async fn a_watch_that_had_something_to_tell_may_have_more() {
    let told = caught_up(&[(IN_TIME, &[5]), (IN_TIME, &[7]), (IN_TIME, &[])]).await;
    assert_eq!(told, [5, 7]);
}

/// A half-open connection: no server is at the other end any more.
#[tokio::test(start_paused = true)]
async fn a_watch_that_hangs_has_not_caught_up() {
    let told = caught_up(&[(FOR_EVER, &[]), (AT_ONCE, &[7]), (IN_TIME, &[])]).await;
    assert_eq!(told, [7]);
}
