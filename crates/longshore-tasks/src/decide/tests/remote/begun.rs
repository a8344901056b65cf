//! Jobs that a connector has begun: they are on record first, and an abort ends them at once.

use jiff::SignedDuration;
use longshore_api::flyte::{CONDITION_WAITING, Condition};
use longshore_kit::WaitsFor;

use super::*;
use crate::{model::Unanswered, questions::fingerprint};

/// A report may hang, and the action may be deleted meanwhile: which job it was, nothing but the answer says.
#[test]
fn which_job_was_begun_is_on_record_before_anything_is_reported() {
    let begun = || {
        let queued = after(Phase::Queued, Phase::Queued);
        let queued = queued.step(|it| it.state = vec![2]);
        queued.with(|it| it.is_begun = true)
    };
    let reporting = || Asked::UnderWay { since: EPOCH };
    for (name, remote) in [
        ("begun", begun()),
        (
            "while a report is under way",
            begun().with(|it| it.world.action.reported = reporting()),
        ),
        ("and being deleted", begun().with(deleting)),
        (
            "with a reservation",
            begun().cached(true, |it| it.held = held_by("flyte/r-a", 11)),
        ),
    ] {
        let observed = remote.observed();
        let plan = world::plan_of(&remote.world.config, observed);
        assert_eq!(words(&plan), "persist Queued.0 of 1; after 0ns", "{name}");
        let Do::Persist(record) = &plan.actions[0] else {
            panic!("{plan:?}");
        };
        let mut expected = remote.world.action.status.clone();
        expected.plugin_state = vec![2];
        assert_eq!(record.status, expected, "{name}: it says nothing else");
    }
}

fn deleting(remote: &mut Remote) {
    remote.world.action.is_deleting = true;
}

#[test]
fn an_abort_waits_for_no_answer_that_it_does_not_need() {
    let running = || after(Phase::Running, Phase::Running).begun();
    let asking = |kinds: &[&'static str]| {
        let of = fingerprint(&[1]);
        let ids = kinds.iter().map(|kind| QuestionId::new(kind, of.as_str()));
        let ids: Vec<_> = ids.collect();
        running().with(|it| it.world.action.asked = ids)
    };
    check(vec![
        (
            "the state of the job",
            asking(&["connector_get"]).with(deleting),
            "end; use connector_get; await",
        ),
        (
            "what reads, but not what may have an effect",
            asking(&["catalog_reserve", "connector_create", "store_outcome"]).with(deleting),
            "end; use store_outcome; await",
        ),
        ("without an abort", asking(&["connector_get"]), "after 30s"),
    ]);
}

/// The connector was asked first before so many seconds to end the job, and has not answered since.
fn asked_to_end(remote: Remote, seconds: i64) -> Remote {
    remote.with(|it| {
        it.world.action.unanswered.push(Unanswered {
            kind: "connector_delete",
            whom: "the connector of t".to_owned(),
            since: EPOCH - SignedDuration::from_secs(seconds),
            failure: Some("it did not".to_owned()),
            waits_for: WaitsFor::Repeat,
        });
    })
}

/// Whatever has failed but the job itself: its connector is asked to end it, for a minute at most.
#[test]
fn a_job_whose_attempt_has_failed_does_not_run_on() {
    let system = || PhaseInfo::retryable(ErrorKind::System, "Lost", "it is lost");
    let retryable = || failing(user("Error")).begun();
    let failed = "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await";
    check(vec![
        ("the last attempt", retryable(), "end; await"),
        (
            "one system failure too many",
            failing(system()).system_failures(3).begun(),
            "end; await",
        ),
        (
            "one system failure too many, and the job is ended",
            failing(system()).system_failures(3).begun().aborted(),
            "report FAILED.0+4 of 1; persist PermanentFailure.0 of 1 +4 failed PermanentFailure: \
             plugin \"given\" failed with system error 4 times: [Lost] it is lost; label; await",
        ),
        ("it is ended", retryable().aborted(), failed),
        (
            "the connector knows no such job",
            retryable().not_aborted(0, NoAnswer::Refused),
            failed,
        ),
        (
            "the connector is down",
            retryable().not_aborted(0, NoAnswer::Unreachable),
            "after 1s",
        ),
        (
            "the connector is down, and is asked again",
            asked_to_end(retryable().not_aborted(2, NoAnswer::Unreachable), 3),
            "end; after 2.528s",
        ),
    ]);
    let down = asked_to_end(retryable().not_aborted(2, NoAnswer::TimedOut), 60);
    let down = down.with(|it| {
        it.world.action.said.condition = Some(Condition {
            kind: CONDITION_WAITING.to_owned(),
            status: "True".to_owned(),
            observed_generation: 0,
            last_transition_time: EPOCH,
            reason: "Refused".to_owned(),
            message: "it did not".to_owned(),
        });
    });
    let plan = world::plan_of(&down.world.config, down.observed());
    let words = words(&plan);
    assert!(
        words.contains("failed PermanentFailure: it broke"),
        "{words}"
    );
}
