//! Sends the questions of plans ([`TaskQuestion`]) to stores, the catalog, connectors and the run service. The kit calls
//! this beside the rounds.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;
use longshore_connect::Code;
use longshore_core::{AskError, Incarnation, NoAnswer, error::chain};
use longshore_kit::Notes;
use longshore_object_store::DataError;
use longshore_plugins::{Answer, CacheKey, Call, JobOutputs, Request};
use prost::Message;
use tokio::sync::mpsc;

use crate::{
    catalog::{Caching, CatalogError, Entry, decide::Claim},
    data::TaskData,
    events::ActionEvents,
    facts::{Facts, Waiting},
    model::{Action, ActionKey, Work},
    observe::Observer,
    questions::{Holder, Report, TaskAnswer, TaskQuestion},
    remote::{AskConnectors, ConnectorError},
};

/// Asks stores, the catalog and connectors.
#[derive(Debug)]
pub(crate) struct Transport {
    data: Arc<dyn TaskData>,
    /// `None` where nothing is cached.
    caching: Option<Caching>,
    connectors: Arc<dyn AskConnectors>,
    /// `None` where nobody receives events.
    events: Option<Arc<dyn ActionEvents>>,
    facts: Notes<ActionKey, Facts>,
    /// Takes actions that wait no longer for a reservation that another action of this process had.
    freed: mpsc::UnboundedSender<ActionKey>,
}

impl Transport {
    /// The transport, and the actions that no longer wait for a reservation which another action of this process had: the
    /// caller has to give each of them a round.
    pub(crate) fn new(
        data: &Arc<dyn TaskData>,
        caching: Option<Caching>,
        connectors: &Arc<dyn AskConnectors>,
        events: Option<Arc<dyn ActionEvents>>,
        facts: Notes<ActionKey, Facts>,
    ) -> (Self, impl Stream<Item = ActionKey> + Send + use<>) {
        let (freed, mut receiver) = mpsc::unbounded_channel();
        let transport = Self {
            data: Arc::clone(data),
            caching,
            connectors: Arc::clone(connectors),
            events,
            facts,
            freed,
        };
        let freed = stream::poll_fn(move |context| receiver.poll_recv(context));
        (transport, freed)
    }

    /// Asks one question.
    ///
    /// # Errors
    /// The store or the catalog did not answer, or refused.
    pub(crate) async fn ask(
        &self,
        observer: &Observer,
        key: &ActionKey,
        question: &TaskQuestion,
        now: Timestamp,
    ) -> Result<TaskAnswer, AskError> {
        let data = &self.data;
        match question {
            TaskQuestion::Inputs { url } => {
                let inputs = data.inputs(url).await.map_err(of_store)?;
                Ok(TaskAnswer::Inputs(inputs.map(|it| it.map(Arc::new))))
            }
            TaskQuestion::Directory { url } => {
                let made = data.make_directory(url).await;
                made.map(done).map_err(of_store)
            }
            TaskQuestion::Outcome { prefix, owed, .. } => {
                let outcome = data.outcome(prefix, *owed).await;
                outcome.map(TaskAnswer::Outcome).map_err(|error| {
                    let why = error.why();
                    tracing::warn!(%key, error = why, "an ended attempt waits for what it left behind");
                    of_store(error)
                })
            }
            TaskQuestion::Outputs { prefix, outputs } => {
                let written = self.write_outputs(prefix, outputs).await;
                written.inspect_err(|error| {
                    tracing::warn!(%key, %error, "the outputs of a connector's job are not written");
                })
            }
            TaskQuestion::Key { .. } => {
                let found = self.key(observer, key, now).await?;
                Ok(TaskAnswer::Key(found))
            }
            TaskQuestion::LookUp { entry } => {
                let found = self.caching()?.find(entry).await;
                found.map(TaskAnswer::Found).map_err(of_catalog)
            }
            TaskQuestion::Cached { url } => {
                let outputs = self.caching()?.read(url).await;
                outputs.map(TaskAnswer::Cached).map_err(in_full)
            }
            TaskQuestion::Copy { entry, outputs } => {
                let copied = self.caching()?.copy(entry, outputs.clone()).await;
                copied.map(done).map_err(of_store)
            }
            TaskQuestion::Exists { entry } => {
                let exists = self.caching()?.has_outputs(entry).await;
                exists.map(TaskAnswer::Exists).map_err(in_full)
            }
            TaskQuestion::Reserve {
                entry,
                uid,
                heartbeat,
                timeout,
            } => {
                let reserved = self.reserve(key, entry, uid, *heartbeat);
                within(*timeout, key, reserved).await
            }
            TaskQuestion::Put { entry, metadata } => {
                let status = self.caching()?.put(entry, (**metadata).clone()).await;
                Ok(TaskAnswer::Put(status))
            }
            TaskQuestion::Release { entry } => {
                self.caching()?.release(entry).await;
                self.free(entry);
                Ok(TaskAnswer::Done)
            }
            TaskQuestion::Connector { call, .. } => self.ask_connector(call).await,
            TaskQuestion::Report(report) => self.report(report).await,
        }
    }

