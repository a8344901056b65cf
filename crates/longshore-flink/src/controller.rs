//! What the controllers of the three kinds share: how they read, record and ask.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use jiff::Timestamp;
use longshore_core::{AskError, Incarnation, Never, Seen};
use longshore_flink_core::conf::layers::OperatorConfig;
use longshore_kit::{Answers, Applier, Controller};

use crate::{
    caches::Caches,
    error::FlinkError,
    kinds::FlinkKey,
    record::{FlinkPlan, Record},
    rest::{self, RestAnswer, RestQuestion, Transport},
};

/// What a round reads.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    pub(crate) caches: Caches,
    pub(crate) operator: Arc<OperatorConfig>,
}

/// A kind of resources, and what is decided about one.
pub(crate) trait FlinkKind: Debug + Send + Sync + 'static {
    /// A snapshot of all reads of one round.
    type Observed: Send + Sync;

    /// The name of the controller in logs and metrics.
    const NAME: &'static str;

    /// Reads what a decision depends on.
    fn observe(
        reads: &Reads,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> serde_json::Result<Self::Observed>;

    /// Which incarnation of the resource was observed.
    fn incarnation(observed: &Self::Observed) -> Seen<Incarnation>;

    /// Decides. Pure.
    fn decide(observed: &Self::Observed) -> FlinkPlan;
}

/// The controller of a kind.
#[derive(Debug)]
pub(crate) struct KindController<K> {
    reads: Reads,
    transport: Arc<dyn Transport>,
    applier: Applier,
    kind: PhantomData<K>,
}

impl<K> KindController<K> {
    pub(crate) fn new(reads: Reads, transport: Arc<dyn Transport>, applier: Applier) -> Self {
        Self {
            reads,
            transport,
            applier,
            kind: PhantomData,
        }
    }
}

impl<K: FlinkKind> Controller for KindController<K> {
    type Key = FlinkKey;
    type Observed = K::Observed;
    type Status = Record;
    type Effect = Never;
    type Question = RestQuestion;
    type Error = FlinkError;

    fn name(&self) -> &'static str {
        K::NAME
    }

    fn group<'a>(&self, key: &'a FlinkKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> Result<K::Observed, FlinkError> {
        let observed = K::observe(&self.reads, key, now, answers);
        observed.map_err(|source| FlinkError::Unreadable {
            key: key.clone(),
            source,
        })
    }

    fn incarnation(&self, observed: &K::Observed) -> Seen<Incarnation> {
        K::incarnation(observed)
    }

    fn decide(&self, observed: &K::Observed) -> FlinkPlan {
        K::decide(observed)
    }

    async fn persist(&self, key: &FlinkKey, record: &Record) -> Result<(), FlinkError> {
        let Record {
            target,
            seen,
            status,
        } = record;
        Ok(self.applier.write_status(key, target, seen, status).await?)
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
