//! The controller of pods that take part no more, and whose gate is not open yet.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Never, Plan};
use longshore_kit::{Answers, Cache, Controller, RawObject};

use crate::{
    lifecycle::released::{Observed, decide},
    model::PodKey,
    pods::{PodError, read, try_map},
};

/// Opens the gates of pods with the mark.
#[derive(Debug)]
pub(crate) struct Released {
    /// The pods that have it.
    pub(crate) pods: Arc<Cache<RawObject>>,
}

impl Controller for Released {
    type Key = PodKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = Never;
    type Question = Never;
    type Error = PodError;

    fn name(&self) -> &'static str {
        "podops.released"
    }

    fn group<'a>(&self, key: &'a PodKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &PodKey,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, PodError> {
        let pod = self.pods.get(&key.namespace, &key.name);
        let pod = try_map(pod, |object| read(key, &object))?;
        Ok(Observed { now, pod })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, Never> {
        decide(observed)
    }

    async fn persist(&self, _: &PodKey, status: &Never) -> Result<(), PodError> {
        match *status {}
    }

    async fn call(&self, _: &PodKey, effect: &Never) -> Result<(), PodError> {
        match *effect {}
    }
}
