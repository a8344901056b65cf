//! What workers say about their try.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use longshore_core::Next;
use longshore_store::{
    AirflowTask, Changes, Deferral, Heartbeat, Heartbeats, Looks, Reschedule, RunState,
    TaskInstance,
    TaskState::{
        self, AwaitingInput, Deferred, Failed, Queued, Running, Scheduled, Success,
        UpForReschedule, UpForRetry,
    },
    Trigger, WorkerProcess,
};
use serde_json::json;
use uuid::Uuid;

use super::world::{World, dag, failed, never_started, running, stopped, succeeded, task};
use crate::{
    model::Task,
    scheduler::{
        Fact, LaunchChange, TryEnd, WorkerAnswer, WorkerFact, WorkerReport,
        decide::{decide_and_answer, limit},
        worker::RequestId,
    },
};

const VERSION: Uuid = Uuid::from_u128(3);

/// A run of `a`, which is queued and has a worker, and of `x`, which keeps the run from its end.
fn queued(change: impl FnOnce(&mut Task)) -> World {
    let mut first = task("a", &[]);
    change(&mut first);
    let mut world = World::with_run(dag(vec![first, task("x", &[])]));
    world.put("a", |row| {
        row.airflow = Some(Box::new(AirflowTask::new(VERSION)));
    });
    world
}

fn process(pid: i64) -> WorkerProcess {
    WorkerProcess {
        hostname: "pod".to_owned(),
        unixname: "airflow".to_owned(),
        pid,
    }
}

fn started(world: &World, pid: i64) -> WorkerReport {
    WorkerReport::Started {
        process: process(pid),
        started_at: world.now,
    }
}

/// The same, and the worker of `a` has begun.
fn began(change: impl FnOnce(&mut Task)) -> World {
    let mut world = queued(change);
    let report = started(&world, 7);
    says(&mut world, report);
    assert_eq!(world.state("a"), Some(Running));
    world.wait(1);
    world
}

/// The worker of this try says something. [`World::round`] checks that it changes nothing when it is said again.
fn try_says(
    world: &mut World,
    ti_id: Uuid,
    report: WorkerReport,
) -> (Option<WorkerAnswer>, Changes) {
    let fact = Fact::Worker(WorkerFact {
        ti_id,
        request: RequestId(9),
        report: Arc::new(report),
    });
    let decision = decide_and_answer(&world.observe(vec![fact.clone()]));
    let [(RequestId(9), answer)] = &decision.answers[..] else {
        panic!("{:?}", decision.answers);
    };
    (answer.clone(), world.round(vec![fact]))
}

/// The worker of the current try of `a` says something.
fn says(world: &mut World, report: WorkerReport) -> (WorkerAnswer, Changes) {
    let id = world.row("a").id;
    let (answer, changes) = try_says(world, id, report);
    (answer.unwrap(), changes)
}

fn of_airflow(row: &TaskInstance) -> &AirflowTask {
    row.airflow.as_deref().unwrap()
}

#[test]
fn a_worker_begins_once_and_its_process_may_say_so_again() {
    let mut world = queued(|_| {});
    world.put("a", |row| {
        let task = row.airflow.as_deref_mut().unwrap();
        task.retry_delay = Some(SignedDuration::from_secs(7));
        task.retry_reason = Some("rate limit".to_owned());
    });
    // That its pod runs says nothing of the task.
    world.pod_round("a", running());
    assert_eq!(world.state("a"), Some(Queued));
    world.wait(5);
    let report = started(&world, 7);
    let (answer, _) = says(&mut world, report.clone());
    let WorkerAnswer::Started(first) = answer else {
        panic!("{answer:?}");
    };
    let row = world.row("a").clone();
    assert_eq!(
        (row.state, row.start_date),
        (Some(Running), Some(world.now))
    );
    let expected = AirflowTask {
        process: Some(process(7)),
        ..AirflowTask::new(VERSION)
    };
    assert_eq!(of_airflow(&row), &expected);
    assert_eq!(first.run.key, row.key.run);
    let not_counted = |row: &TaskInstance| TaskInstance {
        version: 0,
        ..row.clone()
    };
    assert_eq!(not_counted(&first.task_instance), not_counted(&row));

    world.wait(5);
    let (again, changes) = says(&mut world, report);
    let WorkerAnswer::Started(again) = again else {
        panic!("{again:?}");
    };
    assert!(changes.is_empty());
    assert_eq!(again.task_instance.start_date, row.start_date);
    let other = started(&world, 8);
    let (refused, changes) = says(&mut world, other);
    assert_eq!(refused, WorkerAnswer::Refused(Some(Running)));
    assert!(changes.is_empty());
}

