//! What attempts leave behind, and stores that do not tell.

use longshore_core::{Asked, QuestionId, UnknownCause};
use longshore_plugins::TaskError;

use super::*;

fn said(is_recoverable: bool, kind: ErrorKind) -> Seen<Outcome> {
    let error = TaskError {
        code: "ValueError".to_owned(),
        message: "3 is too many".to_owned(),
        kind,
    };
    Seen::Present(Outcome::Failed {
        error,
        is_recoverable,
    })
}

/// An attempt whose process failed, of two.
fn failed(outcome: Seen<Outcome>) -> World {
    action()
        .started(Phase::Running, 1, "")
        .pod(user("Error"))
        .with(|it| {
            it.max_attempts = 2;
            it.outcome = outcome;
        })
}

#[test]
fn what_a_failed_attempt_wrote_down_says_more_than_its_exit_code() {
    let again = "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns";
    let over = "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: 3 is too many; \
                label; await";
    check(&[
        ("nothing", failed(Seen::Present(Outcome::Complete)), again),
        ("recoverable", failed(said(true, ErrorKind::User)), again),
        ("permanent", failed(said(false, ErrorKind::User)), over),
        (
            "recoverable, and the last attempt",
            failed(said(true, ErrorKind::Unknown)).with(|it| it.max_attempts = 1),
            over,
        ),
        (
            "recoverable, and of the system",
            failed(said(true, ErrorKind::System)),
            "launch u/1/1 after 1s; persist Running.1 of 1 +1 (nothing started); delete r-a-0; warn FailedPluginHandle; after 1s",
        ),
    ]);
}

#[test]
fn the_error_that_was_written_down_is_in_the_status_and_in_the_event() {
    let plan = failed(said(false, ErrorKind::User)).plan();
    let Some(report) = world::report_of(&plan.actions[0]) else {
        panic!("{plan:?}");
    };
    assert_eq!(
        report.events[0].error.as_ref().unwrap().message,
        "3 is too many"
    );
    let Do::Persist(record) = &plan.actions[1] else {
        panic!("{plan:?}");
    };
    let state = record.status.error_state.as_ref().unwrap();
    assert_eq!(
        (state.code.as_str(), state.kind.as_str()),
        ("ValueError", "USER")
    );
}

