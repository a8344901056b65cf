//! A status that the API server refuses as too large is written in short, or not at all.

use longshore_core::Asked;

use super::*;
use crate::model::{InForm, StatusForm};

fn in_form(form: StatusForm, world: World) -> World {
    world.with(|it| it.action.form = form)
}

fn long() -> String {
    "why ".repeat(4000)
}

#[test]
fn an_event_says_that_a_status_is_written_in_short_or_not_at_all() {
    for (name, world, short, unwritable) in [
        (
            "new",
            action(),
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; persist Queued.0 of 1; warn StatusTooLarge; after 10s",
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; warn StatusTooLarge; persist Queued.0 of 1; after 10s",
        ),
        (
            "failed",
            action().started(Phase::Running, 1, "").pod(user("Error")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; \
             warn StatusTooLarge; label; await",
            "report FAILED.0 of 1; warn StatusTooLarge; \
             persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
        (
            "nothing to write",
            action().with(|it| it.action.has_finalizer = false),
            "finalizer; after 0ns",
            "finalizer; after 0ns",
        ),
        (
            "deleted",
            action().deleting(),
            "report ABORTED.0 of 1; release r-a; await",
            "report ABORTED.0 of 1; release r-a; await",
        ),
    ] {
        for (of, expected) in [
            (StatusForm::Short, short),
            (StatusForm::Unwritable, unwritable),
        ] {
            let plan = in_form(of, world.clone()).plan();
            assert_eq!(words(&plan), expected, "{name}: {of:?}");
        }
    }
}

#[test]
fn what_is_written_in_short_is_no_news() {
    let kept = StatusForm::Short.text(long());
    let running = |form| {
        let world = action()
            .started(Phase::Running, 1, &kept)
            .pod(PhaseInfo::of(Phase::Running, long()));
        in_form(form, world).plan()
    };
    assert_eq!(words(&running(StatusForm::Short)), "await");
    assert_ne!(words(&running(StatusForm::Full)), "await");
}

#[test]
fn an_action_goes_though_no_status_says_what_the_run_service_knows() {
    let going = in_form(StatusForm::Unwritable, action().deleting());
    let mut observed = going.observed();
    let Seen::Present(it) = &mut observed.action else {
        panic!("a world has an action");
    };
    let mut next = it.status.clone();
    status::enter(&mut next, &PhaseInfo::of(Phase::Queued, long()), EPOCH);
    it.reported = Asked::Answered {
        at: EPOCH,
        answer: Arc::new(crate::questions::Report {
            events: Vec::new(),
            upon: it.status.clone(),
            status: Some(next),
        }),
    };
    let plan = decide(&Policy::default(), &going.config, &observed);
    assert_eq!(words(&plan), "use run_service_report; after 0ns");
}
