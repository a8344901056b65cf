//! Connectors that have not listed their task types yet: that none takes a task is no fact before they have.

use jiff::SignedDuration;
use longshore_api::flyte::CONDITION_WAITING;

use super::*;

const WORDS: &str = "connector c may take it, and has not listed its task types yet: starting";

/// It has waited for so many seconds, as this process remembers.
fn waiting(remote: Remote, seconds: Option<i64>) -> Remote {
    remote.with(|it| {
        it.unlisted = Some(WORDS);
        let since = seconds.map(|seconds| EPOCH - SignedDuration::from_secs(seconds));
        it.world.action.unlisted_since = since;
    })
}

#[test]
fn an_action_waits_for_the_lists_of_connectors_whether_its_job_runs_or_not() {
    let noted = "note that it waits for a list; after 1s";
    let lost = || {
        failing(PhaseInfo::permanent(
            ErrorKind::User,
            "AutoRefreshCacheFailed",
            "no",
        ))
    };
    check(vec![
        ("new", waiting(remote(Phase::Undefined), None), noted),
        (
            "new, and it is remembered",
            waiting(remote(Phase::Undefined), Some(0)),
            "after 5.528s",
        ),
        (
            "its job runs",
            waiting(after(Phase::Running, Phase::Undefined), None),
            noted,
        ),
        (
            "whatever is said of its job",
            waiting(lost(), Some(1)),
            "after 4.528s",
        ),
        (
            "it holds its reservation meanwhile",
            waiting(after(Phase::Running, Phase::Undefined), Some(1))
                .cached(true, |it| it.held = held_by("flyte/r-a", 11)),
            "reserve for 10s; after 4.528s",
        ),
        (
            "listed",
            remote(Phase::Queued).with(|it| it.world.action.unlisted_since = Some(EPOCH)),
            "note that it waits for no list; report QUEUED.0 of 1; persist Queued.0 of 1; after 30s",
        ),
        (
            "deleted",
            waiting(remote(Phase::Undefined), Some(1))
                .with(|it| it.world.action.is_deleting = true),
            "report ABORTED.0 of 1; release r-a; after 4.528s",
        ),
    ]);
}

#[test]
fn the_connectors_that_an_action_waits_for_are_named() {
    let held = waiting(remote(Phase::Undefined), Some(6));
    let plan = world::plan_of(&held.world.config, held.observed());
    assert_eq!(
        words(&plan),
        "persist .0 of 0 (nothing started); warn NotSent; after 0ns"
    );
    let Do::Persist(record) = &plan.actions[0] else {
        panic!("{plan:?}");
    };
    let said = record.status.condition(CONDITION_WAITING).unwrap();
    assert_eq!(
        (said.reason.as_str(), said.message.as_str()),
        ("NotSent", WORDS)
    );
}
