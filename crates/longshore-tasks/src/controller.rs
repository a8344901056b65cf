//! The executor on the kit.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{
    Announcement, Class, Classify, Create, EventType, ObjectRef, Plan, Resource, Seen,
};
use longshore_kit::{Applier, ApplyError, Clock, Controller, Postponed, Refusal};
use tokio::time::Instant;

use crate::{
    config::Policy,
    decide::{Effect, Observed, Record, decide},
    events::{ActionEvent, ActionEvents, NotPublished},
    measures::ActionMeasures,
    model::{ActionKey, ObstacleKind},
    observe::{Observer, Unreadable},
    status,
};

/// Runs TaskActions.
#[derive(Debug)]
pub(crate) struct Actions {
    pub(crate) observer: Observer,
    pub(crate) policy: Policy,
    pub(crate) applier: Applier,
    pub(crate) events: Arc<dyn ActionEvents>,
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
    /// The status was not written.
    #[error("the status of TaskAction {key} is not written")]
    Status {
        /// The action.
        key: ActionKey,
        /// Why.
        source: ApplyError,
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
            Self::Status { source, .. } => source.class(),
            Self::Json { .. } => Class::Bug,
        }
    }
}

impl Actions {
    async fn report(&self, key: &ActionKey, event: &ActionEvent) -> Result<(), NotPublished> {
        let published = self.events.publish(event).await;
        if let Err(error) = &published {
            let announcement = Announcement {
                regarding: ObjectRef {
                    resource: Resource::TASK_ACTION,
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    uid: None,
                },
                event_type: EventType::Warning,
                reason: "ActionEventPublishFailed",
                note: error.to_string(),
            };
            self.applier.announce(&announcement, self.clock.now()).await;
        }
        published
    }

    /// This kept a resource from being created.
    fn note(&self, key: &ActionKey, create: &Create, kind: ObstacleKind) {
        let launch = &create.identity.1;
        let obstacles = &self.observer.obstacles;
        obstacles.note(key, launch, kind, self.clock.now());
    }
}

impl Controller for Actions {
    type Key = ActionKey;
    type Observed = Observed;
    type Status = Record;
    type Effect = Effect;
    type Error = ActionError;

    fn name(&self) -> &'static str {
        "tasks.actions"
    }

    async fn observe(&self, key: &ActionKey, now: Timestamp) -> Result<Observed, ActionError> {
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
        let asked_at = Instant::now();
        let written = self.applier.write_status(key, target, seen, &wire).await;
        let (took, is_written) = (asked_at.elapsed(), written.is_ok());
        self.measures.status_written(took, is_written, seen);
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
        }
    }

    fn refused(&self, key: &ActionKey, refusal: &Refusal) {
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

    fn postponed(&self, key: &ActionKey, create: &Create, why: &Postponed) {
        let kind = match why {
            Postponed::OverQuota(words) => ObstacleKind::OverQuota(words.clone()),
            Postponed::NameTaken => ObstacleKind::NameTaken,
        };
        self.note(key, create, kind);
    }
}
