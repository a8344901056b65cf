//! Schedules on the embedded cluster: a folder of DAG files, its DAGs, and the runs that time makes.

use std::{fs, time::Duration};

use jiff::Timestamp;
use longshore_dags::{Dags, KnownDag, RequestError, StateChange, scheduler::NewRun};
use longshore_kit::Clock;
use longshore_store::{Run, RunState, RunStore, RunType};
use tokio::sync::broadcast;

use crate::world::{World, dag, seconds, undisturbed};

/// A look at the folder is never further away than this.
const A_LOOK: u64 = 320;

/// The runs by id, with their states.
fn runs(world: &World) -> Vec<(String, RunState)> {
    let mut runs = world.store.runs();
    runs.sort_by(|a, b| a.key.cmp(&b.key));
    let of = |run: Run| (run.key.run_id, run.state);
    runs.into_iter().map(of).collect()
}

/// The ids of runs at these minutes of the first hour, all of them successful.
fn succeeded(minutes: &[u32]) -> Vec<(String, RunState)> {
    let id = |minute| format!("scheduled__2026-01-01T00:{minute:02}:00+00:00");
    minutes
        .iter()
        .map(|minute| (id(minute), RunState::Success))
        .collect()
}

fn write(world: &World, name: &str, text: &str) {
    let folder = world.folder.as_ref().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
}

fn remove(world: &World, name: &str) {
    let folder = world.folder.as_ref().unwrap();
    fs::remove_file(folder.path().join(name)).unwrap();
}

async fn known(dags: &Dags, is_it: impl Fn(&KnownDag) -> bool) -> KnownDag {
    let wait = async {
        loop {
            if let Some(known) = dags.dags().into_iter().find(&is_it) {
                return known;
            }
            seconds(1).await;
        }
    };
    let known = tokio::time::timeout(Duration::from_secs(2 * A_LOOK), wait).await;
    known.unwrap_or_else(|_| panic!("never came: {:#?}", dags.dags()))
}

const EVERY_TEN_MINUTES: &str = "
dag_id: ticks
schedule: '*/10 * * * *'
start_date: 2026-01-01
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
";

