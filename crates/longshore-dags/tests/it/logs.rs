//! Logs that cannot be read: asked for again, and given up after a while.

use std::{sync::atomic::Ordering, time::Duration};

use longshore_kit::lease::{Elector, LeaseName, Terms};
use longshore_store::RunState;
use longshore_test::faults::{FaultPlan, Faults};

use crate::world::{RUN_ID, World, left, seconds, undisturbed};

const ONE: &str = "
dag_id: one
tasks:
  a: {command: [x], env: {SCRIPT: run 5s}}
";

pub(crate) const ENDLESS: &str = "
dag_id: one
tasks:
  a: {command: [x], env: {SCRIPT: run 5000s}}
";

#[tokio::test(start_paused = true)]
async fn a_log_that_can_be_read_later_is_stored_whole() {
    let world = World::new(ONE).await;
    world.logs.are_unreadable.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    seconds(300).await;
    assert_eq!(world.rows(&run).await.0.state, RunState::Success);
    assert_eq!(left(&world, "pods").await, ["a:Succeeded"]);
    assert!(world.logs.stored().is_empty());
    world.logs.are_unreadable.store(false, Ordering::Relaxed);
    dags.released(&run).await;
    assert!(left(&world, "pods").await.is_empty());
    let logs: Vec<String> = world.logs.stored().into_values().collect();
    assert_eq!(logs, ["a line\n"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_is_given_up_and_says_so() {
    let world = World::new(ONE).await;
    world.logs.are_unreadable.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    dags.ended(&run).await.unwrap();
    let released = tokio::time::timeout(Duration::from_secs(700), dags.released(&run));
    released.await.unwrap();
    assert!(left(&world, "pods").await.is_empty());
    let logs: Vec<String> = world.logs.stored().into_values().collect();
    let [log] = logs.as_slice() else {
        panic!("one log: {logs:?}")
    };
    assert!(log.starts_with("longshore: the log of"), "{log}");
    assert!(
        log.contains("could not be read for 6") && log.contains("the node is gone"),
        "{log}"
    );
}

/// More tasks than rounds at the same time, and as many after them.
fn two_layers() -> String {
    let task = |name: &str, n: u32, before: String| {
        format!("  {name}{n}: {{command: [x], {before}env: {{SCRIPT: run 5s}}}}\n")
    };
    let first = (0..20).map(|n| task("a", n, String::new()));
    let second = (0..20).map(|n| task("b", n, format!("depends_on: [a{n}], ")));
    "dag_id: one\ntasks:\n".to_owned() + &first.chain(second).collect::<String>()
}

#[tokio::test(start_paused = true)]
async fn logs_of_which_nothing_comes_hold_no_other_pod() {
    let world = World::new(&two_layers()).await;
    world.logs.stall.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    let ended = tokio::time::timeout(Duration::from_secs(30), dags.ended(&run));
    let (ended, _) = ended.await.unwrap().unwrap().unwrap();
    assert_eq!(ended.state, RunState::Success);
    world.logs.stall.store(false, Ordering::Relaxed);
    dags.released(&run).await;
    assert_eq!(world.logs.stored().len(), 40);
    assert!(left(&world, "pods").await.is_empty());
}

/// More logs than the archive is asked to store at the same time.
#[tokio::test(start_paused = true)]
async fn an_archive_that_never_answers_holds_no_other_pod_and_gets_the_logs_later() {
    let world = World::new(&two_layers()).await;
    world.logs.archive_hangs.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    let ended = tokio::time::timeout(Duration::from_secs(30), dags.ended(&run));
    let (ended, _) = ended.await.unwrap().unwrap().unwrap();
    assert_eq!(ended.state, RunState::Success);
    assert_eq!(
        left(&world, "pods").await.len(),
        40,
        "none goes before its log is stored"
    );
    world.logs.archive_hangs.store(false, Ordering::Relaxed);
    let released = tokio::time::timeout(Duration::from_secs(90), dags.released(&run));
    released.await.unwrap();
    assert_eq!(world.logs.stored().len(), 40);
    assert!(left(&world, "pods").await.is_empty());
}

/// A stop does not wait for an archive, and what was not stored is stored after the next start.
#[tokio::test(start_paused = true)]
async fn a_scheduler_stops_while_its_archive_never_answers() {
    let world = World::new(ONE).await;
    world.logs.archive_hangs.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    dags.ended(&run).await.unwrap();
    seconds(5).await;
    assert!(dags.shutdown(Duration::from_secs(3)).await);
    assert_eq!(left(&world, "pods").await, ["a:Succeeded"]);
    world.logs.archive_hangs.store(false, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    dags.released(&run).await;
    assert_eq!(world.logs.stored().len(), 1);
    assert!(left(&world, "pods").await.is_empty());
}

/// A leader whose lease expires while it stores a log, and which goes on after that.
#[tokio::test(start_paused = true)]
async fn a_former_leader_stores_no_log_and_the_next_one_does() {
    let mut world = World::new(ONE).await;
    let elector = |world: &World, me: &str| {
        let lease = LeaseName {
            namespace: world.place.namespace().to_owned(),
            name: "longshore-dags".to_owned(),
        };
        let clock = world.clock.clone();
        Elector::new(
            world.place.client(),
            lease,
            me,
            Terms::lasting(Duration::from_secs(30)),
            clock,
        )
    };
    world.config.gate = elector(&world, "first").acquire(|_| {}).await.unwrap();
    world.logs.archive_pauses.store(true, Ordering::Relaxed);
    let faults = Faults::new(FaultPlan::none());
    let former = world.start(&faults.start()).await;
    let run = world.request(&former, RUN_ID).await;
    former.ended(&run).await.unwrap();
    seconds(20).await;
    assert!(world.config.gate.check().is_err());
    assert_eq!(faults.count("archive log"), 1);
    world.logs.archive_pauses.store(false, Ordering::Relaxed);
    seconds(20).await;
    assert!(world.logs.stored().is_empty());
    assert_eq!(left(&world, "pods").await, ["a:Succeeded"]);

    let mut next = elector(&world, "next");
    world.config.gate = next.acquire(|_| {}).await.unwrap();
    let dags = world.start(&undisturbed()).await;
    dags.released(&run).await;
    assert_eq!(world.logs.stored().len(), 1);
    assert!(left(&world, "pods").await.is_empty());
}

/// Stopping a pod does not wait for its log for long.
#[tokio::test(start_paused = true)]
async fn a_pod_is_stopped_although_its_log_cannot_be_read() {
    stopped_without_log(World::new(ENDLESS).await).await;
}

pub(crate) async fn stopped_without_log(world: World) {
    world.logs.are_unreadable.store(true, Ordering::Relaxed);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    seconds(20).await;
    dags.cancel(&run);
    let released = tokio::time::timeout(Duration::from_secs(90), dags.released(&run));
    seconds(1).await;
    released.await.unwrap();
    assert!(left(&world, "pods").await.is_empty());
    assert_eq!(world.logs.stored().len(), 1);
}
