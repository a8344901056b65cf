//! Every listed transition can be taken. (That no other one is taken, each decision in the tests of this crate asserts.)

use longshore_api::flyte::{REASON_INVALID_SPEC, REASON_PAUSED, REASON_PLUGIN_NOT_FOUND};
use longshore_plugins::PluginState;

use super::{
    cached::{CacheFixture, uncached},
    world::plan_of,
    *,
};
use crate::{
    status::progress,
    transitions::{TRANSITIONS, recorder},
};
use bytes::Bytes;

/// An action without a status, and one in each phase that something follows.
fn begun() -> Vec<World> {
    let phases = [
        Phase::Queued,
        Phase::Initializing,
        Phase::Running,
        Phase::RetryableFailure,
    ];
    let begun = phases.map(|phase| action().started(phase, 0, "before"));
    begun.into_iter().chain([action()]).collect()
}

/// The launch is over, and nothing of it is left.
fn unlaunched(world: World) -> World {
    world.with(|it| {
        it.state = Ok(PluginState::default());
        it.action.status.plugin_state.clear();
    })
}

fn invalid(world: &World, reason: &'static str) -> ActionPlan {
    let mut observed = world.observed();
    if let Seen::Present(action) = &mut observed.action {
        action.work = Work::Invalid(Invalid {
            reason,
            message: "wrong".to_owned(),
        });
    }
    plan_of(&world.config, observed)
}

#[test]
fn every_listed_transition_is_taken() {
    for world in begun() {
        for phase in Phase::ALL {
            // It is written once it has waited for what may follow at once.
            let pending = world.clone().pending(of(phase), 2_000);
            pending.pod(of(phase)).plan();
        }
        let again = |it: &mut World| it.max_attempts = 9;
        let failed = world.clone().with(again).pod(user("Failed"));
        failed.plan();
        let too_often = |it: &mut World| it.action.status.system_failures = 99;
        world.clone().with(too_often).pod(system("Gone")).plan();
        let next = unlaunched(world.clone());
        next.plan();
        let refused = next
            .clone()
            .with(|it| it.builds = Err("BadTaskSpecification"));
        refused.plan();
        let hit = CacheFixture {
            outputs: Seen::Present(Bytes::from_static(b"o")),
            is_copied: true,
            ..uncached(false)
        };
        next.with(|it| it.cache = hit.cache()).plan();
        for reason in [REASON_INVALID_SPEC, REASON_PLUGIN_NOT_FOUND] {
            invalid(&world, reason);
        }
    }
    for is_paused in [false, true] {
        let pause = |action: &mut Action| {
            if is_paused {
                progress(&mut action.status, REASON_PAUSED, "", EPOCH);
            }
        };
        condition(0, pause);
        condition(3600, pause);
        condition(0, |action| {
            pause(action);
            action.status.signal_value = vec![1];
        });
        condition(0, |action| {
            pause(action);
            action.spec.condition_spec.clear();
        });
    }
    let untaken = recorder::untaken();
    let all = TRANSITIONS.len();
    assert!(
        untaken.is_empty(),
        "{} of {all} never taken: {untaken:#?}",
        untaken.len()
    );
}
