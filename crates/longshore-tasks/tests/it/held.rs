//! Whatever the API server does not do for an action is said within ten seconds, in its own words: each verb and object,
//! refused for good and for now.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use longshore_test::{
    Faults,
    faults::{Admission, DENIED, Rule},
    pod,
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    silent::{is_told, said_in_time},
    world::{World, action, delete_action, ending},
};

/// For good, and for now.
const CODES: [u16; 2] = [403, 500];
/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(120);
const IN_TIME: Duration = Duration::from_secs(10);

/// An executor behind an API server with these rules.
struct Executor {
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Executor {
    fn start(world: &World, rules: &[Rule]) -> Self {
        let process = Faults::none().start();
        let admission = Admission::new(rules.iter().copied());
        let client = process.client(admission.service(&world.api));
        let shutdown = CancellationToken::new();
        let tasks = world.executor(&process).run(client, shutdown.clone());
        Self {
            task: tokio::spawn(tasks),
            shutdown,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn refuses(verb: &'static str, resource: &'static str, code: u16) -> Rule {
    Rule::Refuses {
        verb,
        resource,
        code,
    }
}

/// Waits until this holds of the action.
async fn until(world: &World, holds: impl Fn(&serde_json::Value) -> bool) {
    let found = async {
        while !world.actions().await.iter().any(&holds) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, found).await.unwrap();
}

/// Waits until no pod is left.
async fn until_no_pod(world: &World) {
    let gone = async {
        while !world.pods().await.is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

/// A world whose action `held` runs this script, and its executor has ended.
async fn with_running_action(script: &str) -> World {
    let world = World::new(&[]).await;
    let executor = Executor::start(&world, &[]);
    world.apply(action("held", 0, script)).await;
    until(&world, |it| it["status"]["pluginPhase"] == "PhaseRunning").await;
    executor.stop().await;
    world
}

fn pods(world: &World) -> Api<Pod> {
    Api::namespaced(world.place.client(), world.place.namespace())
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_not_added_is_said() {
    for code in CODES {
        let world = World::new(&[]).await;
        let executor = Executor::start(&world, &[refuses("patch", "taskactions", code)]);
        world.apply(action("held", 0, "exit 0")).await;
        let said = said_in_time(&world, "held").await;
        let expected = format!("the finalizer of TaskAction default/held is not added: {DENIED}");
        assert_eq!(said, expected, "{code}");
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_not_removed_is_said() {
    for code in CODES {
        let world = with_running_action("run 60s exit 0").await;
        let executor = Executor::start(&world, &[refuses("patch", "taskactions", code)]);
        delete_action(&world.place, "held").await;
        until_no_pod(&world).await;
        let said = said_in_time(&world, "held").await;
        let expected = format!("the finalizer of TaskAction default/held is not removed: {DENIED}");
        assert_eq!(said, expected, "{code}");
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_written_is_said_in_an_event() {
    for code in CODES {
        let world = World::new(&[]).await;
        let rules = [refuses("patch", "taskactions/status", code)];
        let executor = Executor::start(&world, &rules);
        world.apply(action("held", 0, "run 60s exit 0")).await;
        let words = format!("its status is not written: {DENIED}");
        timeout(IN_TIME, is_told(&world, &words)).await.unwrap();
        let actions = world.actions().await;
        let status = &actions[0]["status"];
        assert!(status["conditions"].is_null(), "{code}: {status}");
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_deleted_is_said() {
    for code in CODES {
        let world = with_running_action("run 600s exit 0").await;
        let executor = Executor::start(&world, &[refuses("delete", "pods", code)]);
        delete_action(&world.place, "held").await;
        let said = said_in_time(&world, "held").await;
        let expected = format!("Pod default/held-0 is not deleted: {DENIED}");
        assert_eq!(said, expected, "{code}");
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_a_pod_that_is_not_removed_is_said() {
    for code in CODES {
        let mut world = World::new(&[]).await;
        world.config.plugins.k8s.inject_finalizer = true;
        let executor = Executor::start(&world, &[refuses("patch", "pods", code)]);
        world.apply(action("held", 0, "run 600s exit 0")).await;
        until(&world, |it| it["status"]["pluginPhase"] == "PhaseRunning").await;
        delete_action(&world.place, "held").await;
        let has_ended = async {
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|it| it.phase.clone());
            while world
                .pods()
                .await
                .iter()
                .any(|it| phase(it).as_deref() == Some("Running"))
            {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, has_ended).await.unwrap();
        let said = said_in_time(&world, "held").await;
        let expected = format!("the finalizer of Pod default/held-0 is not removed: {DENIED}");
        assert_eq!(said, expected, "{code}");
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_said() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        let world = with_running_action("run 600s exit 0").await;
        pods(&world)
            .delete("held-0", &DeleteParams::default())
            .await
            .unwrap();
        until_no_pod(&world).await;
        let executor = Executor::start(&world, &[refuses("get", "pods", code)]);
        let said = said_in_time(&world, "held").await;
        let expected = format!(
            "what it has made is not seen: get of Pod default/held-0 failed: \
             the API server answered {code} {reason}: {DENIED}"
        );
        assert_eq!(said, expected);
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn labels_of_an_action_that_has_ended_are_said_in_an_event() {
    for code in CODES {
        let world = with_running_action("run 20s exit 0").await;
        let executor = Executor::start(&world, &[refuses("patch", "taskactions", code)]);
        until(&world, |it| ending(it).is_some()).await;
        let words = format!("the labels of TaskAction default/held are not written: {DENIED}");
        timeout(IN_TIME, is_told(&world, &words)).await.unwrap();
        executor.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_held_by_a_pod_which_is_being_deleted_is_said_with_its_finalizers() {
    let world = World::new(&[]).await;
    let mut taken: Pod = pod("held-0").scripted("exit 0").typed();
    taken.metadata.namespace = Some(world.place.namespace().to_owned());
    taken.metadata.finalizers = Some(vec!["example.test/keep".to_owned()]);
    let pods = pods(&world);
    pods.create(&PostParams::default(), &taken).await.unwrap();
    pods.delete("held-0", &DeleteParams::default())
        .await
        .unwrap();
    let executor = Executor::start(&world, &[]);
    world.apply(action("held", 0, "exit 0")).await;
    let said = said_in_time(&world, "held").await;
    let expected = "Pod default/held-0 has the name of its resource and is being deleted; \
                    its finalizers: example.test/keep";
    assert_eq!(said, expected);
    executor.stop().await;
}