    async fn reserve(
        &self,
        key: &ActionKey,
        entry: &Entry,
        uid: &str,
        heartbeat: Duration,
    ) -> Result<TaskAnswer, AskError> {
        let caching = self.caching()?;
        self.waits(key, uid, Some(&entry.key));
        match caching.reserve(entry, heartbeat).await {
            Claim::HeldBy { owner, heartbeat } => {
                if owner == entry.owner {
                    self.waits(key, uid, None);
                }
                Ok(TaskAnswer::Reserved(Holder { owner, heartbeat }))
            }
            Claim::Failed(why) => Err(AskError::new(NoAnswer::Unreachable, why)),
        }
    }

    async fn ask_connector(&self, call: &Call) -> Result<TaskAnswer, AskError> {
        let answered = self.connectors.ask(call).await.map_err(of_connector)?;
        match (&call.request, answered) {
            (Request::Delete(_), _) => Ok(TaskAnswer::Done),
            (Request::Create(_) | Request::Get(_), Some(answer)) => {
                Ok(TaskAnswer::Connector(answer.bounded()))
            }
            (Request::Create(_) | Request::Get(_), None) => Err(AskError::new(
                NoAnswer::NotUnderstood,
                "it answered nothing",
            )),
        }
    }

    async fn write_outputs(
        &self,
        prefix: &str,
        outputs: &JobOutputs,
    ) -> Result<TaskAnswer, AskError> {
        let outputs = match outputs {
            JobOutputs::Here(outputs) => outputs.clone(),
            JobOutputs::Again(call) => self.outputs(call).await?,
        };
        let written = self.data.write_outputs(prefix, outputs).await;
        written.map(done).map_err(of_store)
    }

    /// The outputs that a connector has returned before, as they are in a file.
    async fn outputs(&self, call: &Call) -> Result<Bytes, AskError> {
        let answered = self.connectors.ask(call).await.map_err(of_connector)?;
        let outputs = answered.and_then(Answer::into_outputs);
        let outputs = outputs.ok_or_else(|| {
            AskError::new(
                NoAnswer::NotUnderstood,
                "the connector returned the outputs of the job once, and does not return them again",
            )
        })?;
        Ok(outputs.encode_to_vec().into())
    }

    /// Sends events in their order: the run service keeps the first one of a phase and version.
    async fn report(&self, report: &Arc<Report>) -> Result<TaskAnswer, AskError> {
        let receiver = self.events.as_ref();
        let receiver = receiver.ok_or_else(|| {
            AskError::new(NoAnswer::Refused, "no receiver of events is configured")
        })?;
        for event in &report.events {
            let published = receiver.publish(event).await;
            published.map_err(|error| AskError::new(NoAnswer::Unreachable, error.to_string()))?;
        }
        Ok(TaskAnswer::Reported(Arc::clone(report)))
    }

