//! The shared objects of one run: created before its first pod, and its files removed after its end.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use longshore_core::{Incarnation, Never, Plan, Seen};
use longshore_kit::{Answers, Controller, Refusal};
use longshore_store::RunKey;

use super::{
    decide::{Observed, RunEffect, decide_run},
    observe::{self, RunsError},
};
use crate::{base::shared::Shared, scheduler::facts::Fact};

/// Keeps the shared objects of runs.
pub(crate) struct Runs {
    shared: Arc<Shared>,
    client: Client,
}

impl Runs {
    pub(crate) fn new(shared: Arc<Shared>, client: Client) -> Self {
        Self { shared, client }
    }
}

impl Controller for Runs {
    type Key = RunKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = RunEffect;
    type Question = Never;
    type Error = RunsError;

    fn name(&self) -> &'static str {
        "dags.runs"
    }

    async fn observe(
        &self,
        key: &RunKey,
        _now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, RunsError> {
        let loaded = observe::load(&self.shared, &self.client, key).await?;
        Ok(observe::assemble(&loaded, key, &self.shared.pod_config))
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, RunEffect> {
        decide_run(observed)
    }

    async fn persist(&self, _key: &RunKey, status: &Never) -> Result<(), RunsError> {
        match *status {}
    }

    async fn call(&self, key: &RunKey, effect: &RunEffect) -> Result<(), RunsError> {
        match effect {
            RunEffect::ReportPrepared => {
                self.shared.inbox.push(Fact::RunPrepared(key.clone()));
                Ok(())
            }
        }
    }

    fn refused(&self, key: &RunKey, _: &Seen<Incarnation>, refusal: &Refusal) {
        if refusal.create.is_some() {
            self.shared.inbox.push(Fact::RunPrepareRefused {
                run: key.clone(),
                message: refusal.message.clone(),
            });
        }
    }
}
