//! Tasks that a connector runs, behind its own interface: a state machine over requests to the
//! connector and their answers (task action spec §11.11). Nothing here sends a request.

mod config;
mod registry;
mod request;
mod service_config;
mod state;
mod status;

use std::{sync::Arc, time::Duration};

pub use config::{ConnectorConfig, Deployment, Limit, Quota, WebApi};
use prost::Message;
pub use registry::{Connectors, Listed, Route};
pub use service_config::{MethodPolicy, Retries, ServiceConfig};
pub use state::{ResourceMeta, WebApiPhase, WebApiState};

use crate::{
    config::Config,
    context::TaskContext,
    phase::{ErrorKind, Phase, PhaseInfo, TASK_FAILED_WITH_ERROR},
    remote::{
        Addressee, Answer, Call, Category, JobOutputs, RemotePlugin, Round, SlotNeed, Step,
        StoredState,
    },
    state::StateError,
};

/// The code of a task whose connector has failed too many requests for its state.
const CANNOT_BE_ASKED: &str = "AutoRefreshCacheFailed";
/// The code of a task whose job the connector may or may not have begun.
const CREATION_INTERRUPTED: &str = "CreationInterrupted";
/// The code of a task whose job cannot be stored.
const RESOURCE_META_TOO_LARGE: &str = "ResourceMetaTooLarge";
/// The most bytes by which a connector may identify a job. They are stored in the status of the TaskAction, byte by byte,
/// and an API server stores no object beyond 1.5 MiB.
const MAX_RESOURCE_META: usize = 256 * 1024;
/// The reason of a job that waits for others to end: upstream's words.
const QUOTA_EXCEEDED: &str = "Quota for task has exceeded. Waiting for the resource.";
/// Upstream's version of the phase in which the job was accepted.
const LAUNCHED: u32 = 2;

/// The plugin of tasks of connectors.
#[derive(Clone, Debug)]
pub(crate) struct ConnectorPlugin {
    config: Arc<Config>,
}

impl ConnectorPlugin {
    /// The plugin's id.
    pub(crate) const ID: &str = "connector-service";

    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }
}

impl RemotePlugin for ConnectorPlugin {
    fn id(&self) -> &'static str {
        Self::ID
    }

    fn task_types(&self) -> Vec<String> {
        self.config.connector.supported_task_types.clone()
    }

    /// The inputs go with the request that begins the job. What is new is reported first.
    fn needs_inputs(&self, state: StoredState<'_>) -> bool {
        WebApiState::read(state).is_ok_and(|it| match it.phase {
            WebApiPhase::NotStarted => it.token_requested_at.is_some(),
            WebApiPhase::AllocationTokenAcquired => true,
            WebApiPhase::ResourcesCreated
            | WebApiPhase::Succeeded
            | WebApiPhase::UserFailure
            | WebApiPhase::SystemFailure => false,
        })
    }

    fn slot(&self, state: StoredState<'_>) -> SlotNeed {
        match WebApiState::read(state).map(|state| state.phase) {
            Ok(WebApiPhase::NotStarted) => SlotNeed::Wanted,
            Ok(WebApiPhase::AllocationTokenAcquired | WebApiPhase::ResourcesCreated) => {
                SlotNeed::Taken
            }
            // Where it cannot be read, the attempt ends.
            Ok(WebApiPhase::Succeeded | WebApiPhase::UserFailure | WebApiPhase::SystemFailure)
            | Err(_) => SlotNeed::Unneeded,
        }
    }

    fn step(&self, context: &TaskContext, round: &Round<'_>) -> Result<Step, StateError> {
        let state = WebApiState::read(round.state)?;
        Ok(match state.phase {
            WebApiPhase::NotStarted if !round.has_slot => wait(state, round),
            WebApiPhase::NotStarted if state.token_requested_at.is_none() => enter(state, round),
            WebApiPhase::NotStarted => begin(&state, context),
            WebApiPhase::AllocationTokenAcquired => create(state, context, round),
            WebApiPhase::ResourcesCreated => self.monitor(state, context, round),
            WebApiPhase::Succeeded | WebApiPhase::UserFailure | WebApiPhase::SystemFailure => {
                let last = &context.last;
                let info = PhaseInfo::of(last.phase, last.reason.clone());
                Step::quiet(info.ordered_after(last), state.encode())
            }
        })
    }

    fn abort(&self, _: &TaskContext, state: StoredState<'_>) -> Result<Option<Call>, StateError> {
        let state = WebApiState::read(state)?;
        // A job whose state nobody tells may run on.
        let has_ended = matches!(
            state.phase,
            WebApiPhase::Succeeded | WebApiPhase::UserFailure
        );
        let meta = state.resource_meta.filter(|_| !has_ended);
        Ok(meta.map(|meta| request::delete(&meta)))
    }

    /// Once it is on record that the job is about to be begun, its connector is known, or another process has asked it.
    fn addressee(&self, context: &TaskContext, state: StoredState<'_>) -> Option<Addressee> {
        let state = WebApiState::read(state).ok()?;
        match state.phase {
            WebApiPhase::NotStarted => Some(Addressee {
                category: Category::of(context),
                ..Addressee::default()
            }),
            WebApiPhase::ResourcesCreated => {
                let meta = state.resource_meta.as_ref();
                meta.map(ResourceMeta::addressee)
            }
            WebApiPhase::AllocationTokenAcquired
            | WebApiPhase::Succeeded
            | WebApiPhase::UserFailure
            | WebApiPhase::SystemFailure => None,
        }
    }

    /// The state of a pod can be read as one of a job that has not begun.
    fn has_begun(&self, state: StoredState<'_>) -> bool {
        WebApiState::read(state).is_ok_and(|state| state.phase != WebApiPhase::NotStarted)
    }
}

