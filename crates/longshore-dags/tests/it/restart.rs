//! What a scheduler owes to its own past and to its neighbours: restarts in another cluster, after losses, beside others.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use longshore_dags::{Dags, LeftRuns, StartError, scheduler::run_state::is_interrupted};
use longshore_store::{RunKey, RunState, TaskInstance, TaskState};
use longshore_test::faults::{Fault, FaultPlan, Faults, Point, WatchFault};

use serde_json::{Value, json};

use crate::world::{RUN_ID, World, left, seconds, undisturbed};

pub(crate) const SHARING: &str = "
dag_id: sharing
files: [a.csv]
workspace: true
tasks:
  a: {command: [x], env: {SCRIPT: run 20s}}
";

const LONG: Duration = Duration::from_secs(300);

/// Starts the run and lets it go on for some seconds.
async fn under_way(world: &World, time: u64) -> (Dags, RunKey) {
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    seconds(time).await;
    (dags, run)
}

/// How the run ended, and its only task.
async fn ended(dags: &Dags, run: &RunKey) -> (RunState, TaskInstance) {
    let ended = tokio::time::timeout(LONG, dags.ended(run)).await;
    let (run, mut tasks) = ended.unwrap().unwrap().unwrap();
    (run.state, tasks.remove(0))
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_leaves_the_objects_of_its_neighbour_alone() {
    beside_a_neighbour(World::new(SHARING).await).await;
}

pub(crate) async fn beside_a_neighbour(world: World) {
    let (dags, run) = under_way(&world, 5).await;
    let neighbour = world.beside();
    let neighbours = neighbour.start(&undisturbed()).await;
    seconds(5).await;
    assert_eq!(left(&world, "configmaps").await.len(), 1);
    assert_eq!(ended(&dags, &run).await.0, RunState::Success);
    drop(neighbours);
}

#[tokio::test(start_paused = true)]
async fn in_another_cluster_everything_is_made_again_and_no_try_is_consumed() {
    let world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    let world = world.elsewhere();
    let dags = world.start(&undisturbed()).await;
    seconds(5).await;
    assert_eq!(left(&world, "configmaps").await.len(), 1);
    assert_eq!(left(&world, "persistentvolumeclaims").await.len(), 1);
    let (state, task) = ended(&dags, &run).await;
    assert_eq!(
        (state, task.try_number, task.launch),
        (RunState::Success, 1, 2)
    );
}

/// As `longshore run --resume` starts it.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_resumed_goes_on_in_another_cluster_only_if_it_may() {
    let world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 10).await;
    assert!(!dags.has_moved());
    drop(dags);
    let before = world.rows(&run).await;
    let mut world = world.elsewhere();
    let left_runs = |anywhere| LeftRuns::Wait {
        but: Some(run.clone()),
        anywhere,
    };
    world.config.left_runs = left_runs(false);
    let refused = world.try_to_start(&undisturbed()).await.unwrap_err();
    let StartError::OtherCluster {
        run: refused,
        expected,
        found,
    } = refused
    else {
        panic!("another error: {refused:?}");
    };
    assert_eq!(refused, run);
    assert_ne!(expected, found);
    assert_eq!(world.rows(&run).await, before, "nothing is begun");
    world.config.left_runs = left_runs(true);
    let dags = world.start(&undisturbed()).await;
    assert!(dags.has_moved());
    assert_eq!(ended(&dags, &run).await.0, RunState::Success);
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_killed_in_another_cluster_knows_that_it_had_arrived() {
    let world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    let world = world.elsewhere();
    let faults = Faults::new(FaultPlan::at(
        Point::new("create pods", 1),
        Fault::KillAfter,
    ));
    let dags = world.start(&faults.start()).await;
    faults.killed().await;
    drop(dags);
    seconds(60).await;
    let dags = world.start(&undisturbed()).await;
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.launch), (RunState::Success, 2));
    assert_eq!(world.node.history().runs().len(), 1);
}

/// A row from before the arrival wants a pod that the record of the arrival makes unwanted.
#[tokio::test(start_paused = true)]
async fn no_pod_is_made_in_another_cluster_before_the_arrival_is_on_record() {
    let world = World::new(SHARING).await;
    let kill = FaultPlan::at(Point::new("create pods", 1), Fault::KillBefore);
    let killed = Faults::new(kill);
    let dags = world.start(&killed.start()).await;
    let run = world.request(&dags, RUN_ID).await;
    killed.killed().await;
    drop(dags);
    let world = world.elsewhere();
    let slow = FaultPlan::at(
        Point::new("commit", 1),
        Fault::Delay(Duration::from_secs(5)),
    );
    let dags = world.start(&Faults::new(slow).start()).await;
    assert_eq!(ended(&dags, &run).await.0, RunState::Success);
    assert_eq!(world.node.history().runs().len(), 1);
}

