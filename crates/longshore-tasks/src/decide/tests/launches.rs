//! What the run service is told of several launches of one attempt.

use super::*;

/// The events of the launch after so many system failures: attempt, phase and version of each.
fn events(n_failures: u32) -> Vec<(u32, String, u32)> {
    let launch = || action().with(|it| it.action.status.system_failures = n_failures);
    let started = |phase| {
        let world = action().started(phase, 0, "");
        world.with(|it| it.action.status.system_failures = n_failures)
    };
    let worlds = [
        launch(),
        started(Phase::Queued).pod(of(Phase::Running)),
        started(Phase::Running).pod(of(Phase::Success)),
    ];
    let plans = worlds.iter().map(World::plan);
    let told = plans.flat_map(|plan| {
        let reports = plan.actions.iter().filter_map(world::report_of);
        let events = reports.flat_map(|report| report.events.clone());
        events.collect::<Vec<_>>()
    });
    told.map(|event| {
        let phase = event.phase.as_str_name().to_owned();
        (event.attempt, phase, event.version)
    })
    .collect()
}

#[test]
fn no_two_launches_of_an_attempt_have_an_event_in_common() {
    let (first, second, third) = (events(0), events(1), events(2));
    assert_eq!(first.len(), 3);
    for (earlier, later) in [(&first, &second), (&second, &third)] {
        for ((attempt, phase, before), (of, to, after)) in earlier.iter().zip(later) {
            assert_eq!((attempt, phase), (of, to));
            assert!(before < after, "{phase}: {before} is before {after}");
        }
    }
}
