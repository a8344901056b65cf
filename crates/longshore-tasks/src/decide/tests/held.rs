//! What holds an action is said in time, in whose words, and no longer than it is true.

use jiff::SignedDuration;
use longshore_api::flyte::{CONDITION_WAITING, Condition};
use longshore_core::Asked;
use longshore_kit::{Change, NotDone, Verb, WaitsFor};

use super::*;
use crate::model::{InForm, Refused, Said, StatusForm, Unanswered};

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
                ..Said::default()
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
    let since = |at: &str| format!("no answer from the store of s3://b/in since 2025-12-31T{at}Z");
    let (other, written) = ("another", "persist .0 of 0 (nothing started)");
    for (name, world, expected) in [
        // Its uid says by how much later than others.
        (
            "at first",
            silent(0),
            "read inputs; after 5.528s".to_owned(),
        ),
        ("soon", silent(5), "read inputs; after 528ms".to_owned()),
        (
            "then",
            silent(6),
            format!(
                "NotAnswered: {}; {written}; warn NotAnswered; after 0ns",
                since("23:59:54")
            ),
        ),
        (
            "then, while others say so",
            silent(6).with(|it| it.action.said.is_crowded = true),
            "read inputs; after 5.528s".to_owned(),
        ),
        (
            "said: it stays true",
            silent(600).said(&since("23:50:00"), 590, true),
            "read inputs; await".to_owned(),
        ),
        (
            "something else was said",
            silent(6).said(other, 1, true),
            "read inputs; after 29s".to_owned(),
        ),
        (
            "something else was said long ago",
            silent(35).said(other, 30, true),
            format!("NotAnswered: {}; {written}; after 0ns", since("23:59:25")),
        ),
        (
            "and less and less often",
            silent(600).said(other, 200, true),
            "read inputs; after 100s".to_owned(),
        ),
        (
            "said by another process",
            silent(1).said(other, 9, false),
            "read inputs; after 4.528s".to_owned(),
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn a_request_that_is_refused_or_waits_for_its_turn_is_said_in_these_words() {
    let written = "persist .0 of 0 (nothing started)";
    for (name, world, expected) in [
        (
            "refused",
            waiting().unanswered("store_inputs", 6, Some("AccessDenied")),
            format!("Refused: AccessDenied; {written}; warn Refused; after 0ns"),
        ),
        (
            "not sent, because others are",
            waiting().unsent("store_inputs", 6, WaitsFor::Turn),
            format!(
                "NotSent: its request to the store of s3://b/in waits for its turn since 2025-12-31T23:59:54Z; \
                 {written}; warn NotSent; after 0ns"
            ),
        ),
        (
            "not sent, because of a rate limit",
            waiting().unsent("store_inputs", 6, WaitsFor::Rate("webApi.writeRateLimiter")),
            format!(
                "NotSent: its request to the store of s3://b/in waits for webApi.writeRateLimiter since \
                 2025-12-31T23:59:54Z; {written}; warn NotSent; after 0ns"
            ),
        ),
        (
            "refused, as its status says",
            waiting()
                .unanswered("store_inputs", 50, Some("AccessDenied"))
                .said("AccessDenied", 45, true),
            "read inputs; await".to_owned(),
        ),
        (
            "an answer that nothing waits for",
            waiting().unanswered("catalog_get", 50, Some("down")),
            "read inputs; await".to_owned(),
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn an_attempt_that_has_ended_is_held_by_the_store_that_refuses_to_say_what_it_left_behind() {
    // Its phase, which has not changed, quotes the store as well.
    let told = "the attempt has ended, and waits for what it left behind: AccessDenied";
    let refused = |seconds, why: &str| {
        let world = action().started(Phase::Running, 2, told);
        let world = world.pod(of(Phase::Success));
        let world = world.unanswered("store_outcome", seconds, Some(why));
        let outcome = Seen::unknown(UnknownCause::Unreachable, why);
        world.with(|it| it.outcome = outcome)
    };
    for (name, world, expected) in [
        ("at first", refused(1, "AccessDenied"), "after 1s"),
        (
            "then",
            refused(6, "AccessDenied"),
            "Refused: AccessDenied; persist Running.2 of 1; warn Refused; after 0ns",
        ),
        (
            "said",
            refused(50, "AccessDenied").said("AccessDenied", 44, true),
            "after 1s",
        ),
        (
            "in other words, long after the first ones",
            refused(50, "SlowDown").said("AccessDenied", 44, true),
            "Refused: SlowDown; persist Running.2 of 1; after 0ns",
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
            "NotAnswered: no answer from the store of s3://b/in since 2025-12-31T23:59:10Z; persist Running.0 of 1; \
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

/// Refused for so many seconds.
fn refused(seconds: i64, is_final: bool) -> Refused {
    let why = "denied".to_owned();
    Refused {
        since: ago(seconds),
        why: NotDone { why, is_final },
    }
}

impl World {
    /// The API server does not make this change of the action, or of its pod.
    fn unchanged(self, verb: Verb, refused: Refused) -> Self {
        self.with(|it| {
            let action = it.action.target.clone();
            let target = match verb {
                Verb::Delete => ObjectRef {
                    resource: Resource::POD,
                    name: "r-a-0".to_owned(),
                    uid: Some("pod".to_owned()),
                    ..action
                },
                Verb::Patch | Verb::EnsureFinalizer | Verb::RemoveFinalizer => action,
            };
            it.action.undone.change = Some((Change { verb, target }, refused));
        })
    }

    /// The API server takes no status, and an Event has said so before so many seconds.
    fn unwritten(self, refused: Refused, told: Option<i64>) -> Self {
        self.with(|it| {
            it.action.undone.status = Some(refused);
            it.action.undone.told_at = told.map(ago);
        })
    }
}

/// What is decided once the run service has acknowledged the events.
fn acknowledged(world: &World) -> ActionPlan {
    let policy = Policy::default();
    let mut observed = world.observed();
    let first = of_observed(&policy, &world.config, &observed);
    let told = first.actions.iter().find_map(world::report_of);
    if let (Some(told), Seen::Present(action)) = (told, &mut observed.action) {
        action.reported = Asked::Answered {
            at: EPOCH,
            answer: Arc::clone(told),
        };
    }
    of_observed(&policy, &world.config, &observed)
}

#[test]
fn a_change_that_the_api_server_does_not_make_is_said_before_it_is_tried_again() {
    let new = || action().with(|it| it.action.has_finalizer = false);
    let stopping = || action().started(Phase::Running, 1, "").deleting();
    let running = || stopping().pod(of(Phase::Running));
    let not_added = "the finalizer of TaskAction flyte/r-a is not added: denied";
    for (name, world, expected) in [
        (
            "a finalizer, for a moment",
            new().unchanged(Verb::EnsureFinalizer, refused(1, false)),
            "finalizer; after 0ns",
        ),
        (
            "a finalizer",
            new().unchanged(Verb::EnsureFinalizer, refused(5, false)),
            "Refused: the finalizer of TaskAction flyte/r-a is not added: denied; \
             persist .0 of 0 (nothing started); warn Refused; after 0ns",
        ),
        (
            "a finalizer, and said",
            new()
                .unchanged(Verb::EnsureFinalizer, refused(6, false))
                .said(not_added, 1, true),
            "finalizer; after 0ns",
        ),
        (
            "a delete, for good",
            running().unchanged(Verb::Delete, refused(0, true)),
            "Refused: Pod flyte/r-a-0 is not deleted: denied; persist Running.1 of 1; warn Refused; \
             after 0ns",
        ),
        (
            "a delete that is done meanwhile",
            stopping().unchanged(Verb::Delete, refused(60, true)),
            "report ABORTED.0 of 1; release r-a; await",
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn where_no_status_is_taken_an_event_says_it() {
    let queued = "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; after";
    let told = "note that it is told; warn";
    let silent = || waiting().unanswered("store_inputs", 60, None);
    for (name, world, expected) in [
        (
            "said",
            action().unwritten(refused(20, false), Some(15)),
            format!("{queued} 10s"),
        ),
        (
            "something else",
            silent().unwritten(refused(55, false), None),
            format!("{told} NotAnswered; read inputs; await"),
        ),
        (
            "something else, and said",
            silent().unwritten(refused(55, false), Some(10)),
            "read inputs; after 20s".to_owned(),
        ),
        (
            "something else, said long ago: whether a status is taken now is tried",
            silent().unwritten(refused(55, false), Some(30)),
            format!(
                "NotAnswered: no answer from the store of s3://b/in since 2025-12-31T23:59:00Z; {told} NotAnswered; \
                 persist .0 of 0 (nothing started); after 0ns"
            ),
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn a_status_that_is_not_taken_is_said_with_the_write_that_is_tried_again() {
    let queued = action().started(Phase::Queued, 0, "");
    let queued = queued.pod(of(Phase::Running));
    for (name, refused, told, expected) in [
        ("for a moment", refused(1, false), None, None),
        (
            "then",
            refused(5, false),
            None,
            Some("its status is not written: denied"),
        ),
        (
            "for good",
            refused(0, true),
            None,
            Some("its status is not written: denied"),
        ),
        ("said", refused(20, false), Some(15), None),
        (
            "said long ago",
            refused(40, false),
            Some(30),
            Some("its status is not written: denied"),
        ),
    ] {
        let plan = acknowledged(&queued.clone().unwritten(refused, told));
        let said = plan.actions.iter().find_map(|step| {
            if let Do::Announce(announcement) = step {
                Some(announcement.note.as_str())
            } else {
                None
            }
        });
        assert_eq!(said, expected, "{name}");
        let is_record = |step: &Step| matches!(step, Do::Persist(_));
        assert!(plan.actions.iter().any(is_record), "{name}");
    }
}

#[test]
fn what_cannot_be_seen_is_said_and_nothing_is_done() {
    let unseen = |seconds: Option<i64>| {
        let running = action().started(Phase::Running, 0, "");
        running.with(|it| {
            it.action.children.current = Seen::unknown(UnknownCause::Forbidden, "get: denied");
            it.action.undone.unread_since = seconds.map(ago);
        })
    };
    let words = "what it has made is not seen: get: denied";
    for (name, world, expected) in [
        (
            "at first",
            unseen(None),
            "note that it is not seen; after 1s".to_owned(),
        ),
        ("for a moment", unseen(Some(1)), "after 1s".to_owned()),
        (
            "then",
            unseen(Some(5)),
            format!("NotSeen: {words}; persist Running.0 of 1; warn NotSeen; after 0ns"),
        ),
        (
            "said",
            unseen(Some(6)).said(words, 1, true),
            "after 1s".to_owned(),
        ),
        (
            "where no status is taken",
            unseen(Some(6)).unwritten(refused(3, false), None),
            "note that it is told; warn NotSeen; after 1s".to_owned(),
        ),
        (
            "seen again",
            unseen(Some(6)).pod(of(Phase::Running)).said(words, 1, true),
            "note that it is seen; persist Running.0 of 1; await".to_owned(),
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}

#[test]
fn a_name_that_is_held_by_what_is_being_deleted_is_said_with_its_finalizers() {
    // Its grace period began 10 s ago.
    let held = |launch: &str, finalizers: Value| {
        let launch = launch.to_owned();
        action().pod_of(of(Phase::Undefined), move |pod| {
            let metadata = &mut pod["metadata"];
            metadata["annotations"][ANNOTATION_LAUNCH] = launch.into();
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:20Z");
            metadata["deletionGracePeriodSeconds"] = json!(30);
            metadata["finalizers"] = finalizers;
        })
    };
    let words = "Pod flyte/r-a-0 has the name of its resource and is being deleted";
    let written = "persist .0 of 0 (nothing started); warn NameTaken; after 0ns";
    for (name, world, expected) in [
        (
            "of an earlier action",
            held("v/1/0", json!(["example.test/a", "example.test/b"])),
            format!(
                "NameTaken: {words}; its finalizers: example.test/a, example.test/b; {written}"
            ),
        ),
        (
            "of the launch before",
            held("u/1/5", json!([])),
            format!("NameTaken: {words}; {written}"),
        ),
        (
            "of an earlier action, said",
            held("v/1/0", json!([])).said(words, 1, true),
            "after 1s".to_owned(),
        ),
        (
            "for a moment",
            held("v/1/0", json!([])).with(|it| {
                let object = Arc::make_mut(&mut it.action.object);
                object["metadata"]["creationTimestamp"] = json!("2025-12-31T23:59:58Z");
            }),
            "after 1s".to_owned(),
        ),
    ] {
        assert_eq!(said(&world), expected, "{name}");
    }
}