#[test]
pub(super) fn each_end_that_a_worker_reports_is_that_of_its_try() {
    for (end, has_failure) in [
        (TryEnd::Success, false),
        (TryEnd::Failed, true),
        (TryEnd::Skipped, false),
        (TryEnd::Removed, false),
        (TryEnd::UpstreamFailed, false),
    ] {
        // A worker that asks for no retry gets none.
        let mut world = began(|task| task.retries = 1);
        let id = world.row("a").id;
        let ended_at = world.now;
        world.wait(3);
        let report = WorkerReport::Ended { end, ended_at };
        let (answer, _) = says(&mut world, report.clone());
        assert_eq!(answer, WorkerAnswer::Changed, "{end:?}");
        let row = world.row("a").clone();
        assert_eq!((row.state, row.id), (Some(TaskState::from(end)), id));
        assert_eq!(row.end_date, Some(ended_at));
        assert_eq!(row.failure.is_some(), has_failure, "{end:?}");
        assert_eq!(says(&mut world, report).0, WorkerAnswer::Already);
        let other = WorkerReport::Reschedule {
            ended_at,
            next_at: ended_at,
        };
        let refused = WorkerAnswer::Refused(row.state);
        assert_eq!(says(&mut world, other).0, refused, "{end:?}");
        // Its pod ends well in each case.
        assert!(world.pod_round("a", succeeded()).is_empty(), "{end:?}");
    }
}

#[test]
fn the_end_of_the_last_task_ends_the_run_and_its_worker_is_not_known_any_more() {
    let mut world = began(|_| {});
    world.pod_round("x", succeeded());
    let report = WorkerReport::Ended {
        end: TryEnd::Success,
        ended_at: world.now,
    };
    let id = world.row("a").id;
    let (answer, _) = try_says(&mut world, id, report.clone());
    assert_eq!(answer, Some(WorkerAnswer::Changed));
    assert_eq!(world.run().state, RunState::Success);
    assert_eq!(try_says(&mut world, id, report).0, None);
}

#[test]
pub(super) fn a_worker_that_asks_for_a_retry_gets_the_next_try() {
    let mut world = began(|task| task.retries = 1);
    let first = world.row("a").id;
    let retry = WorkerReport::Retry {
        ended_at: world.now,
        delay: Some(SignedDuration::from_secs(7)),
        reason: Some("rate limit".to_owned()),
    };
    let (answer, changes) = says(&mut world, retry.clone());
    assert_eq!(answer, WorkerAnswer::Changed);
    let ended = &changes.archived[0].task_instance;
    assert_eq!((ended.id, ended.state), (first, Some(Failed)));
    assert_eq!(of_airflow(ended).process, Some(process(7)));
    let next = world.row("a").clone();
    assert_eq!(next.state, Some(UpForRetry));
    assert_ne!(next.id, first);
    let expected = AirflowTask {
        retry_delay: Some(SignedDuration::from_secs(7)),
        retry_reason: Some("rate limit".to_owned()),
        ..AirflowTask::new(VERSION)
    };
    assert_eq!(of_airflow(&next), &expected);
    // A repeated request must not touch the new try.
    let (answer, changes) = try_says(&mut world, first, retry.clone());
    assert_eq!((answer, changes.is_empty()), (None, true));
    // The task itself would wait for 300 s.
    assert_eq!(world.next, Next::After(Duration::from_secs(7)));
    world.wait(7);
    world.round(Vec::new());
    assert_eq!(world.state("a"), Some(Queued));
    let report = started(&world, 8);
    says(&mut world, report);
    assert_eq!(of_airflow(world.row("a")).retry_delay, None);
    // No try is left: what was asked for is not given.
    assert_eq!(says(&mut world, retry).0, WorkerAnswer::Changed);
    assert_eq!(world.state("a"), Some(Failed));
}

