//! The contract of a plugin that makes no resource in Kubernetes: the task runs elsewhere, or not at all.
//!
//! A state machine: [`step`](RemotePlugin::step) says what the task's phase is, what is to be remembered, and what is to
//! be asked; the caller persists the first two, asks, and steps again with the answer.

use std::time::Duration;

use jiff::Timestamp;
use longshore_proto::flyteidl2::{
    connector::{
        CreateTaskRequest, CreateTaskResponse, DeleteTaskRequest, GetTaskRequest, GetTaskResponse,
    },
    core::LiteralMap,
};

use crate::{context::TaskContext, phase::PhaseInfo, plugin::BuildError, state::StateError};

/// A task type that runs without a resource.
pub trait RemotePlugin: Send + Sync + std::fmt::Debug {
    /// Its id, as `tasks.task-plugins.default-for-task-types` names it.
    fn id(&self) -> &'static str;

    /// The task types that it takes unless the configuration says otherwise.
    fn task_types(&self) -> Vec<String>;

    /// Whether a job in this state takes room, of which the configuration may say that there is only so much.
    fn room(&self, _: StoredState<'_>) -> Room {
        Room::Unneeded
    }

    /// Whether the step from this state asks for [`TaskContext::inputs`].
    fn needs_inputs(&self, state: StoredState<'_>) -> bool;

    /// What is so now, and what is to be done.
    ///
    /// # Errors
    /// [`StateError`] where the state is another program's; what to do then: see decision 2 of the spec.
    fn step(&self, context: &TaskContext, round: &Round<'_>) -> Result<Step, StateError>;

    /// What is to be asked so that the task does not go on: nothing where nothing was begun.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn abort(
        &self,
        context: &TaskContext,
        state: StoredState<'_>,
    ) -> Result<Option<Call>, StateError>;
}

/// `status.pluginState`, and its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredState<'a> {
    /// `status.pluginStateVersion`.
    pub version: u8,
    /// Empty before the first step.
    pub bytes: &'a [u8],
}

/// Whether a job takes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It does not, or not any more.
    Unneeded,
    /// It will, once there is some.
    Wanted,
    /// It does.
    Taken,
}

/// What a step goes by.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// What the last step wanted to be remembered, as it was read back.
    pub state: StoredState<'a>,
    /// Whether this very process persisted that state. Only then is it known that what the state announces was not
    /// done yet, unless there is an answer.
    pub is_state_ours: bool,
    /// The answer to the call of the last step, if one was made.
    pub answer: Option<Answer>,
    /// Whether there is room for it, where it wants some.
    pub has_room: bool,
    /// The time.
    pub now: Timestamp,
}

/// The outcome of a step, in the order in which it is to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The outputs of the task, to be written to `outputs.pb` before its success is told.
    pub outputs: Option<LiteralMap>,
    /// What the task's phase is.
    pub info: PhaseInfo,
    /// What is to be remembered, with [`STATE_VERSION`](crate::STATE_VERSION).
    pub state: Vec<u8>,
    /// What is to be asked, once the state is persisted.
    pub call: Option<Call>,
    /// When to step again, if no answer comes before.
    pub again: Option<Duration>,
}

impl Step {
    /// A step after which nothing is asked.
    pub fn quiet(info: PhaseInfo, state: Vec<u8>) -> Self {
        Self {
            outputs: None,
            info,
            state,
            call: None,
            again: None,
        }
    }
}

/// Something to ask a connector.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which task type is meant, which leads to the connector.
    pub category: Category,
    /// What to ask.
    pub request: Request,
}

/// What a connector is chosen by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Category {
    /// Of the task's id.
    pub project: String,
    /// Of the task's id.
    pub domain: String,
    /// The task type.
    pub task_type: String,
    /// Its version.
    pub version: i32,
}

/// A request of `flyteidl2.connector.AsyncConnectorService`.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Begin.
    Create(Box<CreateTaskRequest>),
    /// Tell.
    Get(Box<GetTaskRequest>),
    /// End.
    Delete(Box<DeleteTaskRequest>),
}

/// The answer to a request, or that there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Request::Create`].
    Created(CreateTaskResponse),
    /// To [`Request::Get`].
    Told {
        /// What was told.
        response: Box<GetTaskResponse>,
        /// Who told it.
        by: Teller,
    },
    /// The call failed, or no connector takes the task type.
    Failed(String),
}

/// The connector that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teller {
    /// Its name in the configuration.
    pub name: String,
    /// Where it is.
    pub endpoint: String,
    /// Whether it is one of `connectorApps`, which have logs of their own.
    pub is_app: bool,
}

impl From<BuildError> for PhaseInfo {
    fn from(error: BuildError) -> Self {
        Self::permanent(crate::ErrorKind::User, error.code, error.message)
    }
}
