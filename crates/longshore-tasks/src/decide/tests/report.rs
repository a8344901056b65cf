//! The run service is told first; then the status that it was told of is written.

use longshore_core::{Asked, NoAnswer};

use super::*;
use crate::questions::Report;

/// What is decided where this is known of the report.
fn decided(world: &World, reported: Asked<Arc<Report>>) -> ActionPlan {
    let mut observed = world.observed();
    if let Seen::Present(action) = &mut observed.action {
        action.reported = reported;
    }
    decide(&Policy::default(), &world.config, &observed)
}

/// The report of what is decided first.
fn told(world: &World) -> Arc<Report> {
    let plan = decided(world, Asked::NotAsked);
    let told = plan.actions.iter().find_map(world::report_of);
    Arc::clone(told.unwrap())
}

fn acknowledged(report: Arc<Report>) -> Asked<Arc<Report>> {
    Asked::Answered {
        at: EPOCH,
        answer: report,
    }
}

#[test]
fn the_status_is_written_once_the_run_service_has_acknowledged() {
    let failed = Asked::Failed {
        at: EPOCH,
        why: NoAnswer::Unreachable,
        message: "nobody answers".to_owned(),
    };
    let new = action();
    for (reported, expected) in [
        (
            Asked::NotAsked,
            "create r-a-0 as u/1/0; report QUEUED.0 of 1; after 5.528s",
        ),
        (Asked::UnderWay { since: EPOCH }, "after 10s"),
        (
            failed,
            "create r-a-0 as u/1/0; warn ActionEventPublishFailed; report QUEUED.0 of 1; after 5.528s",
        ),
        (
            acknowledged(told(&new)),
            "create r-a-0 as u/1/0; persist Queued.0 of 1; use run_service_report; after 10s",
        ),
    ] {
        assert_eq!(
            words(&decided(&new, reported.clone())),
            expected,
            "{reported:?}"
        );
    }
}

#[test]
fn nothing_waits_for_events_that_nobody_receives() {
    let unheard = |world: World| world.with(|it| it.action.has_event_receiver = false);
    for (world, expected) in [
        (
            action(),
            "create r-a-0 as u/1/0; persist Queued.0 of 1; after 10s",
        ),
        (action().deleting(), "release r-a; await"),
    ] {
        let plan = decided(&unheard(world), Asked::NotAsked);
        assert_eq!(words(&plan), expected);
    }
}

#[test]
fn what_was_acknowledged_is_written_as_it_was_told_whatever_has_changed_since() {
    let new = action();
    let report = told(&new);
    let reported = || acknowledged(Arc::clone(&report));
    for (meanwhile, expected) in [
        (
            new.clone()
                .with(|it| it.now = EPOCH + Duration::from_secs(60)),
            "create r-a-0 as u/1/0; persist Queued.0 of 1; use run_service_report; after 10s",
        ),
        (
            new.clone().pod(of(Phase::Running)),
            "persist Queued.0 of 1; use run_service_report; after 0ns",
        ),
        (
            new.clone().with(|it| it.action.status.system_failures = 1),
            "create r-a-0 as u/1/1; report QUEUED.0+1 of 1; after 5.528s",
        ),
    ] {
        let plan = decided(&meanwhile, reported());
        assert_eq!(words(&plan), expected);
        for step in &plan.actions {
            if let Do::Persist(record) = step {
                assert_eq!(Some(&record.status), report.status.as_ref());
            }
        }
    }
}

#[test]
fn an_action_goes_after_its_last_event_was_acknowledged() {
    let going = action().deleting();
    let before = told(&action());
    let under_way = || Asked::UnderWay { since: EPOCH };
    let runs = || going.clone().pod(of(Phase::Running));
    for (world, reported, expected) in [
        (
            going.clone(),
            Asked::NotAsked,
            "report ABORTED.0 of 1; after 5.528s",
        ),
        (going.clone(), under_way(), "await"),
        (runs(), under_way(), "delete r-a-0; after 10s"),
        (
            going.clone(),
            acknowledged(told(&going)),
            "release r-a; await",
        ),
        // Or the run service would know of two ends.
        (
            going.clone(),
            acknowledged(before),
            "persist Queued.0 of 1; use run_service_report; after 0ns",
        ),
    ] {
        let plan = decided(&world, reported.clone());
        assert_eq!(words(&plan), expected, "{reported:?}");
    }
}
