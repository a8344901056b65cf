//! What a plan records, and why a decision fails.

use std::{fmt, sync::Arc, time::Duration};

use longshore_api::flink::REASON_ERROR;
use longshore_core::{Action, Announcement, EventType, Never, ObjectRef, Plan};
use longshore_flink_core::{
    conf::{InvalidOption, effective::EffectiveError},
    resources::ResourceError,
    status::{ErrorType, UnreadableSpec},
};
use serde_json::Value;

use crate::rest::RestQuestion;

/// The plan of a controller of this crate.
pub type FlinkPlan = Plan<Record, Never, RestQuestion>;

/// When a round looks again after something could not be seen.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// When a round looks again at what only others can change.
pub(crate) const OTHERS_AGAIN: Duration = Duration::from_mins(1);

/// Nothing but an Event: the resource cannot be read, or its status cannot be written.
pub(crate) fn announced(about: &ObjectRef, message: &str) -> FlinkPlan {
    let mut plan = FlinkPlan::after(OTHERS_AGAIN);
    plan.actions.push(Action::Announce(Announcement {
        regarding: about.clone(),
        event_type: EventType::Warning,
        reason: REASON_ERROR,
        note: message.to_owned(),
    }));
    plan
}

/// A status to be written, and the object that it was decided upon.
#[derive(Clone, PartialEq)]
pub struct Record {
    /// The object.
    pub target: ObjectRef,
    /// The object as it was decided upon.
    pub seen: Arc<Value>,
    /// The whole status.
    pub status: Value,
}

/// The object itself is long, and is in the log of the API server.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("target", &self.target)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Why nothing can be decided about a resource. A user has to change something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The status does not say what runs.
    #[error(transparent)]
    Status(#[from] UnreadableSpec),
    /// A value that its option cannot have.
    #[error("{error}: {why}", error = .0, why = .0.why)]
    Option(#[from] InvalidOption),
    /// The spec gives no configuration.
    #[error(transparent)]
    Effective(#[from] EffectiveError),
    /// The configuration gives no cluster.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The health in the status cannot be read.
    #[error(transparent)]
    Health(#[from] longshore_flink_core::health::UnreadableHealth),
    /// A JobManager of that name belongs to another resource.
    #[error(
        "the Deployment {name} exists and belongs to another resource: expected an owner reference to this \
         FlinkDeployment; delete the Deployment, or rename the FlinkDeployment"
    )]
    Foreign {
        /// The name of the Deployment.
        name: String,
    },
    /// The state that a job has to start from is not known or not there.
    #[error("{message}")]
    NoState {
        /// What is missing, for people.
        message: String,
        /// The reason of the Event.
        reason: &'static str,
    },
}

impl Trouble {
    /// What the error of the status says that it is.
    pub(crate) const fn kind(&self) -> ErrorType {
        match self {
            Self::NoState { .. } => ErrorType::UpgradeFailure,
            Self::Effective(_) | Self::Resource(_) | Self::Option(_) => ErrorType::Validation,
            Self::Status(_) | Self::Health(_) | Self::Foreign { .. } => ErrorType::Reconciliation,
        }
    }

    /// The reason of the Event.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NoState { reason, .. } => reason,
            Self::Effective(_)
            | Self::Resource(_)
            | Self::Option(_)
            | Self::Status(_)
            | Self::Health(_)
            | Self::Foreign { .. } => REASON_ERROR,
        }
    }
}