#[tokio::test(start_paused = true)]
async fn a_dag_in_the_folder_runs_at_its_times() {
    let world = World::following(EVERY_TEN_MINUTES).await;
    let dags = world.start(&undisturbed()).await;
    let mut changes: broadcast::Receiver<StateChange> = dags.changes();
    seconds(25 * 60).await;
    assert_eq!(runs(&world), succeeded(&[0, 10, 20]));
    assert_eq!(world.node.history().runs().len(), 3);
    let at = changes.recv().await.unwrap().at;
    assert!(at < world.clock.now());
    let known = dags.dag("ticks").unwrap();
    let next: Timestamp = "2026-01-01T00:30:00Z".parse().unwrap();
    assert_eq!(known.next_run.map(|next| next.run_after), Some(next));
    assert_eq!(known.file.as_deref(), Some("dag.yaml"));
    let key = longshore_store::RunKey {
        dag_id: "ticks".to_owned(),
        run_id: "scheduled__2026-01-01T00:10:00+00:00".to_owned(),
    };
    let (run, _) = world.store.run(&key).await.unwrap().unwrap();
    assert_eq!(run.run_type, RunType::Scheduled);
    assert_eq!(
        run.logical_date,
        Some("2026-01-01T00:10:00Z".parse().unwrap())
    );
    assert_eq!(run.queued_at, "2026-01-01T00:10:00Z".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_paused_dag_stands_still_and_goes_on_with_the_latest_interval() {
    let world = World::following(EVERY_TEN_MINUTES).await;
    let dags = world.start(&undisturbed()).await;
    seconds(5 * 60).await;
    dags.set_paused("ticks", true).await.unwrap();
    dags.set_paused("ticks", true).await.unwrap();
    assert_eq!(dags.dag("ticks").unwrap().next_run, None);
    assert!(dags.set_paused("unknown", true).await.is_err());
    // Also for the next process.
    drop(dags);
    let dags = world.start(&undisturbed()).await;
    seconds(40 * 60).await;
    assert!(dags.dag("ticks").unwrap().is_paused);
    assert_eq!(runs(&world), succeeded(&[0]));
    dags.set_paused("ticks", false).await.unwrap();
    seconds(10).await;
    assert_eq!(runs(&world), succeeded(&[0, 40]));
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_was_away_makes_up_for_it_as_the_file_says() {
    for (catchup, expected) in [(true, &[0, 10, 20, 30][..]), (false, &[0, 30])] {
        let world = World::following(&format!("{EVERY_TEN_MINUTES}catchup: {catchup}")).await;
        let dags = world.start(&undisturbed()).await;
        seconds(60).await;
        drop(dags);
        seconds(32 * 60).await;
        let _dags = world.start(&undisturbed()).await;
        seconds(60).await;
        assert_eq!(runs(&world), succeeded(expected), "catchup {catchup}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_changes_the_runs_to_come_and_no_other() {
    let slow = EVERY_TEN_MINUTES.replace("run 1s", "run 900s");
    let world = World::following(&slow).await;
    let dags = world.start(&undisturbed()).await;
    seconds(60).await;
    let further = "  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}\n";
    write(&world, "dag.yaml", &format!("{EVERY_TEN_MINUTES}{further}"));
    let has_b = |known: &KnownDag| known.dag.as_ref().is_some_and(|dag| dag.tasks.len() == 2);
    known(&dags, has_b).await;
    // The unfinished run is the old DAG's for the next process as well.
    drop(dags);
    let _dags = world.start(&undisturbed()).await;
    seconds(20 * 60).await;
    assert_eq!(runs(&world), succeeded(&[0, 10, 20]));
    let tries = world.node.history();
    let of = |run_id: &str| {
        let of_run = |run: &&longshore_test::scripted_node::PodRun| {
            run.annotations
                .get("run_id")
                .is_some_and(|id| id.contains(run_id))
        };
        tries.runs().iter().filter(of_run).count()
    };
    assert_eq!((of("T00:00"), of("T00:10"), of("T00:20")), (1, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_breaks_or_goes_away_holds_the_schedule_and_shows_why() {
    let world = World::following(EVERY_TEN_MINUTES).await;
    let dags = world.start(&undisturbed()).await;
    seconds(60).await;
    write(
        &world,
        "dag.yaml",
        "dag_id: ticks\ntasks: {a: {comand: [x]}}",
    );
    let broken = known(&dags, |known| known.error.is_some()).await;
    assert!(broken.error.unwrap().contains("command"));
    assert_eq!(broken.dag_id.as_deref(), Some("ticks"));
    assert!(broken.dag.is_some());
    seconds(600).await;
    assert_eq!(runs(&world), succeeded(&[0]));
    write(&world, "second.yaml", EVERY_TEN_MINUTES);
    remove(&world, "dag.yaml");
    known(&dags, |known| known.file.as_deref() == Some("second.yaml")).await;
    remove(&world, "second.yaml");
    let gone = known(&dags, |known| known.file.is_none()).await;
    assert_eq!((gone.error, gone.next_run), (None, None));
    // What was due before that has begun by then, and ends.
    seconds(60).await;
    let before = runs(&world);
    assert!(before.iter().all(|(_, state)| *state == RunState::Success));
    seconds(1800).await;
    assert_eq!(runs(&world), before);
}

/// Every interval, one after the other, although each run takes longer than an interval.
#[tokio::test(start_paused = true)]
async fn runs_wait_for_each_other_and_none_is_left_out() {
    let slow = EVERY_TEN_MINUTES.replace("run 1s", "run 900s");
    let world = World::following(&format!("{slow}catchup: true\nmax_active_runs: 1")).await;
    let _dags = world.start(&undisturbed()).await;
    seconds(50 * 60).await;
    let runs = runs(&world);
    let expected = succeeded(&[0, 10, 20]);
    assert_eq!(runs[..3], expected);
    assert_eq!(runs.len(), 4);
    assert_eq!(runs[3].1, RunState::Running);
    let history = world.node.history();
    assert!(
        history
            .overlapping(|run| run.annotations.get("dag_id").cloned())
            .is_empty()
    );
}

/// One with hundreds of intervals to make up for, one that is due now and then.
#[tokio::test(start_paused = true)]
async fn a_dag_that_catches_up_does_not_starve_another() {
    let catching_up = "
dag_id: busy
schedule: 1m
start_date: 2025-12-31
catchup: true
tasks:
  a: {command: [x], env: {SCRIPT: run 90s}}
";
    let world = World::following(EVERY_TEN_MINUTES).await;
    write(&world, "busy.yaml", catching_up);
    let _dags = world.start(&undisturbed()).await;
    seconds(11 * 60).await;
    let runs = runs(&world);
    let ticks: Vec<_> = runs
        .iter()
        .filter(|(id, _)| id.starts_with("scheduled__2026-01-01T00:"))
        .cloned()
        .collect();
    assert_eq!(ticks, succeeded(&[0, 10]));
    assert!(runs.len() > 100, "{}", runs.len());
}

#[tokio::test(start_paused = true)]
async fn no_two_runs_of_a_dag_are_about_the_same_instant() {
    let world = World::following(EVERY_TEN_MINUTES).await;
    let dags = world.start(&undisturbed()).await;
    let manual = |run_id: &str, logical_date: &str| NewRun {
        logical_date: Some(logical_date.parse().unwrap()),
        ..NewRun::manual(dag(EVERY_TEN_MINUTES), run_id.to_owned())
    };
    seconds(60).await;
    let again = dags
        .request_run(manual("again", "2026-01-01T00:00:00Z"))
        .await;
    assert!(matches!(again, Err(RequestError::Exists(_))), "{again:?}");
    dags.request_run(manual("early", "2026-01-01T00:10:00Z"))
        .await
        .unwrap();
    let (a, b) = tokio::join!(
        dags.request_run(manual("one", "2026-01-01T05:00:00Z")),
        dags.request_run(manual("other", "2026-01-01T05:00:00Z")),
    );
    assert!(
        a.is_ok() && matches!(b, Err(RequestError::Exists(_))),
        "{a:?} {b:?}"
    );
    seconds(20 * 60).await;
    let ids: Vec<String> = runs(&world).into_iter().map(|(id, _)| id).collect();
    let expected = [
        "early",
        "one",
        "scheduled__2026-01-01T00:00:00+00:00",
        "scheduled__2026-01-01T00:20:00+00:00",
    ];
    assert_eq!(ids, expected);
}
