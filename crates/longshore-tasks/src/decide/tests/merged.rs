//! Changes that are told one by one and written together.

use super::*;

#[test]
fn changes_that_follow_each_other_are_told_one_by_one_and_written_together() {
    let queued = || action().started(Phase::Queued, 0, SUBMITTED);
    let running = || action().started(Phase::Running, 1, "");
    let complete = |it: &mut World| it.outcome = Seen::Present(Outcome::Complete);
    check(&[
        (
            "initializing, just now",
            queued().pod(pulling()),
            "after 1s",
        ),
        (
            "initializing for a moment",
            queued().pod(pulling()).pending(pulling(), 300),
            "after 700ms",
        ),
        (
            "why it waited, and initializing",
            queued()
                .pod(pulling())
                .pending(no_cpu(), 1200)
                .pending(pulling(), 100),
            "report QUEUED.1 of 1; report INITIALIZING.0 of 1; persist Initializing.0 of 1; after 10s",
        ),
        (
            "initializing, then running",
            queued().pod(of(Phase::Running)).pending(pulling(), 300),
            "report INITIALIZING.0 of 1; report RUNNING.0 of 1; persist Running.0 of 1; await",
        ),
        (
            "initializing, then over",
            queued()
                .pod(of(Phase::Success))
                .pending(pulling(), 300)
                .with(complete),
            "report INITIALIZING.0 of 1; report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
        (
            "initializing, then the next attempt",
            queued()
                .pod(user("ImagePullBackOff"))
                .pending(pulling(), 300)
                .with(|it| it.max_attempts = 2),
            "report INITIALIZING.0 of 1; report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "an Event, just now",
            running().pod(of(Phase::Running)).pod_event("event:1", 0),
            "after 1s",
        ),
        (
            "Events within a second",
            running()
                .pod(of(Phase::Running))
                .pod_event("event:1", 1000)
                .pod_event("event:2", 400),
            "report RUNNING.2 of 1 event:1 event:2; persist Running.2 of 1; await",
        ),
        (
            "an Event before it runs",
            queued().pod(of(Phase::Running)).pod_event("event:1", 10),
            "report RUNNING.0 of 1 event:1; persist Running.0 of 1; await",
        ),
        (
            "an Event before it ends",
            running()
                .pod(of(Phase::Success))
                .pod_event("event:1", 10)
                .with(complete),
            "report SUCCEEDED.0 of 1 event:1; persist Success.0 of 1 completed; label; await",
        ),
    ]);
}

#[test]
fn one_status_holds_all_phases_and_where_the_events_ended() {
    let world = action()
        .started(Phase::Queued, 0, SUBMITTED)
        .pod(of(Phase::Running))
        .pending(pulling(), 300)
        .pod_event("event:1", 250);
    let plan = world.plan();
    let Some(Do::Persist(record)) = plan.actions.last() else {
        panic!("{plan:?}");
    };
    let history = record.status.phase_history.iter();
    let history: Vec<&str> = history.map(|entry| entry.phase.as_str()).collect();
    assert_eq!(history, ["Queued", "Initializing", "Executing"]);
    let state = longshore_plugins::PluginState::decode(&record.status.plugin_state).unwrap();
    let last = &world.pod_events[0];
    assert_eq!(state.last_event_created_at, Some(last.created_at));
    assert_eq!(state.last_event_recorded_at, Some(last.recorded_at));
}
