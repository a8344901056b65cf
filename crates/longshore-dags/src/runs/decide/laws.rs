//! The laws of every controller (style guide 3.6).

use longshore_core::Never;
use longshore_test::laws::{Decider, check_decider};
use proptest::prelude::*;
use serde_json::json;

use super::*;

struct Runs;

impl Decider for Runs {
    type Observed = Observed;
    type Status = Never;
    type Effect = RunEffect;
    type Question = Never;

    fn decide(&self, observed: &Observed) -> Plan<Never, RunEffect> {
        decide_run(observed)
    }

    /// Files and workspace, and the report.
    fn max_actions(&self) -> usize {
        3
    }

    /// The controller reports a run only after it has created its objects, and deletes them only after the run's end.
    fn intent_of(&self, action: &Action<Never, RunEffect>) -> Option<String> {
        match action {
            Action::Delete(delete) => Some(format!("delete {}", delete.target.name)),
            Action::Create(create) => Some(format!("create {}", create.resource.plural)),
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Patch(_)
            | Action::Call(_)
            | Action::Announce(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => None,
        }
    }

    fn is_intended(&self, observed: &Observed, intent: &str) -> bool {
        match observed {
            Observed::Unprepared { .. } => intent.starts_with("create"),
            Observed::Settled => false,
            Observed::Ended { .. } => intent.starts_with("delete"),
        }
    }
}

fn observed() -> impl Strategy<Value = Observed> {
    let annotated = json!({"metadata": {"name": "n", "annotations": {ANNOTATION_RUN: "s/d/r"}}});
    let kinds = [Resource::CONFIG_MAP, Resource::PERSISTENT_VOLUME_CLAIM];
    let wanted = prop::sample::subsequence(kinds.to_vec(), 0..=2);
    let wanted = wanted.prop_map(move |kinds| {
        let objects = kinds.into_iter().map(|kind| (kind, annotated.clone()));
        Observed::Unprepared {
            wanted: objects.collect(),
        }
    });
    let file = |name: u8| ObjectRef {
        resource: Resource::CONFIG_MAP,
        namespace: "default".to_owned(),
        name: name.to_string(),
        uid: Some(format!("uid-{name}")),
    };
    let files = prop::collection::vec(any::<u8>().prop_map(file), 0..2);
    prop_oneof![
        wanted,
        Just(Observed::Settled),
        files.prop_map(|files| Observed::Ended { files }),
    ]
}

#[test]
fn the_decision_about_a_run_keeps_the_laws() {
    assert_eq!(check_decider(&Runs, &observed(), 200), []);
}
