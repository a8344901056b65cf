//! Tasks that run one at a time under one cache key, and a cache that does not answer all that it is asked: none of them
//! waits for ever, and no two run at once while the catalog is well.

use std::{ops::RangeInclusive, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use longshore_test::{Faults, scripted_node::PodRun};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{
    cache::Call,
    laws::serialized,
    troubled_store::Trouble,
    world::{World, action, apply, ending},
};

/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(600);

const COMPLETED: &str = "Completed: TaskAction completed successfully";

/// Does `work` while an executor runs; then the executor is killed.
async fn with_executor<T>(world: &World, faults: &Faults, work: impl Future<Output = T>) -> T {
    let process = faults.start();
    tokio::select! {
        () = world.run(&process) => panic!("the executor has ended"),
        done = timeout(PATIENCE, work) => done.unwrap(),
    }
}

/// The action of this name, once it has ended.
async fn ended(world: &World, name: &str) -> Value {
    loop {
        let actions = world.actions().await;
        let mut of_name = actions.iter().filter(|it| it["metadata"]["name"] == name);
        if let Some(action) = of_name.find(|it| ending(it).is_some()) {
            return action.clone();
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn runs_of(world: &World, name: &str) -> Vec<PodRun> {
    let history = world.node.history();
    let runs = history.runs().iter();
    runs.filter(|run| run.pod.contains(name)).cloned().collect()
}

/// The notes of the Events of this reason.
async fn notes(world: &World, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(world.place.client(), world.place.namespace());
    let list = events.list(&ListParams::default()).await.unwrap();
    let of_reason = list
        .items
        .into_iter()
        .filter(|it| it.reason.as_deref() == Some(reason));
    of_reason.filter_map(|it| it.note).collect()
}

/// Why the outputs of an earlier run cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    Garbage,
    Because(Trouble),
}

async fn spoil(world: &World, why: Unreadable) {
    let urls = world.cache.urls();
    assert_eq!(urls.len(), 1);
    match why {
        Unreadable::Garbage => {
            let garbage = vec![255; 9].into();
            world.cache.storage.write(&urls[0], garbage).await.unwrap();
        }
        Unreadable::Because(trouble) => {
            let path = urls[0].trim_start_matches("file:///");
            world.cache.store.trouble(path, trouble);
        }
    }
}

/// A second action of the key of a first one, whose outputs cannot be read: how many seconds it takes to its pod, and what
/// its status and its Event say.
async fn second_of_two(kind: &str, why: Unreadable) -> (f64, String) {
    let world = World::new(&[]).await;
    let (first, second) = (format!("{kind}-first"), format!("{kind}-second"));
    world.apply(action(&first, 0, "run 2s exit 0")).await;
    let work = async {
        ended(&world, &first).await;
        spoil(&world, why).await;
        let begun_at = world.clock.now();
        world.apply(action(&second, 0, "run 2s exit 0")).await;
        let action = ended(&world, &second).await;
        sleep(Duration::from_secs(1)).await;
        (begun_at, action)
    };
    let (begun_at, action) = with_executor(&world, &Faults::none(), work).await;
    assert_eq!(ending(&action).unwrap(), COMPLETED, "{kind} {why:?}");
    assert_eq!(runs_of(&world, &first).len(), 1, "{kind} {why:?}");
    let runs = runs_of(&world, &second);
    assert_eq!(runs.len(), 1, "{kind} {why:?}");
    assert_eq!(world.cache.owners(), [""; 0], "{kind} {why:?}");
    let took = runs[0].started_at.duration_since(begun_at);
    let history = action["status"]["phaseHistory"].to_string();
    let notes = notes(&world, "RunsWithoutCache").await;
    assert_eq!(notes.len(), 1, "{kind} {why:?}: {notes:?}");
    (took.as_secs_f64(), format!("{history}\n{}", notes[0]))
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_cached_outputs_cannot_be_read_runs_once_in_time_and_says_why() {
    let at_once = 0.0..3.0;
    let after_a_look = 20.0..30.0;
    let after_a_reservation = 30.0..45.0;
    let after_two_looks = 50.0..75.0;
    for (why, words, alone, otherwise) in [
        (
            Unreadable::Because(Trouble::Missing),
            "is not there any more",
            &at_once,
            &at_once,
        ),
        (Unreadable::Garbage, "holds no outputs", &at_once, &at_once),
        (
            Unreadable::Because(Trouble::Refuses),
            "403 AccessDenied",
            &at_once,
            &at_once,
        ),
        (
            Unreadable::Because(Trouble::Fails),
            "500 InternalError",
            &after_a_reservation,
            &at_once,
        ),
        (
            Unreadable::Because(Trouble::Hangs),
            "file:// did not answer within 25 s",
            &after_two_looks,
            &after_a_look,
        ),
    ] {
        for (kind, expected) in [("serial", alone), ("cached", otherwise)] {
            let (took, said) = second_of_two(kind, why).await;
            assert!(expected.contains(&took), "{kind} {why:?}: {took} s\n{said}");
            assert!(said.contains(words), "{kind} {why:?}: {said}");
            let has_waited = said.contains("waiting for the cache");
            let waits = kind == "serial" && *expected != at_once;
            assert_eq!(has_waited, waits, "{kind} {why:?}: {said}");
        }
    }
}

/// Two actions of one key: the first one runs for two minutes, the second one comes while it runs, and takes its outputs.
/// The catalog loses the questions that `is_lost` says. The executor is killed `restarted_after` the beginning, and
/// started again.
async fn two_of_a_key(
    name: &str,
    is_lost: impl FnMut(&Call) -> bool + Send + 'static,
    restarted_after: Option<Duration>,
) {
    let world = World::new(&[]).await;
    world.cache.lose(is_lost);
    let script = "run 120s exit 0";
    world.apply(action("serial-a", 0, script)).await;
    let place = world.place.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        apply(&place, action("serial-b", 0, script)).await;
    });
    let faults = Faults::none();
    if let Some(time) = restarted_after {
        with_executor(&world, &faults, sleep(time)).await;
    }
    let ends = async {
        let first = ended(&world, "serial-a").await;
        [first, ended(&world, "serial-b").await]
    };
    let ends = with_executor(&world, &faults, ends).await;
    let ends = ends.map(|action| ending(&action).unwrap());
    assert_eq!(ends, [COMPLETED; 2], "{name}");
    let beside = world.node.history().overlapping(serialized);
    assert_eq!(beside, [""; 0], "{name}");
    assert_eq!(world.cache.owners(), [""; 0], "{name}");
}

/// Loses these of the questions that `is_of` says, counted from 1.
fn these(
    lost: RangeInclusive<u32>,
    is_of: impl Fn(&Call) -> bool + Send + 'static,
) -> impl FnMut(&Call) -> bool + Send + 'static {
    let mut n = 0;
    move |call| {
        n += u32::from(is_of(call));
        is_of(call) && lost.contains(&n)
    }
}

fn reserves(name: &'static str) -> impl Fn(&Call) -> bool + Copy + Send + 'static {
    move |call| call.what == "reserve cache" && call.owner.ends_with(name)
}

#[tokio::test(start_paused = true)]
async fn a_lost_heartbeat_costs_no_reservation() {
    for n in 1..=8 {
        let name = format!("heartbeat {n}");
        two_of_a_key(&name, these(n..=n, reserves("serial-a")), None).await;
    }
    two_of_a_key("two in a row", these(4..=5, reserves("serial-a")), None).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_look_up_lets_no_two_run_at_once() {
    for n in 1..=8 {
        let name = format!("look-up {n}");
        two_of_a_key(&name, these(n..=n, |call| call.what == "get cache"), None).await;
        let name = format!("request {n} for the reservation");
        two_of_a_key(&name, these(n..=n, reserves("serial-b")), None).await;
    }
}

/// Loses requests of the second action while one of these times goes on, in seconds.
fn while_down(times: &'static [(i64, i64)]) -> impl FnMut(&Call) -> bool + Send + 'static {
    let is_of = reserves("serial-b");
    move |call| {
        let at = |second| SignedDuration::from_secs(second);
        let is_down = |(from, to): &(i64, i64)| (at(*from)..at(*to)).contains(&call.at);
        is_of(call) && times.iter().any(is_down)
    }
}

#[tokio::test(start_paused = true)]
async fn a_catalog_is_down_for_long_only_by_failures_in_a_row() {
    two_of_a_key("two short times", while_down(&[(5, 25), (50, 70)]), None).await;
    // The failures before a restart are not those of the process that goes on.
    let restarted_after = Some(Duration::from_secs(30));
    two_of_a_key("a restart", while_down(&[(5, 45)]), restarted_after).await;
}
