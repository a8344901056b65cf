//! What becomes of one try.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::Next;
use longshore_store::{
    RunState,
    TaskState::{Failed, Queued, Running, Success, UpForRetry},
};
use serde_json::json;

use super::world::{World, dag, failed, failure, never_started, request, running, succeeded, task};
use crate::scheduler::{Fact, LaunchChange, LaunchFact};

fn one_task(retries: u32) -> World {
    let mut task = task("a", &[]);
    task.retries = retries;
    World::with_run(dag(vec![task]))
}

/// A fact about the current launch as the pods controller reports it.
fn refused(world: &World) -> Fact {
    Fact::LaunchRefused {
        ti_id: world.row("a").id,
        launch: world.row("a").launch,
        message: "pods \"a\" is forbidden".to_owned(),
    }
}

fn build_failed(world: &World) -> Fact {
    Fact::LaunchBuildFailed {
        ti_id: world.row("a").id,
        launch: world.row("a").launch,
        message: "Invalid executor_config passed".to_owned(),
    }
}

#[test]
fn a_pod_is_seen_runs_and_succeeds() {
    let mut world = one_task(0);
    world.pod_round("a", LaunchChange::Exists);
    assert!(world.row("a").pod_uid.is_some());
    assert!(world.pod_round("a", LaunchChange::Exists).is_empty());
    let started_at: Timestamp = "2026-11-21T10:00:01Z".parse().unwrap();
    world.wait(2);
    world.pod_round(
        "a",
        LaunchChange::Running {
            started_at: Some(started_at),
        },
    );
    assert_eq!(world.state("a"), Some(Running));
    assert!(
        world
            .pod_round("a", LaunchChange::Running { started_at: None })
            .is_empty()
    );
    world.wait(3);
    world.pod_round(
        "a",
        LaunchChange::Succeeded {
            started_at: Some(started_at),
            ended_at: Some("2026-11-21T10:00:04Z".parse().unwrap()),
            was_stopped: false,
            result: Some(json!({"rows": 3})),
            note: None,
        },
    );
    let row = world.row("a");
    assert_eq!(
        (row.state, row.result.clone()),
        (Some(Success), Some(json!({"rows": 3})))
    );
    assert_eq!(row.start_date, Some(started_at));
    assert_eq!(row.end_date.unwrap().to_string(), "2026-11-21T10:00:04Z");
}

#[test]
fn why_a_result_was_not_taken_is_in_the_row() {
    let mut world = one_task(0);
    let why = Some("the result is not JSON".to_owned());
    world.pod_round(
        "a",
        LaunchChange::Succeeded {
            started_at: None,
            ended_at: None,
            was_stopped: false,
            result: None,
            note: why.clone(),
        },
    );
    let row = world.row("a");
    assert_eq!((row.state, row.result_note.clone()), (Some(Success), why));
}

/// No task begins before it was queued, or ends after its run.
#[test]
fn the_times_of_a_task_are_on_the_clock_of_its_run() {
    let at = |second: &str| -> Timestamp {
        let text = format!("2026-11-21T10:00:{second}Z");
        text.parse().unwrap()
    };
    for (queued, [started, seen], [ended, seen_ended], expected) in [
        // The node's second began before the task was queued.
        ("00.95", ["00", "01.02"], ["01", "01.10"], ["00.95", "01.1"]),
        // What is seen within the second of the node happened just now.
        ("00.20", ["01", "01.30"], ["05", "05.40"], ["01.3", "05.4"]),
        // It was seen late: the scheduler was away.
        ("00.20", ["01", "30.00"], ["05", "30.00"], ["01", "05"]),
        // The node's clock is ahead.
        ("00.20", ["59", "01.30"], ["59", "02.50"], ["01.3", "02.5"]),
    ] {
        let mut world = World::new();
        world.now = at(queued);
        let dag = Arc::new(dag(vec![task("a", &[])]));
        world.round(vec![request(&dag, "r")]);
        world.now = at(seen);
        let started_at = Some(at(started));
        world.pod_round("a", LaunchChange::Running { started_at });
        world.now = at(seen_ended);
        world.pod_round(
            "a",
            LaunchChange::Succeeded {
                started_at,
                ended_at: Some(at(ended)),
                was_stopped: false,
                result: None,
                note: None,
            },
        );
        let (row, run) = (world.row("a"), world.run());
        assert_eq!(
            [row.start_date, row.end_date],
            expected.map(|it| Some(at(it)))
        );
        assert!(row.start_date >= run.start_date && row.end_date <= run.end_date);
    }
}

