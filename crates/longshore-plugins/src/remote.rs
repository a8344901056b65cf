//! The contract of a plugin that makes no resource in Kubernetes: the task runs elsewhere, or not at all.
//!
//! A state machine: [`step`](RemotePlugin::step) returns the phase of the task, the state to be stored, and the next
//! request. The caller persists the first two, sends the request, and steps again with the answer. A request that must not
//! be sent twice is announced: another state is persisted right before it.

use std::time::Duration;

use jiff::Timestamp;
use longshore_core::text::{MAX_TEXT, shorten};
use longshore_proto::flyteidl2::{
    connector::{
        CreateTaskRequest, CreateTaskResponse, DeleteTaskRequest, GetTaskRequest, GetTaskResponse,
    },
    core::{LiteralMap, task_execution},
    task::Outputs,
};

use prost::{Message, bytes::Bytes};

use crate::{
    context::TaskContext,
    phase::{PhaseInfo, bound_links},
    plugin::BuildError,
    state::StateError,
};

/// The most bytes of outputs that are held until a store takes them.
const MAX_HELD_OUTPUTS: usize = 16 * 1024;

/// A task type that runs without a resource.
pub trait RemotePlugin: Send + Sync + std::fmt::Debug {
    /// The id of the plugin, as `tasks.task-plugins.default-for-task-types` names it.
    fn id(&self) -> &'static str;

    /// The task types that it takes unless the configuration says otherwise.
    fn task_types(&self) -> Vec<String>;

    /// Whether a job in this state takes a slot, where the configuration limits their number.
    fn slot(&self, _: StoredState<'_>) -> SlotNeed {
        SlotNeed::Unneeded
    }

    /// Whether the step from this state reads [`TaskContext::inputs`].
    fn needs_inputs(&self, state: StoredState<'_>) -> bool;

    /// What is so now, and what is to be done.
    ///
    /// # Errors
    /// [`StateError`] where the state is another program's; what to do then: see decision 2 of the spec.
    fn step(&self, context: &TaskContext, round: &Round<'_>) -> Result<Step, StateError>;

    /// The request that stops the task; `None` where nothing was begun.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn abort(
        &self,
        context: &TaskContext,
        state: StoredState<'_>,
    ) -> Result<Option<Call>, StateError>;

    /// Whom the step from this state is going to ask, where that is a connector: no step is taken before it is known which
    /// one it is.
    fn addressee(&self, _: &TaskContext, _: StoredState<'_>) -> Option<Addressee> {
        None
    }

    /// Whether this is a state of this plugin which says that something was begun, or was about to be.
    fn has_begun(&self, _: StoredState<'_>) -> bool {
        false
    }
}

/// `status.pluginState`, and its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredState<'a> {
    /// `status.pluginStateVersion`.
    pub version: u8,
    /// Empty before the first step.
    pub bytes: &'a [u8],
}

/// Whether a job takes a slot of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotNeed {
    /// The job takes none, or no longer takes one.
    Unneeded,
    /// The job waits for a free slot.
    Wanted,
    /// The job takes a slot.
    Taken,
}

/// The input of a step.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// The state that the last step returned, as it was read back.
    pub state: StoredState<'a>,
    /// Whether this very process persisted that state. Only then is it known that what the state announces was not
    /// done yet, unless there is an answer.
    pub is_state_ours: bool,
    /// The answer to the call of the last step, if one was made.
    pub answer: Option<Answer>,
    /// Whether it may have a slot, where it wants one.
    pub has_slot: bool,
    /// The time.
    pub now: Timestamp,
}

/// The outcome of a step, in the order in which it is to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The outputs of the task. The controller writes them to `outputs.pb` before it reports success.
    pub outputs: Option<JobOutputs>,
    /// The phase of the task.
    pub info: PhaseInfo,
    /// The state to be stored, with [`STATE_VERSION`](crate::STATE_VERSION).
    pub state: Vec<u8>,
    /// The next request, to be sent once the state is persisted.
    pub call: Option<Call>,
    /// The state that says that the request is about to be sent, where a connector that gets it twice does something
    /// twice. The caller persists it when the request can be sent at once, and sends the request then: before, a process
    /// that ends leaves nothing behind that may have been sent.
    pub announced: Option<Vec<u8>>,
    /// When to step again, if no answer comes before.
    pub again: Option<Duration>,
    /// The request that stops a job which no state can tell of, so that [`RemotePlugin::abort`] cannot either.
    pub abort: Option<Call>,
}

impl Step {
    /// A step after which no request is sent.
    pub fn quiet(info: PhaseInfo, state: Vec<u8>) -> Self {
        Self {
            outputs: None,
            info,
            state,
            call: None,
            announced: None,
            again: None,
            abort: None,
        }
    }
}

