//! What holds an action is said in time, in whose words, and no longer than it is true.

use jiff::SignedDuration;
use longshore_api::flyte::{CONDITION_WAITING, Condition};
use longshore_kit::WaitsFor;

use super::*;
use crate::model::{Said, StatusForm, Unanswered};

fn ago(seconds: i64) -> Timestamp {
    EPOCH - SignedDuration::from_secs(seconds)
}

impl World {
    /// This question has had no answer for so many seconds.
    fn unanswered(self, kind: &'static str, seconds: i64, failure: Option<&str>) -> Self {
        self.with(|it| {
            it.action.unanswered.push(Unanswered {
                kind,
                whom: "the store of s3://b/in".to_owned(),
                since: ago(seconds),
                failure: failure.map(str::to_owned),
                waits_for: WaitsFor::Answer,
            });
        })
    }

    /// This question waits for something else than its answer.
    fn unsent(self, kind: &'static str, seconds: i64, waits_for: WaitsFor) -> Self {
        let mut world = self.unanswered(kind, seconds, None);
        world.action.unanswered[0].waits_for = waits_for;
        world
    }

    /// The status says this since so many seconds, by this process where `is_ours`.
    fn said(self, message: &str, seconds: i64, is_ours: bool) -> Self {
        self.with(|it| {
            it.action.said = Said {
                condition: Some(Condition {
                    kind: CONDITION_WAITING.to_owned(),
                    status: "True".to_owned(),
                    observed_generation: 0,
                    last_transition_time: ago(seconds),
                    reason: "NotAnswered".to_owned(),
                    message: message.to_owned(),
                }),
                at: is_ours.then(|| ago(seconds)),
            };
        })
    }
}

/// A plan in words, with what it writes of what holds the action.
fn said(world: &World) -> String {
    let plan = world.plan();
    let mut said = plan.actions.iter().filter_map(|step| {
        let Do::Persist(record) = step else {
            return None;
        };
        let waiting = record.status.condition(CONDITION_WAITING)?;
        Some(format!("{}: {}; ", waiting.reason, waiting.message))
    });
    let said = said.next().unwrap_or_default();
    format!("{said}{}", words(&plan))
}

fn waiting() -> World {
    action().with(|it| it.inputs = Some(Seen::Absent))
}

#[test]
fn a_foreign_system_that_does_not_answer_is_named_within_ten_seconds() {
    let silent = |seconds| waiting().unanswered("store_inputs", seconds, None);
    for (name, world, expected) in [
        ("at first", silent(0), "read inputs; after 5s"),
        ("soon", silent(4), "read inputs; after 1s"),
        (
            "then",
            silent(5),
            "NotAnswered: the store of s3://b/in has not answered for 5 s; persist .0 of 0 (nothing started); \
             warn NotAnswered; after 0ns",
        ),
        (
            "said",
            silent(6).said("the store of s3://b/in has not answered for 5 s", 1, true),
            "read inputs; after 29s",
        ),
        (
            "said long ago",
            silent(35).said("the store of s3://b/in has not answered for 5 s", 30, true),
            "NotAnswered: the store of s3://b/in has not answered for 35 s; persist .0 of 0 (nothing started); \
             after 0ns",
        ),
        (
            "and less and less often",
            silent(600).said(
                "the store of s3://b/in has not answered for 400 s",
                200,
                true,
            ),
            "read inputs; after 100s",
        ),
        (
            "said by another process",
            silent(1).said("the store of s3://b/in has not answered for 50 s", 9, false),
            "read inputs; after 4s",
        ),
        (
            "refused",
            waiting().unanswered("store_inputs", 5, Some("AccessDenied")),
            "Refused: AccessDenied; persist .0 of 0 (nothing started); warn Refused; after 0ns",
        ),
        (
            "not sent, because others are",
            waiting().unsent("store_inputs", 5, WaitsFor::Turn),
            "NotSent: its request to the store of s3://b/in has waited for its turn for 5 s; \
             persist .0 of 0 (nothing started); warn NotSent; after 0ns",
        ),
        (
            "not sent, because of a rate limit",
            waiting().unsent("store_inputs", 5, WaitsFor::Rate("webApi.writeRateLimiter")),
            "NotSent: its request to the store of s3://b/in has waited for 5 s for webApi.writeRateLimiter; \
             persist .0 of 0 (nothing started); warn NotSent; after 0ns",
        ),
        (
            "refused, as its status says",
            waiting()
                .unanswered("store_inputs", 50, Some("AccessDenied"))
                .said("AccessDenied", 45, true),
            "read inputs; await",
        ),
        (
            "an answer that nothing waits for",
            waiting().unanswered("catalog_get", 50, Some("down")),
            "read inputs; await",
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn what_runs_is_not_held_by_its_cache_and_what_is_over_is_not_said() {
    let running = || {
        let started = action().started(Phase::Running, 0, "");
        started.pod(of(Phase::Running))
    };
    for (name, world, expected) in [
        (
            "it runs",
            running().unanswered("catalog_reserve", 50, None),
            "await",
        ),
        (
            "its report is not taken",
            running().unanswered("run_service_report", 50, None),
            "NotAnswered: the store of s3://b/in has not answered for 50 s; persist Running.0 of 1; \
             warn NotAnswered; after 0ns",
        ),
        (
            "over",
            running().said("any", 3, true),
            "persist Running.0 of 1; await",
        ),
        (
            "over, with another status",
            action()
                .started(Phase::Queued, 0, "")
                .pod(of(Phase::Running))
                .said("any", 3, true),
            "report RUNNING.0 of 1; persist Running.0 of 1; await",
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn an_api_server_that_makes_no_resource_is_quoted_before_the_next_try() {
    let why = "failed calling webhook \"w\": connection refused";
    let failed = |seconds| {
        let blocked = CreateFailure::Failed(why.to_owned());
        action().with(|it| {
            it.now = EPOCH + SignedDuration::from_secs(seconds);
            it.blocked = Some(blocked);
        })
    };
    let again = "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after";
    let words = format!("its resource is not created: {why}");
    for (world, expected) in [
        (failed(1), format!("{again} 4s")),
        (
            failed(5),
            format!("Refused: {words}; persist .0 of 0 (nothing started); warn Refused; after 0ns"),
        ),
        (failed(6).said(&words, 0, true), format!("{again} 10s")),
    ] {
        assert_eq!(said(&world), expected);
    }
}

#[test]
fn words_that_are_written_in_short_are_not_written_again() {
    let long = "no ".repeat(4000);
    let kept = StatusForm::Short.text(long.as_str());
    let refused = |form| {
        let world = waiting().unanswered("store_inputs", 50, Some(&long));
        world.with(|it| it.action.form = form)
    };
    let short = refused(StatusForm::Short);
    assert_eq!(
        said(&short),
        format!(
            "Refused: {kept}; persist .0 of 0 (nothing started); warn StatusTooLarge; warn Refused; after 0ns"
        )
    );
    assert_eq!(said(&short.said(&kept, 45, true)), "read inputs; await");
    // Not in a hot loop.
    let unwritable = refused(StatusForm::Unwritable);
    assert_eq!(said(&unwritable), "read inputs; await");
}