#[test]
pub(super) fn a_sensor_that_gives_up_its_worker_looks_again() {
    let mut world = began(|_| {});
    let before = world.row("a").clone();
    let first_at = world.now;
    for number in 1..=2 {
        let (ended_at, now) = (world.now, world.now);
        let next_at = now + SignedDuration::from_secs(60);
        let report = WorkerReport::Reschedule { ended_at, next_at };
        let (answer, changes) = says(&mut world, report.clone());
        assert_eq!(answer, WorkerAnswer::Changed);
        let stored = Reschedule {
            task_instance_id: before.id,
            number,
            start_date: now,
            end_date: ended_at,
            reschedule_date: next_at,
        };
        assert_eq!(changes.reschedules, [stored]);
        let expected = AirflowTask {
            looks: Some(Looks {
                n: number,
                first_at,
                next_at,
            }),
            ..AirflowTask::new(VERSION)
        };
        let row = world.row("a");
        assert_eq!(of_airflow(row), &expected);
        assert_eq!((row.state, row.id), (Some(UpForReschedule), before.id));
        assert_eq!(says(&mut world, report).0, WorkerAnswer::Already);
        // The pod of this look ends well; that is no success, also once the next one is on its way.
        let ended = world.pod("a", succeeded());
        assert!(world.round(vec![ended.clone()]).is_empty());
        world.wait(60);
        world.round(vec![ended]);
        let row = world.row("a");
        assert_eq!(
            (row.state, row.try_number),
            (Some(Queued), before.try_number)
        );
        assert_eq!(row.launch, before.launch + number);
        let report = started(&world, 7 + i64::from(number));
        says(&mut world, report);
        world.wait(1);
    }
}

#[test]
pub(super) fn a_try_waits_for_a_trigger_or_a_human() {
    let trigger = Trigger {
        classpath: "airflow.triggers.DateTimeTrigger".to_owned(),
        kwargs: json!({"moment": 1}),
        queue: None,
    };
    for (trigger, state) in [(Some(trigger), Deferred), (None, AwaitingInput)] {
        let mut world = began(|_| {});
        let report = WorkerReport::Suspended {
            trigger: trigger.clone(),
            timeout: Some(SignedDuration::from_secs(90)),
            next_method: "execute_complete".to_owned(),
            next_kwargs: json!({"n": 1}),
        };
        let (answer, changes) = says(&mut world, report.clone());
        assert_eq!(answer, WorkerAnswer::Changed);
        let row = world.row("a").clone();
        let stored = Deferral {
            task_instance_id: row.id,
            trigger,
            next_kwargs: json!({"n": 1}),
        };
        assert_eq!(changes.deferrals, [stored]);
        let expected = AirflowTask {
            next_method: Some("execute_complete".to_owned()),
            timeout_at: Some(world.now + SignedDuration::from_secs(90)),
            ..AirflowTask::new(VERSION)
        };
        assert_eq!((row.state, of_airflow(&row)), (Some(state), &expected));
        assert_eq!(says(&mut world, report).0, WorkerAnswer::Already);
    }
}

#[test]
fn a_try_that_goes_on_began_before_it_gave_up_its_worker() {
    let mut world = queued(|_| {});
    let began_at: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
    world.put("a", |row| {
        row.start_date = Some(began_at);
        row.airflow.as_deref_mut().unwrap().next_method = Some("execute_complete".to_owned());
    });
    let report = started(&world, 7);
    let (answer, _) = says(&mut world, report);
    let WorkerAnswer::Started(known) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(known.task_instance.start_date, Some(began_at));
    let method = of_airflow(&known.task_instance).next_method.as_deref();
    assert_eq!(method, Some("execute_complete"));
    let ended_at = world.now;
    let end = TryEnd::Success;
    says(&mut world, WorkerReport::Ended { end, ended_at });
    assert_eq!(of_airflow(world.row("a")).next_method, None);
}