    fn caching(&self) -> Result<&Caching, AskError> {
        let caching = self.caching.as_ref();
        caching.ok_or_else(|| AskError::new(NoAnswer::Refused, "no catalog is configured"))
    }

    /// What the outputs of an action are cached under; `None` where there cannot be a key.
    async fn key(
        &self,
        observer: &Observer,
        key: &ActionKey,
        now: Timestamp,
    ) -> Result<Option<CacheKey>, AskError> {
        let Some(action) = observer.current(key, now) else {
            return Err(AskError::new(NoAnswer::Refused, "the action is gone"));
        };
        let Action { work, spec, .. } = &action;
        let context = match work {
            Work::Task(task) => &task.context,
            Work::Remote(task) => &task.context,
            Work::Condition | Work::Invalid(_) | Work::Nothing => return Ok(None),
        };
        let found = self.caching()?.key(context, &spec.cache_key).await;
        let found = found.map_err(|error| {
            let why = chain(&error);
            tracing::warn!(error = why, %key, "a cached task waits for its inputs");
            in_full(error)
        })?;
        let found = found.inspect_err(|error| {
            let error = chain(error);
            tracing::warn!(error, action = %key, "outputs are not cached");
        });
        Ok(found.ok())
    }

    /// Remembers that the action waits for the reservation of this key, or that it waits for none.
    fn waits(&self, action: &ActionKey, uid: &str, key: Option<&CacheKey>) {
        let incarnation = Incarnation::of(uid);
        self.facts.note(action, &incarnation, |facts| {
            facts.waiting = Waiting {
                key: key.cloned(),
                is_freed: false,
            };
        });
    }

    /// Has the actions that wait for the reservation of a key request it again: its owner has given it up.
    fn free(&self, entry: &Entry) {
        let waits = |facts: &Facts| facts.waiting.key.as_ref() == Some(&entry.key);
        let freed = self
            .facts
            .note_all(waits, |facts| facts.waiting.is_freed = true);
        for action in freed {
            // The receiver is gone once no more rounds come.
            let _ = self.freed.send(action);
        }
    }
}

fn done((): ()) -> TaskAnswer {
    TaskAnswer::Done
}

/// Who has a reservation, as far as that is known within a time.
async fn within(
    limit: Duration,
    key: &ActionKey,
    reserved: impl Future<Output = Result<TaskAnswer, AskError>>,
) -> Result<TaskAnswer, AskError> {
    let reserved = tokio::time::timeout(limit, reserved).await;
    reserved.unwrap_or_else(|_| {
        let seconds = limit.as_secs_f64();
        let message =
            format!("the cache service has not said within {seconds} s who has the reservation");
        tracing::warn!(error = message, %key, "a cache reservation is not to be had");
        Err(AskError::new(NoAnswer::TimedOut, message))
    })
}

/// The error of a connector.
fn of_connector(error: ConnectorError) -> AskError {
    let why = match &error {
        // What stands before the connector says this, or the connector itself while it starts.
        ConnectorError::Refused {
            code: Code::Unavailable,
            ..
        }
        | ConnectorError::NoAnswer { .. } => NoAnswer::Unreachable,
        ConnectorError::NoConnector(_) | ConnectorError::Refused { .. } => NoAnswer::Refused,
        ConnectorError::TooLarge { .. } => NoAnswer::NotUnderstood,
    };
    AskError::new(why, error.to_string())
}

/// The error of a catalog.
fn of_catalog(error: CatalogError) -> AskError {
    AskError::new(NoAnswer::Unreachable, chain(&error))
}

/// The error of a store, in the words that the status has.
fn of_store(error: DataError) -> AskError {
    AskError::new(class_of(&error), error.why())
}

/// The same with all causes.
fn in_full(error: DataError) -> AskError {
    AskError::new(class_of(&error), chain(&error))
}

fn class_of(error: &DataError) -> NoAnswer {
    if error.is_refusal() {
        NoAnswer::Refused
    } else {
        NoAnswer::Unreachable
    }
}
