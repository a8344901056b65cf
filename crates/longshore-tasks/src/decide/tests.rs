mod aborts;
pub(super) mod cached;
mod edges;
mod held;
mod late;
mod launches;
mod left_behind;
mod limits;
mod merged;
mod remote;
mod report;
mod too_large;
mod world;

use std::time::Duration;

use longshore_api::{flyte::FINALIZER_RESOURCE, tasks::ANNOTATION_LAUNCH};
use longshore_core::UnknownCause;
use longshore_plugins::{ErrorKind, Phase, PhaseInfo, StateError};
use longshore_test::EPOCH;
use serde_json::json;

use super::*;
use crate::{
    data::Outcome,
    model::{CreateFailure, LaunchId},
};

pub(super) use world::action;
use world::{World, words};

fn user(code: &str) -> PhaseInfo {
    PhaseInfo::retryable(ErrorKind::User, code, "it broke")
}

fn system(code: &str) -> PhaseInfo {
    PhaseInfo::retryable(ErrorKind::System, code, "it went")
}

fn of(phase: Phase) -> PhaseInfo {
    PhaseInfo::of(phase, "")
}

fn check(table: &[(&str, World, &str)]) {
    for (name, world, expected) in table {
        assert_eq!(words(&world.plan()), *expected, "{name}");
    }
}

const SUBMITTED: &str = "task submitted to K8s";