/// The step of a task that waits for quota. The controller steps again when a slot is free.
fn wait(mut state: WebApiState, round: &Round<'_>) -> Step {
    state.token_requested_at.get_or_insert(round.now);
    let info = PhaseInfo::of(Phase::WaitingForResources, QUOTA_EXCEEDED);
    Step::quiet(info, state.encode())
}

/// Reports that the job waits for its turn.
fn enter(mut state: WebApiState, round: &Round<'_>) -> Step {
    state.token_requested_at = Some(round.now);
    Step {
        again: Some(Duration::ZERO),
        ..Step::quiet(asking(), state.encode())
    }
}

fn asking() -> PhaseInfo {
    PhaseInfo::of(Phase::Queued, "asking the connector")
}

/// Requests the job. That the request is about to be sent is recorded right before: a connector that gets it twice begins
/// two jobs.
fn begin(state: &WebApiState, context: &TaskContext) -> Step {
    match request::create(context) {
        Ok(call) => {
            let announced = WebApiState {
                phase: WebApiPhase::AllocationTokenAcquired,
                ..state.clone()
            };
            Step {
                call: Some(call),
                announced: Some(announced.encode()),
                ..Step::quiet(asking(), state.encode())
            }
        }
        Err(error) => Step::quiet(error.into(), state.encode()),
    }
}

/// What comes of a request that is on record.
fn create(mut state: WebApiState, context: &TaskContext, round: &Round<'_>) -> Step {
    match &round.answer {
        None if round.is_state_ours => match request::create(context) {
            Ok(call) => Step {
                call: Some(call),
                ..Step::quiet(asking(), state.encode())
            },
            Err(error) => Step::quiet(error.into(), state.encode()),
        },
        // Another attempt may begin another job; this one must not.
        None | Some(Answer::Told { .. }) => {
            let message = "the executor stopped while the connector was asked to begin the job, which may run unseen";
            let info = PhaseInfo::retryable(ErrorKind::User, CREATION_INTERRUPTED, message);
            state.phase = WebApiPhase::UserFailure;
            Step::quiet(info, state.encode())
        }
        Some(Answer::Failed(why)) => {
            let message = format!("the connector did not begin the job: {why}");
            let info = PhaseInfo::retryable(ErrorKind::User, TASK_FAILED_WITH_ERROR, message);
            state.phase = WebApiPhase::UserFailure;
            Step::quiet(info, state.encode())
        }
        Some(Answer::Created { response, by })
            if response.resource_meta.len() > MAX_RESOURCE_META =>
        {
            let found = response.resource_meta.len();
            let message = format!(
                "the connector identifies the job by a resource_meta of {found} bytes, and a TaskAction stores at most \
                 {MAX_RESOURCE_META}: the connector is asked to delete the job"
            );
            let info = PhaseInfo::permanent(ErrorKind::User, RESOURCE_META_TOO_LARGE, message);
            state.phase = WebApiPhase::UserFailure;
            Step {
                abort: Some(request::delete(&request::resource_meta(
                    context, response, by,
                ))),
                ..Step::quiet(info, state.encode())
            }
        }
        // Without the bytes that identify it, the connector cannot be asked to delete the job.
        Some(Answer::CreatedTooLarge(found)) => {
            let message = format!(
                "the connector answered CreateTask with more than {found} bytes, and a TaskAction stores at most \
                 {MAX_RESOURCE_META} bytes of a resource_meta: the job runs on unseen; expected a connector that \
                 identifies its jobs by less, delete the job there"
            );
            let info = PhaseInfo::permanent(ErrorKind::User, RESOURCE_META_TOO_LARGE, message);
            state.phase = WebApiPhase::UserFailure;
            Step::quiet(info, state.encode())
        }
        // Which job it is is on record before anything is reported: nothing but this answer says so.
        Some(Answer::Created { response, by }) => {
            state.resource_meta = Some(request::resource_meta(context, response, by));
            state.phase = WebApiPhase::ResourcesCreated;
            Step {
                again: Some(Duration::ZERO),
                ..Step::quiet(unchanged(context), state.encode())
            }
        }
    }
}