/// What a pod ends with is not what its task ended with.
#[test]
fn a_pod_that_ends_before_its_worker_has_reported_fails_the_try() {
    let failed_try = |state| (state, 2, "WorkerEnded");
    for (is_running, what, (state, n_tries, reason)) in [
        (true, succeeded(), failed_try(UpForRetry)),
        (false, succeeded(), failed_try(UpForRetry)),
        (true, stopped(), failed_try(UpForRetry)),
        (true, failed(), (UpForRetry, 2, "Error")),
        (true, LaunchChange::Lost, (UpForRetry, 2, "PodDeleted")),
        // Its worker had not begun: the same try gets another pod.
        (
            false,
            never_started("ErrImagePull"),
            (Queued, 1, "ErrImagePull"),
        ),
        (false, LaunchChange::Gone, (Queued, 1, "PodDeleted")),
        (false, LaunchChange::Lost, (Queued, 1, "PodDeleted")),
    ] {
        let change = |task: &mut Task| task.retries = 1;
        let mut world = if is_running {
            began(change)
        } else {
            queued(change)
        };
        let launch = world.row("a").launch;
        world.pod_round("a", what.clone());
        let row = world.row("a");
        assert_eq!(row.state, Some(state), "{is_running} {what:?}");
        let found = row.failure.as_ref().and_then(|why| why.reason.as_deref());
        assert_eq!(found, Some(reason), "{is_running} {what:?}");
        if state == Queued {
            assert_eq!(
                (row.launch, row.launch_failures),
                (launch + 1, 1),
                "{what:?}"
            );
        }
        assert_eq!(world.archived.len(), n_tries - 1, "{is_running} {what:?}");
    }
}

#[test]
fn a_worker_stops_its_task_itself_when_its_time_is_over() {
    let mut world = began(|task| task.execution_timeout = Some(Duration::from_secs(5)));
    let spec = &world.dags[&super::world::key("r")].tasks["a"];
    assert_eq!(limit(spec, world.row("a")), None);
    let container = TaskInstance {
        airflow: None,
        ..world.row("a").clone()
    };
    assert!(limit(spec, &container).is_some());
    world.wait(9);
    assert!(world.round(Vec::new()).is_empty());
}

#[test]
fn a_worker_that_crashes_before_it_has_begun_costs_no_try() {
    let mut world = queued(|_| {});
    world.limits.excluded_reasons.clear();
    world.pod_round("a", failed());
    let row = world.row("a");
    assert_eq!((row.state, row.launch_failures), (Some(Queued), 1));
    assert_eq!(row.start_date, None);
}

#[test]
fn nobody_but_the_worker_of_the_present_try_is_heard() {
    let mut world = queued(|_| {});
    let report = started(&world, 7);
    for id in [world.row("x").id, Uuid::nil()] {
        let (answer, changes) = try_says(&mut world, id, report.clone());
        assert_eq!((answer, changes.is_empty()), (None, true));
    }
    // A report comes before the start, and after the slot is gone.
    let report = WorkerReport::Ended {
        end: TryEnd::Success,
        ended_at: world.now,
    };
    let refused = WorkerAnswer::Refused(Some(Queued));
    assert_eq!(says(&mut world, report.clone()).0, refused);
    let mut world = began(|_| {});
    world.round(vec![Fact::Interrupt(super::world::key("r"))]);
    let refused = WorkerAnswer::Refused(Some(Scheduled));
    assert_eq!(says(&mut world, report).0, refused);
    assert_ne!(world.state("a"), Some(Success));
}

/// The worker of this task instance was heard at a time.
fn heard(world: &mut World, id: Uuid, at: Timestamp) {
    let mut heartbeats = Heartbeats::new(Timestamp::MIN);
    heartbeats.hear(Heartbeat { id, at });
    world.heartbeats = Arc::new(heartbeats);
}

