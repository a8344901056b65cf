//! How long attempts may run.

use longshore_api::flyte::ErrorState;
use longshore_core::{ObjectRef, Resource};
use longshore_plugins::PluginState;
use longshore_proto::flyteidl2::core::TaskMetadata;

use super::*;
use crate::model::Belongs;

/// The plan about a task with this timeout, so many seconds after its status was written.
fn limited(world: &World, timeout: i64, seconds: u64) -> String {
    let mut observed = world.observed();
    observed.now = EPOCH + Duration::from_secs(seconds);
    if let Seen::Present(action) = &mut observed.action
        && let Work::Task(task) = &mut action.work
    {
        let timeout = prost_types::Duration {
            seconds: timeout,
            nanos: 0,
        };
        task.context.template.metadata = Some(TaskMetadata {
            timeout: Some(timeout),
            ..TaskMetadata::default()
        });
    }
    words(&world::plan_of(&world.config, observed))
}

fn running() -> World {
    let running = action().started(Phase::Running, 1, "");
    running.pod(of(Phase::Running))
}

const TOO_LONG: &str = "the attempt ran for longer than its timeout of 1m0s";

#[test]
fn an_attempt_runs_for_as_long_as_its_timeout() {
    let again = running().with(|it| it.max_attempts = 2);
    let over = format!(
        "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: {TOO_LONG}; label; \
         delete r-a-0; await"
    );
    for (name, world, timeout, seconds, expected) in [
        ("without", running(), 0, 3600, "await"),
        ("that is none", running(), -1, 3600, "await"),
        ("and nobody looks before", running(), 60, 10, "after 51s"),
        ("to its end", running(), 60, 60, "after 1s"),
        (
            "and again",
            again,
            60,
            61,
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        ("and no longer", running(), 60, 61, over.as_str()),
    ] {
        assert_eq!(limited(&world, timeout, seconds), expected, "{name}");
    }
}

#[test]
fn only_the_time_counts_in_which_the_launch_runs() {
    let queued = || action().started(Phase::Queued, 0, SUBMITTED);
    let begins = "report RUNNING.0 of 1; persist Running.0 of 1; after 61s";
    let begins_anew = format!("report QUEUED.0 of 1; {begins}");
    let since = PhaseInfo {
        occurred_at: Some(EPOCH - Duration::from_secs(30)),
        ..of(Phase::Running)
    };
    for (name, world, seconds, expected) in [
        ("it waits", queued().pod(pulling()), 3600, "after 1s"),
        ("it begins", queued().pod(of(Phase::Running)), 3600, begins),
        (
            "another launch begins",
            running().with(|it| it.state = Ok(PluginState::default())),
            3600,
            begins_anew.as_str(),
        ),
        (
            "its container has begun before",
            running().pod(since),
            10,
            "after 21s",
        ),
    ] {
        assert_eq!(limited(&world, 60, seconds), expected, "{name}");
    }
}

#[test]
fn the_next_attempt_waits_for_a_pod_that_ran_for_too_long() {
    let next = |is_deleting: bool, is_over: bool| {
        let earlier = Child {
            target: ObjectRef {
                resource: Resource::POD,
                namespace: "flyte".to_owned(),
                name: "r-a-0".to_owned(),
                uid: Some("before".to_owned()),
            },
            belongs: Belongs::ToThisAction,
            is_deleting,
            is_over,
            has_finalizer: false,
            deleted_at: None,
            finalizers: Vec::new(),
        };
        let world = action().with(|it| {
            it.action.status.attempts = 2;
            it.action.children.earlier = vec![earlier];
        });
        words(&world.plan())
    };
    let create = "create r-a-1 as u/2/0; report QUEUED.0 of 2; persist Queued.0 of 2; after 10s";
    assert_eq!(next(false, false), "delete r-a-0; after 10s");
    assert_eq!(next(true, false), "after 10s");
    assert_eq!(next(true, true), create);
    assert_eq!(next(false, true), format!("delete r-a-0; {create}"));
}

/// The process may have ended between the record and the delete.
#[test]
fn what_ran_for_too_long_is_deleted_after_its_end_is_on_record() {
    let ended = |message: &str| {
        let ended = action().started(Phase::PermanentFailure, 0, "");
        let ended = ended.pod(of(Phase::Running)).with(|it| {
            it.action.status.error_state = Some(ErrorState {
                code: "TimeoutExceeded".to_owned(),
                kind: "USER".to_owned(),
                message: message.to_owned(),
            });
        });
        limited(&ended, 60, 61)
    };
    assert_eq!(ended(TOO_LONG), "label; delete r-a-0; await");
    assert_eq!(ended("what a program wrote down"), "label; await");
}