#[test]
fn a_store_that_refuses_is_waited_for_and_the_status_says_why_once() {
    let refused = || {
        Seen::unknown(
            UnknownCause::Unreachable,
            "s3://b/x cannot be read: AccessDenied",
        )
    };
    let ended = || {
        action()
            .started(Phase::Running, 1, "")
            .pod(of(Phase::Success))
            .with(|it| it.outcome = refused())
    };
    let plan = ended().plan();
    let Some(Do::Persist(record)) = plan.actions.last() else {
        panic!("{plan:?}");
    };
    let told = record.status.conditions[0].message.clone();
    assert!(
        told.ends_with("s3://b/x cannot be read: AccessDenied"),
        "{told}"
    );
    let waiting = || {
        action()
            .started(Phase::Running, 2, &told)
            .pod(of(Phase::Success))
            .with(|it| it.outcome = refused())
    };
    let later = |seconds| {
        waiting().with(|it| {
            it.info.occurred_at = Some(EPOCH);
            it.now = EPOCH + jiff::SignedDuration::from_secs(seconds);
        })
    };
    let told = "report RUNNING.2 of 1; persist Running.2 of 1; after 1s";
    check(&[
        ("after a success", ended(), told),
        ("after a failure", failed(refused()), told),
        (
            "before anybody saw it run",
            action()
                .started(Phase::Queued, 0, SUBMITTED)
                .pod(of(Phase::Success))
                .with(|it| it.outcome = refused()),
            "report RUNNING.0 of 1; persist Running.0 of 1; after 1s",
        ),
        ("told already", waiting(), "after 1s"),
        (
            "told already, in other words",
            waiting().with(|it| it.outcome = Seen::unknown(UnknownCause::Unreachable, "SlowDown")),
            "after 1s",
        ),
        ("for a while", later(8), "after 8s"),
        ("for long", later(3600), "after 30s"),
        (
            "and then not any more",
            waiting().with(|it| it.outcome = Seen::Present(Outcome::Complete)),
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
    ]);
}

#[test]
fn inputs_that_cannot_be_read_are_waited_for() {
    let why = "s3://b/inputs.pb cannot be read: AccessDenied";
    let unread = |world: World| {
        world.with(|it| it.inputs = Some(Seen::unknown(UnknownCause::Unreachable, why)))
    };
    let waiting = format!("waiting for the inputs: {why}");
    let told = || {
        action()
            .started(Phase::WaitingForResources, 0, &waiting)
            .with(|it| {
                if let Ok(state) = &mut it.state {
                    state.launch = longshore_plugins::Launch::NotStarted;
                    it.action.status.plugin_state = state.encode();
                }
            })
    };
    check(&[
        (
            "not asked for",
            action().with(|it| it.inputs = Some(Seen::Absent)),
            "read inputs; await",
        ),
        (
            "first",
            unread(action()),
            "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForResources.0 of 1; after 10s",
        ),
        ("again", unread(told()), "after 10s"),
        (
            "read at last",
            told().with(|it| it.inputs = Some(Seen::Present(()))),
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after 10s",
        ),
    ]);
}

#[test]
fn a_directory_is_made_before_the_resource_and_waited_for() {
    let directory = |seen: Seen<()>| action().with(|it| it.directory = Some(seen));
    let refused = || directory(Seen::unknown(UnknownCause::Unreachable, "no place"));
    let submit = "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after 10s";
    check(&[
        ("new", directory(Seen::Absent), "make directory; await"),
        ("made", directory(Seen::Present(())), submit),
        (
            "refused",
            refused(),
            "report WAITING_FOR_RESOURCES.0 of 1; persist WaitingForResources.0 of 1; warn NoOutputDirectory; after 10s",
        ),
    ]);
}

/// The attempt has ended, and this is how far the question is for what it left behind.
fn ended(asked: Asked<Outcome>) -> String {
    let world = action()
        .started(Phase::Running, 1, "")
        .pod(of(Phase::Success));
    let mut observed = world.observed();
    if let Seen::Present(action) = &mut observed.action
        && let Work::Task(task) = &mut action.work
    {
        task.outcome = asked;
    }
    words(&world::plan_of(&world.config, observed))
}

#[test]
fn a_store_is_asked_once_and_again_after_a_failure() {
    let failed = |ago: i64| Asked::Failed {
        at: EPOCH - jiff::SignedDuration::from_secs(ago),
        why: longshore_core::NoAnswer::TimedOut,
        message: "silence".to_owned(),
    };
    assert_eq!(ended(Asked::NotAsked), "look; await");
    assert_eq!(ended(Asked::UnderWay { since: EPOCH }), "await");
    let told = "report RUNNING.2 of 1; persist Running.2 of 1;";
    assert_eq!(ended(failed(0)), format!("{told} after 1s"));
    assert_eq!(ended(failed(1)), format!("{told} look; await"));
}

#[test]
fn an_answer_from_before_the_next_look_is_due_is_not_counted_twice() {
    let info = PhaseInfo {
        occurred_at: Some(EPOCH),
        ..of(Phase::Success)
    };
    let world = action().started(Phase::Running, 1, "").pod(info);
    let world = world.with(|it| {
        it.action.status.system_failures = 1;
        it.now = EPOCH + Duration::from_secs(10);
        it.outcome = Seen::Present(Outcome::Incomplete("no outputs".to_owned()));
    });
    let looked = |seconds: u64| {
        let mut observed = world.observed();
        if let Seen::Present(action) = &mut observed.action
            && let Work::Task(task) = &mut action.work
            && let Asked::Answered { at, .. } = &mut task.outcome
        {
            *at = EPOCH + Duration::from_secs(seconds);
        }
        words(&world::plan_of(&world.config, observed))
    };
    assert_eq!(looked(9), "look; await");
    let counted = "persist Running.1 of 1 +2; warn FailedPluginHandle; after 10s";
    assert_eq!(looked(10), counted);
}

#[test]
fn answers_are_used_up_after_the_record_and_those_of_earlier_attempts_at_once() {
    let ids = [
        QuestionId::new("store_outcome", "pod"),
        QuestionId::new("store_outcome", "the pod before"),
        QuestionId::new("store_inputs", ""),
        QuestionId::new("catalog_reserve", ""),
    ];
    let used = |world: World| {
        let mut world = world;
        world.action.asked = ids.to_vec();
        words(&world.plan())
    };
    let ended = action()
        .started(Phase::Running, 1, "")
        .pod(of(Phase::Success));
    assert_eq!(
        used(ended.clone().with(|it| it.outcome = Seen::Absent)),
        "look; use store_outcome; use store_inputs; await"
    );
    assert_eq!(
        used(ended),
        "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; use store_outcome; use store_outcome; \
         use store_inputs; use catalog_reserve; await"
    );
}
