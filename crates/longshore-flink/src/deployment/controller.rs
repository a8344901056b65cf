//! The controller of FlinkDeployments.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{AskError, Incarnation, Never, Seen};
use longshore_flink_core::conf::layers::OperatorConfig;
use longshore_kit::{Answers, Applier, Controller};

use super::{
    decide,
    model::Observed,
    observe::{self, Caches},
};
use crate::{
    error::FlinkError,
    kinds::FlinkKey,
    record::{FlinkPlan, Record},
    rest::{self, RestAnswer, RestQuestion, Transport},
};

/// Decides about FlinkDeployments.
#[derive(Debug)]
pub struct Deployments {
    pub(crate) caches: Caches,
    pub(crate) operator: Arc<OperatorConfig>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) applier: Applier,
}

impl Controller for Deployments {
    type Key = FlinkKey;
    type Observed = Observed;
    type Status = Record;
    type Effect = Never;
    type Question = RestQuestion;
    type Error = FlinkError;

    fn name(&self) -> &'static str {
        "flink.deployments"
    }

    fn group<'a>(&self, key: &'a FlinkKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> Result<Observed, FlinkError> {
        let observed = observe::assemble(&self.caches, &self.operator, key, now, answers);
        observed.map_err(|source| FlinkError::Unreadable {
            key: key.clone(),
            source,
        })
    }

    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        observe::incarnation(observed)
    }

    fn decide(&self, observed: &Observed) -> FlinkPlan {
        decide(observed)
    }

    async fn persist(&self, key: &FlinkKey, record: &Record) -> Result<(), FlinkError> {
        write(&self.applier, key, record).await
    }

    async fn call(&self, _: &FlinkKey, effect: &Never) -> Result<(), FlinkError> {
        match *effect {}
    }

    async fn ask(
        &self,
        _: &FlinkKey,
        question: &RestQuestion,
        _: usize,
    ) -> Result<RestAnswer, AskError> {
        rest::ask(&*self.transport, question).await
    }
}

/// Writes a status.
pub(crate) async fn write(
    applier: &Applier,
    key: &FlinkKey,
    record: &Record,
) -> Result<(), FlinkError> {
    let Record {
        target,
        seen,
        status,
    } = record;
    Ok(applier.write_status(key, target, seen, status).await?)
}