#[test]
fn a_worker_that_falls_silent_is_given_up_and_its_try_fails() {
    let mut world = began(|task| task.retries = 1);
    let first = world.row("a").id;
    let start = world.row("a").start_date.unwrap();
    // It was not heard yet: its start counts.
    world.heartbeats = Arc::new(Heartbeats::new(Timestamp::MIN));
    assert!(world.round(Vec::new()).is_empty());
    assert_eq!(world.next, Next::After(Duration::from_secs(299)));
    world.wait(250);
    let now = world.now;
    heard(&mut world, first, now);
    assert!(world.round(Vec::new()).is_empty());
    assert_eq!(world.next, Next::After(Duration::from_secs(300)));
    world.wait(299);
    assert!(world.round(Vec::new()).is_empty());
    world.wait(1);
    let changes = world.round(Vec::new());
    let ended = &changes.archived[0].task_instance;
    assert_eq!((ended.id, ended.start_date), (first, Some(start)));
    let reason = ended.failure.as_ref().unwrap().reason.as_deref();
    assert_eq!(reason, Some("HeartbeatTimeout"));
    assert_eq!(world.state("a"), Some(UpForRetry));
    // What it still says is of an earlier try.
    let late = WorkerReport::Ended {
        end: TryEnd::Success,
        ended_at: world.now,
    };
    let (answer, changes) = try_says(&mut world, first, late);
    assert_eq!((answer, changes.is_empty()), (None, true));
}

#[test]
pub(super) fn a_worker_that_never_begins_is_launched_again_and_then_fails() {
    let mut world = queued(|task| task.retries = 1);
    let first = world.row("a").clone();
    for n in 1..=2 {
        world.wait(599);
        world.round(Vec::new());
        assert_eq!(world.row("a").launch, n);
        world.wait(1);
        world.round(Vec::new());
        // A slot is free: the next launch of the same try.
        let row = world.row("a");
        assert_eq!((row.id, row.state), (first.id, Some(Queued)));
        assert_eq!((row.launch, row.launch_failures), (n + 1, n));
        assert_eq!(row.try_number, first.try_number);
    }
    world.wait(600);
    world.round(Vec::new());
    let row = world.row("a");
    assert_eq!(row.state, Some(Failed));
    let reason = row.failure.as_ref().unwrap().reason.as_deref();
    assert_eq!(reason, Some("StuckInQueued"));
    // A task of a container DAG has no worker that could begin.
    assert_eq!(world.state("x"), Some(Queued));
}

#[test]
fn a_stuck_try_waits_for_its_slot_like_the_others() {
    let mut world = queued(|_| {});
    world.limits.parallelism = 1;
    world.wait(600);
    world.round(Vec::new());
    let row = world.row("a");
    assert_eq!((row.state, row.queued_at), (Some(Scheduled), None));
}

#[test]
pub(super) fn a_branch_skips_what_has_not_run_and_nothing_else() {
    for (state, is_skipped) in [
        (None, true),
        (Some(Scheduled), true),
        (Some(Queued), true),
        (Some(UpForRetry), true),
        (Some(UpForReschedule), true),
        (Some(Deferred), true),
        (Some(AwaitingInput), true),
        (Some(TaskState::UpstreamFailed), true),
        (Some(Running), false),
        (Some(TaskState::Restarting), false),
        (Some(Success), false),
        (Some(Failed), false),
        (Some(TaskState::Removed), false),
    ] {
        let mut world = began(|_| {});
        world.put("x", |row| row.state = state);
        let report = WorkerReport::Skips {
            instances: vec![
                ("x".to_owned(), -1),
                ("x".to_owned(), 3),
                ("unknown".to_owned(), -1),
                ("a".to_owned(), -1),
            ],
        };
        let (answer, _) = says(&mut world, report);
        assert_eq!(answer, WorkerAnswer::Changed, "{state:?}");
        let found = world.rows[&world.row("x").key].state;
        let skipped = found == Some(TaskState::Skipped);
        assert_eq!(skipped, is_skipped, "{state:?} became {found:?}");
        assert_eq!(world.state("a"), Some(Running));
    }
}