#[test]
fn an_attempt_is_launched_once() {
    check(&[
        (
            "without finalizer",
            action().with(|it| it.action.has_finalizer = false),
            "finalizer; after 0ns",
        ),
        (
            "new",
            action(),
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after 10s",
        ),
        (
            "after a system failure",
            action().with(|it| it.action.status.system_failures = 2),
            "create r-a-0 as u/1/2; report QUEUED.0+2 of 1; persist Queued.0 of 1 +2; after 10s",
        ),
        (
            "too soon after a system failure",
            action().with(|it| it.not_before = Some(EPOCH + Duration::from_secs(2))),
            "after 2s",
        ),
        (
            "late enough",
            action().with(|it| it.not_before = Some(EPOCH)),
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after 10s",
        ),
        (
            "second attempt",
            action().with(|it| it.action.status.attempts = 2),
            "create r-a-1 as u/2/0; report QUEUED.0 of 2; persist Queued.0 of 2; after 10s",
        ),
        (
            "created before a crash",
            action().pod(PhaseInfo::of(Phase::Running, "")),
            "report QUEUED.0 of 1; report RUNNING.0 of 1; persist Running.0 of 1; await",
        ),
        (
            "created before a crash, and over",
            action()
                .pod(of(Phase::Success))
                .with(|it| it.outcome = Seen::Present(Outcome::Complete)),
            "report QUEUED.0 of 1; report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
        (
            "created before a crash, and pending",
            action().pod(PhaseInfo::of(
                Phase::Queued,
                longshore_plugins::NOTHING_KNOWN,
            )),
            "report QUEUED.0 of 1; persist Queued.0 of 1; after 10s",
        ),
    ]);
}

#[test]
fn a_create_that_does_not_happen_has_its_consequence() {
    let blocked = |kind: CreateFailure| action().with(|it| it.blocked = Some(kind));
    let refused = |code| {
        blocked(CreateFailure::Refused {
            code,
            message: "no".to_owned(),
        })
    };
    let over_quota = || blocked(CreateFailure::OverQuota("exceeded quota".to_owned()));
    check(&[
        (
            "template that cannot be built",
            action().with(|it| it.builds = Err("BadTaskSpecification")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: no image; label; await",
        ),
        (
            "identity that cannot be built",
            action().with(|it| it.builds = Err("Other")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: \
             Failed to build resource, caused by: no image; label; await",
        ),
        (
            "over quota",
            over_quota(),
            "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForResources.0 of 1; after 10s",
        ),
        (
            "still over quota",
            over_quota()
                .with(|it| it.action.status.plugin_phase = "PhaseWaitingForResources".to_owned()),
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after 10s",
        ),
        (
            "bad request",
            refused(400),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: no; label; await",
        ),
        (
            "forbidden, with retries",
            refused(403).with(|it| it.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "namespace gone",
            refused(404),
            "launch u/1/1 after 1s; persist .0 of 0 +1 (nothing started); warn FailedPluginHandle; after 1s",
        ),
    ]);
}

#[test]
fn somebody_elses_resource_is_waited_for() {
    let foreign = |change: fn(&mut Value)| action().pod_of(of(Phase::Undefined), change);
    let older =
        |pod: &mut Value| pod["metadata"]["annotations"][ANNOTATION_LAUNCH] = json!("u/1/5");
    check(&[
        (
            "foreign",
            foreign(|pod| pod["metadata"]["annotations"] = json!({})),
            "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForResources.0 of 1; after 1s",
        ),
        (
            "foreign for a while",
            foreign(|pod| pod["metadata"]["annotations"] = json!({})).with(|it| {
                it.blocked = Some(CreateFailure::NameTaken);
                it.action.status.plugin_phase = "PhaseWaitingForResources".to_owned();
                it.now = EPOCH + Duration::from_secs(12);
            }),
            "after 12s",
        ),
        (
            "foreign, and going",
            foreign(|pod| {
                pod["metadata"]["annotations"] = json!({});
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            "after 1s",
        ),
        (
            "of the launch before",
            foreign(older),
            "delete r-a-0; after 10s",
        ),
        (
            "of the launch before, going",
            foreign(move |pod| {
                pod["metadata"]["annotations"][ANNOTATION_LAUNCH] = json!("u/1/5");
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            "after 5s",
        ),
        (
            "of upstream, and ours",
            foreign(|pod| {
                pod["metadata"]["annotations"] = json!({});
                pod["metadata"]["labels"] = json!({"attempt": "1"});
                pod["metadata"]["ownerReferences"] =
                    json!([{"kind": "TaskAction", "uid": "u", "controller": true}]);
            })
            .with(|it| it.info = of(Phase::Running)),
            "report QUEUED.0 of 1; report RUNNING.0 of 1; persist Running.0 of 1; await",
        ),
    ]);
}

fn no_cpu() -> PhaseInfo {
    PhaseInfo::of(Phase::Queued, "Unschedulable:no cpu")
}

fn pulling() -> PhaseInfo {
    PhaseInfo::of(Phase::Initializing, "pulling")
}

#[test]
fn an_attempt_is_followed_to_its_end() {
    let queued = || action().started(Phase::Queued, 0, SUBMITTED);
    let running = || action().started(Phase::Running, 1, "");
    check(&[
        (
            "nothing known yet",
            queued().pod(PhaseInfo::of(
                Phase::Queued,
                longshore_plugins::NOTHING_KNOWN,
            )),
            "after 10s",
        ),
        (
            "why it waits",
            queued().pod(no_cpu()).pending(no_cpu(), 1000),
            "report QUEUED.1 of 1; persist Queued.1 of 1; after 10s",
        ),
        (
            "initializing",
            queued().pod(pulling()).pending(pulling(), 1000),
            "report INITIALIZING.0 of 1; persist Initializing.0 of 1; after 10s",
        ),
        (
            "progress after system failures, which count for the whole attempt",
            queued()
                .with(|it| it.action.status.system_failures = 2)
                .pod(of(Phase::Running)),
            "report RUNNING.0+2 of 1; persist Running.0 of 1 +2; await",
        ),
        ("still running", running().pod(of(Phase::Running)), "await"),
        (
            "node lost",
            running().pod(of(Phase::Undefined)),
            "after 10s",
        ),
    ]);
}

#[test]
fn an_attempt_that_ended_well_is_judged_by_what_it_left_behind() {
    let running = || action().started(Phase::Running, 1, "");
    let done = |outcome: Seen<Outcome>| {
        running()
            .pod(of(Phase::Success))
            .with(|it| it.outcome = outcome)
    };
    let failed = |is_recoverable| {
        let error = longshore_plugins::TaskError {
            code: "Boom".to_owned(),
            message: "it broke".to_owned(),
            kind: ErrorKind::User,
        };
        done(Seen::Present(Outcome::Failed {
            error,
            is_recoverable,
        }))
        .with(|it| it.max_attempts = 2)
    };
    check(&[
        (
            "success",
            done(Seen::Present(Outcome::Complete)),
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
        (
            "success whose pod is deleted",
            running()
                .pod_of(of(Phase::Success), |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                })
                .with(|it| it.outcome = Seen::Present(Outcome::Complete)),
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
        (
            "success to be cleaned up",
            done(Seen::Present(Outcome::Complete))
                .with(|it| it.config.delete_resource_on_finalize = true),
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; delete r-a-0; await",
        ),
        (
            "outputs missing",
            done(Seen::Present(Outcome::Incomplete("no outputs".to_owned()))),
            "persist Running.1 of 1 +1; warn FailedPluginHandle; after 10s",
        ),
        (
            "an error that may pass",
            failed(true),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "an error that may not",
            failed(false),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
    ]);
}

#[test]
fn missing_outputs_are_looked_for_once_per_requeue() {
    let at = |seconds: u64, n_failures: u32| {
        let missing = Outcome::Incomplete("no outputs".to_owned());
        let info = PhaseInfo {
            occurred_at: Some(EPOCH),
            ..of(Phase::Success)
        };
        let world = action().started(Phase::Running, 1, "").pod(info);
        let world = world.with(|it| {
            it.outcome = Seen::Present(missing);
            it.action.status.system_failures = n_failures;
            it.now = EPOCH + Duration::from_secs(seconds);
        });
        words(&world.plan())
    };
    assert_eq!(at(0, 1), "after 10s");
    assert_eq!(at(7, 1), "after 3s");
    assert_eq!(
        at(10, 1),
        "persist Running.1 of 1 +2; warn FailedPluginHandle; after 10s"
    );
    assert_eq!(
        at(30, 3),
        "report FAILED.0+4 of 1; persist PermanentFailure.0 of 1 +4 failed PermanentFailure: plugin \"fake\" failed \
         with system error 4 times: no outputs; label; await"
    );
}

#[test]
fn failures_lead_to_the_next_attempt_the_next_launch_or_the_end() {
    let running = || action().started(Phase::Running, 1, "");
    let gone = "launch u/1/1 after 1s; persist Running.1 of 1 +1 (nothing started); warn FailedPluginHandle; after 1s";
    check(&[
        (
            "user, with retries",
            running()
                .pod(user("OOMKilled"))
                .with(|it| it.max_attempts = 3),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "user, without",
            running().pod(user("OOMKilled")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
        (
            "system",
            running().pod(system("Interrupted")),
            "launch u/1/1 after 1s; persist Running.1 of 1 +1 (nothing started); delete r-a-0; warn FailedPluginHandle; after 1s",
        ),
        (
            "system, once too often",
            running()
                .with(|it| it.action.status.system_failures = 3)
                .pod(system("Interrupted")),
            "report FAILED.0+4 of 1; persist PermanentFailure.0 of 1 +4 failed PermanentFailure: plugin \"fake\" failed \
             with system error 4 times: [Interrupted] it went; label; await",
        ),
        ("gone", running(), gone),
        (
            "going",
            running().pod_of(of(Phase::Running), |pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            gone,
        ),
        (
            "not seen",
            running().with(|it| {
                it.action.children.current = Seen::unknown(UnknownCause::Unreachable, "no answer")
            }),
            "note that it is not seen; after 1s",
        ),
        (
            "never starts",
            running().pod(PhaseInfo {
                cleanup_on_failure: true,
                ..user("ImagePullBackOff")
            }),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; \
             delete r-a-0; await",
        ),
    ]);
}

#[test]
fn a_state_that_cannot_be_read_is_taken_from_the_resource() {
    let corrupt = || {
        action().started(Phase::Running, 1, "").with(|it| {
            it.state = Err(StateError::Version(0));
            it.action.status.plugin_state_version = 0;
        })
    };
    check(&[
        (
            "live",
            corrupt()
                .pod(of(Phase::Running))
                .with(|it| it.info.version = 1),
            "report RUNNING.1 of 1; persist Running.1 of 1; await",
        ),
        (
            "gone",
            corrupt(),
            "launch u/1/1 after 1s; persist Running.1 of 1 +1 (nothing started); warn FailedPluginHandle; after 1s",
        ),
    ]);
}

#[test]
fn an_action_goes_when_nothing_of_it_runs() {
    let running = || action().started(Phase::Running, 1, "").deleting();
    let going = |pod: &mut Value| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    check(&[
        (
            "running",
            running().pod(of(Phase::Running)),
            "delete r-a-0; after 10s",
        ),
        (
            "stopping",
            running().pod_of(of(Phase::Running), going),
            "after 10s",
        ),
        (
            "stopped",
            running(),
            "report ABORTED.0 of 1; release r-a; await",
        ),
        (
            "stopped and held",
            running().pod_of(of(Phase::Running), |pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                pod["metadata"]["finalizers"] = json!([FINALIZER_RESOURCE]);
                pod["status"] = json!({"phase": "Failed"});
            }),
            "release r-a-0; after 10s",
        ),
        (
            "ended",
            action()
                .started(Phase::Success, 0, "")
                .deleting()
                .pod_of(of(Phase::Success), |pod| {
                    pod["status"] = json!({"phase": "Succeeded"});
                }),
            "delete r-a-0; release r-a; await",
        ),
        (
            "let go",
            running().with(|it| it.action.has_finalizer = false),
            "await",
        ),
        (
            "not seen",
            running().with(|it| {
                it.action.children.current = Seen::unknown(UnknownCause::Unreachable, "no answer")
            }),
            "note that it is not seen; after 1s",
        ),
    ]);
}

#[test]
fn what_was_read_to_be_gone_is_remembered_beside_whatever_is_decided() {
    let gone = |world: World| {
        world.with(|it| {
            let launch = LaunchId::of(&it.action.target, &it.action.status);
            it.action.children.newly_gone = Some(launch);
        })
    };
    let running = || gone(action().started(Phase::Running, 1, ""));
    let note = "note Gone(LaunchId { uid: \"u\", attempt: 1, n_failures: 0 }); ";
    for (world, expected) in [
        (
            running(),
            "launch u/1/1 after 1s; persist Running.1 of 1 +1 (nothing started); warn FailedPluginHandle; after 1s",
        ),
        (
            running().deleting(),
            "report ABORTED.0 of 1; release r-a; await",
        ),
    ] {
        assert_eq!(words(&world.plan()), format!("{note}{expected}"));
    }
}

#[test]
fn an_action_that_ended_gets_its_labels_once() {
    let labelled = |it: &mut World| {
        let mut object = (*it.action.object).clone();
        object["metadata"]["labels"] = json!({
            "flyte.org/termination-status": "terminated", "flyte.org/completed-time": "2026-01-01.00-00",
        });
        it.action.object = Arc::new(object);
    };
    let ended = || action().started(Phase::Success, 0, "");
    check(&[
        ("new", ended(), "label; await"),
        ("labelled", ended().with(labelled), "await"),
        (
            "with a pod that is to go",
            ended()
                .with(labelled)
                .with(|it| it.config.delete_resource_on_finalize = true)
                .pod(of(Phase::Success)),
            "delete r-a-0; await",
        ),
    ]);
}

/// The decision about a condition action with a timeout of an hour, so many seconds after it was made.
fn condition(seconds: i64, change: impl FnOnce(&mut Action)) -> ActionPlan {
    use longshore_proto::flyteidl2::workflow::ConditionAction;
    use prost::Message;

    let mut object = (*action().action.object).clone();
    object["spec"]["actionType"] = json!("condition");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut action = Action::of(object).unwrap();
    let timeout = prost_types::Duration {
        seconds: 3600,
        nanos: 0,
    };
    let spec = ConditionAction {
        name: "approve".to_owned(),
        timeout: Some(timeout),
        ..ConditionAction::default()
    };
    action.spec.condition_spec = spec.encode_to_vec();
    change(&mut action);
    let observed = Observed {
        now: EPOCH + jiff::SignedDuration::from_secs(seconds),
        action: Seen::Present(action),
    };
    decide(&Policy::default(), &K8sConfig::default(), &observed)
}

#[test]
fn a_condition_waits_for_its_signal() {
    let condition = |seconds: i64, change: fn(&mut Action)| words(&condition(seconds, change));
    assert_eq!(
        condition(600, |_| {}),
        "persist .0 of 0 (nothing started); after 3000s"
    );
    assert_eq!(
        condition(3600, |_| {}),
        "persist .0 of 0 (nothing started) failed TimedOut: condition timed out after 1h0m0s without a signal; label; await"
    );
    assert_eq!(
        condition(0, |action| action.status.signal_value = vec![1]),
        "persist .0 of 0 (nothing started) completed; label; await"
    );
    assert_eq!(
        condition(0, |action| action.spec.condition_spec.clear()),
        "persist .0 of 0 (nothing started) failed InvalidSpec: conditionSpec is empty; label; await"
    );
}