/// Reports the job that is on record.
fn launched(mut state: WebApiState) -> Step {
    state.version = LAUNCHED;
    let info = PhaseInfo {
        version: LAUNCHED,
        ..PhaseInfo::of(Phase::Queued, "launched")
    };
    Step {
        again: Some(Duration::ZERO),
        ..Step::quiet(info, state.encode())
    }
}

/// Whether nothing was reported of a job since its connector has begun it.
fn is_unreported(state: &WebApiState, context: &TaskContext) -> bool {
    let last = (context.last.phase, context.last.version);
    state.version < LAUNCHED && last < (Phase::Queued, LAUNCHED)
}

/// What was reported last.
fn unchanged(context: &TaskContext) -> PhaseInfo {
    let last = &context.last;
    let info = PhaseInfo::of(last.phase.max(Phase::Queued), last.reason.clone());
    info.ordered_after(last)
}

impl ConnectorPlugin {
    fn monitor(&self, mut state: WebApiState, context: &TaskContext, round: &Round<'_>) -> Step {
        let web_api = &self.config.connector.web_api;
        let Some(meta) = &state.resource_meta else {
            let message = "it is not remembered which job the connector began";
            let info = PhaseInfo::retryable(ErrorKind::User, CREATION_INTERRUPTED, message);
            return Step::quiet(info, state.encode());
        };
        if is_unreported(&state, context) {
            return launched(state);
        }
        let ask = Some(request::get(meta));
        let last = &context.last;
        let unchanged = unchanged(context);
        match &round.answer {
            None | Some(Answer::Created { .. } | Answer::CreatedTooLarge(_)) => Step {
                call: ask,
                again: Some(web_api.resync),
                ..Step::quiet(unchanged, state.encode())
            },
            Some(Answer::Failed(why)) => {
                state.sync_failures = state.sync_failures.saturating_add(1);
                state.error_message.clone_from(why);
                if state.sync_failures > web_api.max_system_failures {
                    state.phase = WebApiPhase::SystemFailure;
                    let info = PhaseInfo::permanent(ErrorKind::User, CANNOT_BE_ASKED, why.clone());
                    return Step::quiet(info, state.encode());
                }
                let reason = format!("the connector does not say how far the job is: {why}");
                let info = PhaseInfo::of(unchanged.phase, reason).ordered_after(last);
                Step {
                    again: Some(web_api.resync),
                    ..Step::quiet(info, state.encode())
                }
            }
            Some(Answer::Told {
                response,
                is_cut,
                by,
            }) => {
                state.sync_failures = 0;
                state.error_message.clear();
                let config = &self.config.connector;
                let told = status::of(context, response.resource.as_ref(), by, config);
                state.phase = status::state_after(told.info.phase);
                let is_over = state.phase.is_terminal();
                Step {
                    outputs: told.outputs.map(|outputs| {
                        if *is_cut {
                            JobOutputs::Again(Box::new(request::get(meta)))
                        } else {
                            JobOutputs::Here(outputs.encode_to_vec().into())
                        }
                    }),
                    again: (!is_over).then_some(web_api.resync),
                    ..Step::quiet(told.info.ordered_after(last), state.encode())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
