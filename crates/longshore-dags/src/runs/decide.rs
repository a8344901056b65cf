//! Which shared objects of a run are to be created or removed.

use longshore_api::dags::ANNOTATION_RUN;
use longshore_core::{Action, ChildIdentity, Create, Delete, Never, ObjectRef, Plan, Resource};
use serde_json::Value;

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub(crate) enum Observed {
    /// The run has started, and its objects are not known to exist.
    Unprepared {
        /// The objects that the run needs, with their kind.
        wanted: Vec<(Resource, Value)>,
    },
    /// The run waits, or all its objects exist.
    Settled,
    /// The run is over.
    Ended {
        /// The objects that are deleted with the run.
        files: Vec<ObjectRef>,
    },
}

/// What the controller does besides creating and deleting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEffect {
    /// Report to the scheduler that all objects of the run exist.
    ReportPrepared,
}

/// Decides one round.
pub(crate) fn decide_run(observed: &Observed) -> Plan<Never, RunEffect> {
    match observed {
        Observed::Unprepared { wanted } => {
            let creates = wanted.iter().map(|(resource, object)| {
                let identity = object["metadata"]["annotations"][ANNOTATION_RUN].as_str();
                Action::Create(Create {
                    resource: *resource,
                    object: object.clone(),
                    identity: ChildIdentity::annotation(
                        ANNOTATION_RUN,
                        identity.unwrap_or_default(),
                    ),
                })
            });
            Plan::of(
                creates
                    .chain([Action::Call(RunEffect::ReportPrepared)])
                    .collect(),
            )
        }
        Observed::Settled => Plan::await_change(),
        Observed::Ended { files } => Plan::of(
            files
                .iter()
                .map(|target| {
                    Action::Delete(Delete {
                        target: target.clone(),
                        grace_period_seconds: None,
                        resource_version: None,
                        waits_for_dependents: false,
                    })
                })
                .collect(),
        ),
    }
}

#[cfg(test)]
mod laws;