#[test]
fn a_failed_try_is_archived_and_followed_by_one_with_a_new_id_after_the_wait() {
    let mut world = one_task(1);
    let first = world.row("a").clone();
    world.pod_round("a", running());
    world.wait(5);
    let changes = world.pod_round("a", failed());
    assert_eq!(changes.archived.len(), 1);
    let ended = &world.archived[0];
    assert_eq!((ended.id, ended.state), (first.id, Some(Failed)));
    assert_eq!((ended.try_number, ended.end_date), (1, Some(world.now)));
    assert_eq!(ended.pod_name, first.pod_name);
    let row = world.row("a");
    assert_eq!(
        (row.state, row.try_number, row.launch),
        (Some(UpForRetry), 1, 0)
    );
    assert_ne!(row.id, first.id);
    assert_eq!((row.pod_name.as_ref(), row.pod_uid.as_ref()), (None, None));
    assert_eq!(row.failure, Some(failure("Error")));
    assert_eq!(world.next, Next::After(Duration::from_secs(300)));

    world.wait(299);
    assert!(world.round(Vec::new()).is_empty());
    assert_eq!(world.next, Next::After(Duration::from_secs(1)));
    world.wait(1);
    world.round(Vec::new());
    let row = world.row("a");
    assert_eq!(
        (row.state, row.try_number, row.launch),
        (Some(Queued), 2, 1)
    );
    assert_eq!((row.start_date, row.end_date), (None, None));

    world.pod_round("a", failed());
    assert_eq!(
        (world.state("a"), world.run().state),
        (Some(Failed), RunState::Failed)
    );
    assert_eq!(world.archived.len(), 1);
}

#[test]
fn success_forgets_why_the_try_before_failed() {
    let mut world = one_task(1);
    world.pod_round("a", failed());
    world.wait(300);
    world.round(Vec::new());
    assert_eq!(world.row("a").failure, Some(failure("Error")));
    world.pod_round("a", succeeded());
    assert_eq!(world.row("a").failure, None);
}

#[test]
fn a_node_whose_clock_is_ahead_does_not_lengthen_the_wait() {
    let mut world = one_task(1);
    world.pod_round(
        "a",
        LaunchChange::Failed {
            started_at: None,
            ended_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            failure: failure("Error"),
            before_start: false,
        },
    );
    assert_eq!(world.next, Next::After(Duration::from_secs(300)));
    assert_eq!(world.archived[0].end_date, Some(world.now));
    world.wait(300);
    world.round(Vec::new());
    assert_eq!(world.row("a").try_number, 2);
}

#[test]
fn a_pod_that_died_before_its_process_ran_is_replaced_within_the_try() {
    for what in [never_started("ErrImagePull"), LaunchChange::Gone] {
        let mut world = one_task(0);
        let first = world.row("a").clone();
        world.pod_round("a", LaunchChange::Exists);
        world.pod_round("a", what.clone());
        let row = world.row("a");
        assert_eq!(
            (row.state, row.id, row.try_number),
            (Some(Queued), first.id, 1)
        );
        assert_eq!((row.launch, row.launch_failures), (2, 1));
        assert_ne!(row.pod_name, first.pod_name);
        assert_eq!(row.pod_uid, None);
        assert!(row.failure.is_some());
        // The second time it is a failure of the try.
        world.pod_round("a", what);
        assert_eq!(world.state("a"), Some(Failed));
    }
}

/// Its node starts it all the same before it is deleted.
#[test]
fn a_pod_that_is_stuck_has_not_failed_before_it_has_ended() {
    let mut world = one_task(0);
    let stuck = LaunchChange::Stuck {
        failure: failure("ErrImagePull"),
    };
    world.pod_round("a", stuck.clone());
    let row = world.row("a");
    assert_eq!(
        (row.state, row.launch, row.launch_failures),
        (Some(Queued), 1, 0)
    );
    let reason = |world: &World| world.row("a").failure.clone().unwrap().reason;
    assert_eq!(reason(&world).as_deref(), Some("ErrImagePull"));
    let mut late = world.clone();
    late.pod_round("a", running());
    late.pod_round("a", succeeded());
    assert_eq!(late.state("a"), Some(Success));
    assert_eq!(late.row("a").launch, 1);
    // A kubelet does not say why the pod that it ends was stuck.
    world.pod_round("a", never_started("ContainerStatusUnknown"));
    assert_eq!(world.row("a").launch, 2);
    assert_eq!(reason(&world).as_deref(), Some("ErrImagePull"));
}

/// The same try is never launched again where the last launch may have run.
#[test]
fn a_queued_pod_that_went_away_unseen_is_a_failure_of_the_try() {
    let mut world = one_task(1);
    world.pod_round("a", LaunchChange::Exists);
    world.pod_round("a", LaunchChange::Lost);
    assert_eq!(world.state("a"), Some(UpForRetry));
    let failure = world.row("a").failure.clone().unwrap();
    assert_eq!(failure.reason.as_deref(), Some("PodDeleted"));
    assert!(failure.message.ends_with("and its process may have run"));
}

