//! The controller of FlinkDeployments.

use jiff::Timestamp;
use longshore_core::{Incarnation, Seen};
use longshore_kit::Answers;

use super::{decide, model::Observed, observe};
use crate::{
    controller::{FlinkKind, Reads},
    kinds::FlinkKey,
    record::FlinkPlan,
    rest::RestQuestion,
};

/// Decides about FlinkDeployments.
#[derive(Debug)]
pub(crate) struct Deployments;

impl FlinkKind for Deployments {
    type Observed = Observed;

    const NAME: &'static str = "flink.deployments";

    fn observe(
        reads: &Reads,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> serde_json::Result<Observed> {
        observe::observe(reads, key, now, answers)
    }

    fn incarnation(observed: &Observed) -> Seen<Incarnation> {
        observe::incarnation(observed)
    }

    fn decide(observed: &Observed) -> FlinkPlan {
        decide(observed)
    }
}