/// As `longshore run` starts it: for a run that its user names, or a new one.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_left_waiting_starts_nothing_until_it_is_resumed() {
    let mut world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    world.config.left_runs = LeftRuns::Wait {
        but: None,
        anywhere: false,
    };
    let dags = world.start(&undisturbed()).await;
    assert_eq!(dags.left_waiting(), std::slice::from_ref(&run));
    seconds(120).await;
    let (row, tasks) = world.rows(&run).await;
    assert!(is_interrupted(&row), "{row:?}");
    assert_eq!(tasks[0].state, Some(TaskState::Scheduled));
    assert_eq!(left(&world, "pods").await.len(), 0);
    drop(dags);
    let dags = world.start(&undisturbed()).await;
    assert!(dags.left_waiting().is_empty());
    dags.resume(&run);
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.try_number), (RunState::Success, 1));
}

#[tokio::test(start_paused = true)]
async fn the_run_that_is_named_goes_on_with_its_pod_while_others_wait() {
    let mut world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 5).await;
    let other = world.request(&dags, "other").await;
    seconds(5).await;
    drop(dags);
    world.config.left_runs = LeftRuns::Wait {
        but: Some(run.clone()),
        anywhere: false,
    };
    let dags = world.start(&undisturbed()).await;
    assert_eq!(dags.left_waiting(), std::slice::from_ref(&other));
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.launch), (RunState::Success, 1));
    assert!(is_interrupted(&world.rows(&other).await.0));
}

#[tokio::test(start_paused = true)]
async fn an_arrival_whose_record_was_not_answered_counts_once() {
    let world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    let world = world.elsewhere();
    let lost = FaultPlan::at(Point::new("commit", 1), Fault::LoseAnswer);
    let dags = world.start(&Faults::new(lost).start()).await;
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.launch), (RunState::Success, 2));
}

