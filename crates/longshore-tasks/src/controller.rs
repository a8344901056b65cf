//! The executor on the kit.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use longshore_core::{
    Announcement, Class, Classify, Create, EventType, Incarnation, Never, ObjectRef, Plan, Seen,
};
use longshore_kit::{
    Answers, Applier, ApplyError, Clock, Controller, Postponed, RawObject, Refusal,
};
use longshore_plugins::TASK_ACTION;
use tokio::time::Instant;

use crate::{
    catalog::Order,
    config::Policy,
    data::DataError,
    decide::{Effect, Observed, Record, decide},
    events::{ActionEvent, ActionEvents, NotPublished},
    measures::ActionMeasures,
    model::{ActionKey, ObstacleKind},
    observe::{Observer, Unreadable},
    remote::{AskConnectors, ConnectorError, Questions},
    status,
};

/// By how much a new action goes before those that run.
const HEAD_START: Duration = Duration::from_secs(5);

/// Runs TaskActions.
#[derive(Debug)]
pub(crate) struct Actions {
    pub(crate) observer: Observer,
    pub(crate) policy: Policy,
    pub(crate) applier: Applier,
    pub(crate) events: Arc<dyn ActionEvents>,
    pub(crate) connectors: Arc<dyn AskConnectors>,
    pub(crate) questions: Questions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) measures: ActionMeasures,
}

/// Why a round about an action failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The run service did not acknowledge.
    #[error(transparent)]
    NotPublished(#[from] NotPublished),
    /// Cached outputs are not where they belong.
    #[error("TaskAction {key} waits for its cached outputs")]
    NotCopied {
        /// The action.
        key: ActionKey,
        /// Why.
        source: DataError,
    },
    /// The attempt would have no place for what it makes.
    #[error("TaskAction {key} waits for a place for its outputs")]
    NoDirectory {
        /// The action.
        key: ActionKey,
        /// Why.
        source: DataError,
    },
    /// The status was not written.
    #[error("the status of TaskAction {key} is not written")]
    Status {
        /// The action.
        key: ActionKey,
        /// Why.
        source: ApplyError,
    },
    /// A job of a connector was not ended.
    #[error("the job of TaskAction {key} is not ended")]
    NotEnded {
        /// The action.
        key: ActionKey,
        /// Why.
        source: ConnectorError,
    },
    /// What a connector returned was not written.
    #[error("the outputs of TaskAction {key} are not written")]
    Outputs {
        /// The action.
        key: ActionKey,
        /// Why.
        source: DataError,
    },
    /// The status cannot be written.
    #[error("the status of TaskAction {key} is no JSON")]
    Json {
        /// The action.
        key: ActionKey,
        /// Why.
        source: serde_json::Error,
    },
}

impl Classify for ActionError {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable(error) => error.class(),
            Self::NotPublished(error) => error.class(),
            Self::NotCopied { source, .. } | Self::NoDirectory { source, .. } => source.class(),
            Self::Status { source, .. } => source.class(),
            Self::NotEnded { .. } => Class::Retry,
            Self::Outputs { source, .. } => source.class(),
            Self::Json { .. } => Class::Bug,
        }
    }
}

impl Actions {
    async fn report(&self, key: &ActionKey, event: &ActionEvent) -> Result<(), NotPublished> {
        let published = self.events.publish(event).await;
        if let Err(error) = &published {
            let reason = longshore_api::flyte::REASON_EVENT_PUBLISH_FAILED;
            self.warn(key, reason, error.to_string());
        }
        published
    }

    async fn tell_cache(&self, key: &ActionKey, order: &Order) -> Result<(), ActionError> {
        let told = self.observer.cache.tell(key, order).await;
        let Err(source) = told else {
            return Ok(());
        };
        let reason = longshore_api::flyte::REASON_OUTPUTS_NOT_COPIED;
        self.warn(key, reason, source.why());
        Err(ActionError::NotCopied {
            key: key.clone(),
            source,
        })
    }

    /// Where that fails, the status says so in the next round: an action without any status looks like one that nobody has
    /// taken up.
    async fn make_directory(
        &self,
        key: &ActionKey,
        url: &str,
        launch: &str,
    ) -> Result<(), ActionError> {
        let made = self.observer.data.make_directory(url).await;
        let Err(source) = made else {
            return Ok(());
        };
        let why = source.why();
        let message = format!("waiting for a place for its outputs: {why}");
        let kind = ObstacleKind::NoDirectory(message);
        let obstacles = &self.observer.obstacles;
        obstacles.note(key, launch, kind, self.clock.now());
        let reason = longshore_api::flyte::REASON_NO_OUTPUT_DIRECTORY;
        self.warn(key, reason, why);
        Err(ActionError::NoDirectory {
            key: key.clone(),
            source,
        })
    }