/// The outputs that a connector returned.
#[derive(Clone, Debug, PartialEq)]
pub enum JobOutputs {
    /// A `LiteralMap`, as it is in a file.
    Here(Bytes),
    /// Too large to be held until a store takes them. This request has the connector return them once more.
    Again(Box<Call>),
}

/// Something to ask a connector.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which task type is meant, which leads to the connector.
    pub category: Category,
    /// The name of the connector that has the job, where that is on record.
    pub connector: Option<String>,
    /// The request to the connector.
    pub request: Request,
}

impl Call {
    /// Whom it is for.
    pub fn addressee(&self) -> Addressee {
        Addressee {
            category: self.category.clone(),
            connector: self.connector.clone(),
            is_begun: match self.request {
                Request::Create(_) => false,
                Request::Get(_) | Request::Delete(_) => true,
            },
        }
    }
}

/// Whom a request is for: what its connector is chosen by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addressee {
    /// Which task type is meant.
    pub category: Category,
    /// The name of the connector that has the job, where that is on record.
    pub connector: Option<String>,
    /// Whether there is a job: one of the connectors has begun it.
    pub is_begun: bool,
}

/// The category by which a connector is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Category {
    /// The project, of the task's id.
    pub project: String,
    /// The domain, of the task's id.
    pub domain: String,
    /// The task type.
    pub task_type: String,
    /// The version of the task type.
    pub version: i32,
}

impl Category {
    /// The category of a task.
    pub fn of(context: &TaskContext) -> Self {
        let template = &context.template;
        let id = template.id.clone().unwrap_or_default();
        Self {
            project: id.project,
            domain: id.domain,
            task_type: template.r#type.clone(),
            version: template.task_type_version,
        }
    }
}

/// A request of `flyteidl2.connector.AsyncConnectorService`.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Begin a job.
    Create(Box<CreateTaskRequest>),
    /// Request the state of a job.
    Get(Box<GetTaskRequest>),
    /// Delete a job.
    Delete(Box<DeleteTaskRequest>),
}

/// The answer to a request, or that there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Request::Create`].
    Created {
        /// Which job it is.
        response: CreateTaskResponse,
        /// The connector that has begun it.
        by: Teller,
    },
    /// To [`Request::Create`]: it has more bytes than these, and was not read any further.
    CreatedTooLarge(usize),
    /// To [`Request::Get`].
    Told {
        /// The state of the job.
        response: Box<GetTaskResponse>,
        /// Whether its outputs were too large to be held: there are none left in it.
        is_cut: bool,
        /// The connector that answered.
        by: Teller,
    },
    /// The call failed, or no connector takes the task type.
    Failed(String),
}

impl Answer {
    /// The answer with a message of bounded length, and without links and further information that are longer than that.
    /// What identifies a job is kept as it is. Large outputs are cut: an answer is held until a store has taken what it
    /// says, and a silent store must not fill the memory.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Self::Told {
            response, is_cut, ..
        } = &mut self
            && let Some(resource) = &mut response.resource
        {
            resource.message = shorten(std::mem::take(&mut resource.message));
            bound_links(&mut resource.log_links);
            resource
                .custom_info
                .take_if(|info| info.encoded_len() > MAX_TEXT);
            if let Some(outputs) = &mut resource.outputs
                && outputs.encoded_len() > MAX_HELD_OUTPUTS
            {
                *outputs = Outputs::default();
                *is_cut = true;
            }
        }
        self
    }

    /// The outputs in the answer that a job has succeeded, where there are any.
    pub fn into_outputs(self) -> Option<LiteralMap> {
        let Self::Told {
            response,
            is_cut: false,
            ..
        } = self
        else {
            return None;
        };
        let resource = response.resource?;
        let has_succeeded = resource.phase() == task_execution::Phase::Succeeded;
        let outputs = resource.outputs.filter(|_| has_succeeded)?;
        let literals = outputs.literals.into_iter();
        Some(LiteralMap {
            literals: literals
                .filter_map(|literal| Some((literal.name, literal.value?)))
                .collect(),
        })
    }
}

/// The connector that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teller {
    /// The name of the connector in the configuration.
    pub name: String,
    /// The address of the connector.
    pub endpoint: String,
    /// Whether it is one of `connectorApps`, which have logs of their own.
    pub is_app: bool,
}

impl From<BuildError> for PhaseInfo {
    fn from(error: BuildError) -> Self {
        Self::permanent(crate::ErrorKind::User, error.code, error.message)
    }
}