/// Its row is final and not on the board any more when the request is decided upon again.
#[tokio::test(start_paused = true)]
async fn a_run_that_ended_in_the_commit_that_made_it_does_not_stop_the_scheduler() {
    let world = World::new(SHARING).await;
    let lost = FaultPlan::at(Point::new("commit", 1), Fault::LoseAnswer);
    let dags = world.start(&Faults::new(lost).start()).await;
    let run = RunKey {
        dag_id: "sharing".to_owned(),
        run_id: RUN_ID.to_owned(),
    };
    let request = world.request(&dags, RUN_ID);
    let cancel = async { dags.cancel(&run) };
    tokio::join!(request, cancel);
    assert_eq!(ended(&dags, &run).await.0, RunState::Failed);
    let next = world.request(&dags, "next");
    let next = tokio::time::timeout(LONG, next).await.unwrap();
    assert_eq!(ended(&dags, &next).await.0, RunState::Success);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_before_its_run_was_interrupted_does_not_run_again() {
    for pause in [0, 20] {
        let world = World::new(SHARING).await;
        let late = FaultPlan {
            watches: vec![WatchFault::late(Duration::from_secs(5))],
            ..FaultPlan::none()
        };
        let dags = world.start(&Faults::new(late).start()).await;
        let run = world.request(&dags, RUN_ID).await;
        while !world
            .node
            .history()
            .runs()
            .iter()
            .any(|it| it.ended_at.is_some())
        {
            seconds(1).await;
        }
        dags.interrupt(&run).await;
        seconds(pause).await;
        dags.resume(&run);
        let (state, task) = ended(&dags, &run).await;
        assert_eq!((state, task.try_number), (RunState::Success, 1));
        assert_eq!(world.node.history().runs().len(), 1, "paused for {pause} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_run_stays_so_through_a_kill_until_it_is_resumed() {
    let world = World::new(SHARING).await;
    let (dags, run) = under_way(&world, 5).await;
    dags.interrupt(&run).await;
    drop(dags);
    seconds(60).await;
    let dags = world.start(&undisturbed()).await;
    seconds(60).await;
    assert_eq!(world.rows(&run).await.0.state, RunState::Queued);
    assert!(left(&world, "pods").await.is_empty(), "its pod was stopped");
    dags.resume(&run);
    let (state, task) = ended(&dags, &run).await;
    assert_eq!(
        (state, task.try_number, task.launch),
        (RunState::Success, 1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_whose_record_was_not_answered_counts_once() {
    for n in 3..8 {
        let world = World::new(&SHARING.replace("run 20s", "run 1s exit 1")).await;
        let lost = FaultPlan::at(Point::new("commit", n), Fault::LoseAnswer);
        let dags = world.start(&Faults::new(lost).start()).await;
        let run = world.request(&dags, RUN_ID).await;
        assert_eq!(ended(&dags, &run).await.0, RunState::Failed);
        assert_eq!(dags.retry(&run).await.unwrap(), ["a".to_owned()].into());
        let (state, task) = ended(&dags, &run).await;
        assert_eq!(
            (state, task.try_number),
            (RunState::Failed, 2),
            "commit {n}"
        );
    }
}

const UNKNOWN_FIELDS: &str = "
dag_id: unknown
tasks:
  a:
    command: [x]
    executor_config:
      pod_override:
        metadata: {xMeta: {a: [1, 2.5]}}
        spec:
          xFuture: {deep: [{er: true}], n: 12345678901234567890}
          containers:
            - {name: base, xContainer: {y: null, z: ''}, resources: {xRes: 1}}
          volumes:
            - {name: v, xVolume: {driver: new}}
";

/// What our types do not know reaches the API server as it was written.
#[tokio::test(start_paused = true)]
async fn unknown_fields_of_a_pod_override_reach_the_api_server_unchanged() {
    let world = World::new(UNKNOWN_FIELDS).await;
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    assert_eq!(ended(&dags, &run).await.0, RunState::Success);
    let creates = world.admission.creates("pods");
    let [pod] = creates.as_slice() else {
        panic!("one pod: {creates:?}")
    };
    let spec = &pod["spec"];
    assert_eq!(pod["metadata"]["xMeta"], json!({"a": [1, 2.5]}));
    assert_eq!(
        spec["xFuture"],
        json!({"deep": [{"er": true}], "n": 12_345_678_901_234_567_890_u64})
    );
    let container = &spec["containers"][0];
    assert_eq!(container["xContainer"], json!({"y": null, "z": ""}));
    assert_eq!(container["resources"], json!({"xRes": 1}));
    let volumes = spec["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({"name": "v", "xVolume": {"driver": "new"}})));
}

/// Deletes a pod of the run as soon as it has ended, while no scheduler runs.
async fn sweep(world: &World) {
    let pods: Api<Pod> = Api::namespaced(world.place.client(), world.place.namespace());
    loop {
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            if matches!(phase, Some("Succeeded" | "Failed")) {
                let now = DeleteParams::default().grace_period(0);
                pods.delete(&pod.name_any(), &now).await.unwrap();
                return;
            }
        }
        seconds(1).await;
    }
}

/// The end of a pod that ended and went away while the scheduler was down is in the events since the stored position.
#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_and_was_deleted_while_nobody_looked_counts_with_its_real_end() {
    for watches in [
        vec![],
        vec![WatchFault::CutAfter(1)],
        vec![WatchFault::NoBookmarks],
        vec![WatchFault::CutAfter(1), WatchFault::NoBookmarks],
        vec![WatchFault::late(Duration::from_secs(2))],
    ] {
        swept_while_down(World::new(SHARING).await, watches).await;
    }
}

pub(crate) async fn swept_while_down(world: World, watches: Vec<WatchFault>) {
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    sweep(&world).await;
    let plan = FaultPlan {
        watches,
        ..FaultPlan::none()
    };
    let dags = world.start(&Faults::new(plan.clone()).start()).await;
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.try_number), (RunState::Success, 1), "{plan:?}");
    assert_eq!(world.node.history().runs().len(), 1, "{plan:?}");
}

/// Where the events are forgotten, the pod is gone: its end is not known, and the try has failed.
#[tokio::test(start_paused = true)]
async fn a_pod_that_went_away_in_forgotten_events_has_failed() {
    swept_and_forgotten(World::new(SHARING).await).await;
}

pub(crate) async fn swept_and_forgotten(world: World) {
    let (dags, run) = under_way(&world, 10).await;
    drop(dags);
    sweep(&world).await;
    let expired = WatchFault::ExpireOnConnect {
        resource: "pods".to_owned(),
        n: 1,
    };
    let plan = FaultPlan {
        watches: vec![expired],
        ..FaultPlan::none()
    };
    let dags = world.start(&Faults::new(plan).start()).await;
    let (state, task) = ended(&dags, &run).await;
    assert_eq!(state, RunState::Failed);
    assert_eq!(task.failure.unwrap().reason.as_deref(), Some("PodDeleted"));
}

const REFUSED_AT_FIRST: &str = "
dag_id: late
tasks:
  a: {command: [x], env: {SCRIPT: waiting ErrImagePull}}
";

/// Writes the status of the only pod, as its node.
async fn report(world: &World, phase: &str, state: Value) {
    let pods: Api<Pod> = Api::namespaced(world.place.client(), world.place.namespace());
    let name = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    let status = json!({"status": {
        "phase": phase, "containerStatuses": [{
            "name": "base", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }],
    }});
    let params = PatchParams::default();
    pods.patch_status(&name, &params, &Patch::Merge(status))
        .await
        .unwrap();
}

/// A node that did not get an image tries again, also while the scheduler is down with the deletion of the pod before it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_starts_after_it_was_refused_is_not_launched_again() {
    let world = World::new(REFUSED_AT_FIRST).await;
    let plan = FaultPlan::at(Point::new("delete pods", 1), Fault::KillBefore);
    let faults = Faults::new(plan);
    let dags = world.start(&faults.start()).await;
    let run = world.request(&dags, RUN_ID).await;
    faults.killed().await;
    drop(dags);
    let at = "2026-01-01T00:00:00Z";
    report(
        &world,
        "Running",
        json!({"waiting": null, "running": {"startedAt": at}}),
    )
    .await;
    let dags = world.start(&undisturbed()).await;
    seconds(60).await;
    let end = json!({"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at});
    report(
        &world,
        "Succeeded",
        json!({"running": null, "terminated": end}),
    )
    .await;
    let (state, task) = ended(&dags, &run).await;
    assert_eq!((state, task.launch), (RunState::Success, 1));
    assert_eq!(world.admission.creates("pods").len(), 1);
}