#[test]
fn launch_failures_are_counted_by_try_and_bounded_as_configured() {
    let mut world = one_task(1);
    world.limits.pod_launch_failure_retries = Some(0);
    world.pod_round("a", LaunchChange::Gone);
    assert_eq!(world.state("a"), Some(UpForRetry));
    assert_eq!(world.row("a").launch_failures, 0);

    let mut world = one_task(0);
    world.limits.pod_launch_failure_retries = None;
    for n in 1..=50 {
        world.pod_round("a", LaunchChange::Gone);
        assert_eq!(
            (world.state("a"), world.row("a").launch_failures),
            (Some(Queued), n)
        );
    }
}

#[test]
fn excluded_reasons_are_failures_of_the_try_at_once() {
    let mut world = one_task(0);
    world.pod_round("a", never_started("Error"));
    assert_eq!(world.state("a"), Some(Failed));
}

#[test]
fn a_process_that_was_seen_running_has_run_whatever_its_node_says_later() {
    let mut world = one_task(1);
    world.pod_round("a", running());
    world.pod_round("a", never_started("NodeLost"));
    assert_eq!(
        (world.state("a"), world.archived.len()),
        (Some(UpForRetry), 1)
    );
}

#[test]
fn a_pod_that_vanishes_while_it_runs_has_failed() {
    let mut world = one_task(1);
    world.pod_round("a", running());
    world.pod_round("a", LaunchChange::Gone);
    assert_eq!(world.state("a"), Some(UpForRetry));
    let failure = world.row("a").failure.clone().unwrap();
    assert_eq!(failure.reason.as_deref(), Some("PodDeleted"));
    assert!(
        failure
            .message
            .ends_with("was deleted while its process ran"),
        "{failure:?}"
    );
}

#[test]
fn a_refused_launch_fails_the_try_and_one_that_cannot_be_built_the_task() {
    let mut world = one_task(1);
    let fact = refused(&world);
    world.round(vec![fact]);
    assert_eq!(world.state("a"), Some(UpForRetry));

    let mut world = one_task(1);
    let fact = build_failed(&world);
    world.round(vec![fact]);
    assert_eq!(world.state("a"), Some(Failed));
    assert_eq!(
        world.row("a").failure.as_ref().unwrap().message,
        "Invalid executor_config passed"
    );
}

#[test]
fn what_the_pods_controller_reports_does_not_touch_a_pod_that_runs() {
    let mut world = one_task(1);
    world.pod_round("a", running());
    let facts = vec![refused(&world), build_failed(&world)];
    assert!(world.round(facts).is_empty());
}

#[test]
fn facts_about_older_tries_launches_and_other_pods_change_nothing() {
    let mut world = one_task(2);
    world.pod_round("a", LaunchChange::Exists);
    let old_launch = world.row("a").clone();
    world.pod_round("a", LaunchChange::Gone);
    let old_try = world.row("a").clone();
    world.pod_round("a", LaunchChange::Exists);
    let other_pod = world.row("a").clone();

    let all = [
        LaunchChange::Exists,
        running(),
        succeeded(),
        failed(),
        LaunchChange::Gone,
    ];
    for what in all.clone() {
        assert!(
            world
                .round(vec![super::world::pod_of(&old_launch, what.clone())])
                .is_empty()
        );
        let Fact::Launched(fact) = super::world::pod_of(&other_pod, what) else {
            unreachable!()
        };
        let fact = LaunchFact {
            pod_uid: "another".to_owned(),
            ..fact
        };
        assert!(world.round(vec![Fact::Launched(fact)]).is_empty());
    }
    world.pod_round("a", failed());
    world.wait(300);
    world.round(Vec::new());
    for what in all {
        assert!(
            world
                .round(vec![super::world::pod_of(&old_try, what)])
                .is_empty()
        );
    }
    let reports = vec![
        Fact::LaunchRefused {
            ti_id: old_try.id,
            launch: 1,
            message: String::new(),
        },
        Fact::LaunchBuildFailed {
            ti_id: world.row("a").id,
            launch: 9,
            message: String::new(),
        },
    ];
    assert!(world.round(reports).is_empty());
}

#[test]
fn two_facts_of_one_round_about_one_try_count_once() {
    let mut world = one_task(5);
    let fact = world.pod("a", failed());
    world.round(vec![fact.clone(), fact]);
    assert_eq!(world.archived.len(), 1);
    let mut world = one_task(5);
    let fact = world.pod("a", LaunchChange::Gone);
    world.round(vec![fact.clone(), fact]);
    assert_eq!(world.row("a").launch, 2);
}

#[test]
fn a_retry_without_a_wait_is_queued_in_the_commit_that_ends_the_try() {
    let mut now = task("a", &[]);
    now.retries = 1;
    now.retry_delay = Duration::ZERO;
    let mut world = World::with_run(dag(vec![now]));
    let changes = world.pod_round("a", failed());
    assert_eq!(
        (changes.task_instances.len(), changes.archived.len()),
        (1, 1)
    );
    let row = world.row("a");
    assert_eq!(
        (row.state, row.try_number, row.launch),
        (Some(Queued), 2, 1)
    );
}
