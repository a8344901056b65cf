//! Jobs that a connector has begun: they are on record first, and an abort ends them at once.

use longshore_core::Asked;

use super::*;
use crate::questions::fingerprint;

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