    /// Says on the action why it waits.
    fn warn(&self, key: &ActionKey, reason: &'static str, note: String) {
        let announcement = Announcement {
            regarding: ObjectRef {
                resource: TASK_ACTION,
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: None,
            },
            event_type: EventType::Warning,
            reason,
            note,
        };
        self.applier.announce(&announcement, self.clock.now());
    }

    /// This kept a resource from being created.
    fn note(&self, key: &ActionKey, create: &Create, kind: ObstacleKind) {
        let launch = create.identity.value();
        let obstacles = &self.observer.obstacles;
        obstacles.note(key, launch, kind, self.clock.now());
    }
}

impl Controller for Actions {
    type Key = ActionKey;
    type Observed = Observed;
    type Status = Record;
    type Effect = Effect;
    type Question = Never;
    type Error = ActionError;

    fn name(&self) -> &'static str {
        "tasks.actions"
    }

    /// What has not begun begins before what runs is followed: a resource works while we write.
    fn head_start(&self, key: &ActionKey) -> Duration {
        let action = self.observer.actions.get(&key.namespace, &key.name);
        let is_new = |action: &Arc<RawObject>| action.finalizers().is_empty();
        if action.present().is_some_and(is_new) {
            HEAD_START
        } else {
            Duration::ZERO
        }
    }

    async fn observe(
        &self,
        key: &ActionKey,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, ActionError> {
        let observed = self.observer.observe(key, now).await?;
        match &observed.action {
            Seen::Present(action) => self.measures.see(key, Some(&action.status)),
            Seen::Absent => self.measures.see(key, None),
            Seen::Unknown(_) => {}
        }
        Ok(observed)
    }

    fn decide(&self, observed: &Observed) -> Plan<Record, Effect> {
        decide(&self.policy, &self.observer.config.k8s, observed)
    }

    async fn persist(&self, key: &ActionKey, record: &Record) -> Result<(), ActionError> {
        let Record {
            target,
            seen,
            status,
        } = record;
        let wire = status::to_wire(&seen["status"], status);
        let wire = wire.map_err(|source| ActionError::Json {
            key: key.clone(),
            source,
        })?;
        self.observer.exchanges.writes(key, &status.plugin_state);
        // Nothing is written out again only to be measured.
        let cached = self.observer.actions.get(&key.namespace, &key.name);
        let size = cached.present().map(|object| object.size());
        let asked_at = Instant::now();
        let written = self.applier.write_status(key, target, seen, &wire).await;
        let (took, is_written) = (asked_at.elapsed(), written.is_ok());
        self.measures.status_written(took, is_written, size);
        written.map_err(|source| ActionError::Status {
            key: key.clone(),
            source,
        })?;
        self.observer.written(key, status);
        self.measures.see(key, Some(status));
        Ok(())
    }

    async fn call(&self, key: &ActionKey, effect: &Effect) -> Result<(), ActionError> {
        match effect {
            Effect::Report(event) => Ok(self.report(key, event).await?),
            Effect::Cache(order) => self.tell_cache(key, order).await,
            Effect::MakeDirectory { url, launch } => self.make_directory(key, url, launch).await,
            Effect::Ask(call) => {
                self.observer.exchanges.asks(key);
                self.questions.ask(key, call);
                Ok(())
            }
            Effect::End(call) => {
                let ended = self.connectors.ask(call).await;
                ended.map(drop).map_err(|source| ActionError::NotEnded {
                    key: key.clone(),
                    source,
                })
            }
            Effect::WriteOutputs { prefix, outputs } => {
                let written = self.observer.data.write_outputs(prefix, outputs).await;
                written.map_err(|source| ActionError::Outputs {
                    key: key.clone(),
                    source,
                })
            }
        }
    }

    fn refused(&self, key: &ActionKey, _: &Seen<Incarnation>, refusal: &Refusal) {
        if let Some(create) = &refusal.create {
            let kind = match refusal.code {
                Some(code) => ObstacleKind::Refused {
                    code,
                    message: refusal.message.clone(),
                },
                // Somebody else's resource has the name.
                None => ObstacleKind::NameTaken,
            };
            self.note(key, create, kind);
        }
    }

    fn postponed(&self, key: &ActionKey, _: &Seen<Incarnation>, create: &Create, why: &Postponed) {
        let kind = match why {
            Postponed::OverQuota(words) => ObstacleKind::OverQuota(words.clone()),
            Postponed::NameTaken => ObstacleKind::NameTaken,
        };
        self.note(key, create, kind);
    }
}
