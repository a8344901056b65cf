//! What a pod's specification requires of the node, and what the node knows about the pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ephemeral, hooks::Hook};
use crate::{
    probes::{Health, Probes},
    refusal::Refusal,
    shim::protocol::{AttemptId, Exit, ExitReason, Started},
};

/// Kubernetes' default grace.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// The part of a pod that decisions are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) name: String,
    pub(crate) generation: Option<i64>,
    /// Init containers in their order.
    pub(crate) init: Vec<ContainerWish>,
    pub(crate) main: Vec<ContainerWish>,
    /// Added to the running pod, each for one run.
    pub(crate) ephemeral: Vec<ContainerWish>,
    pub(crate) restart: RestartPolicy,
    pub(crate) grace: Duration,
    /// `activeDeadlineSeconds`.
    pub(crate) deadline: Option<Duration>,
    /// The grace of a requested deletion.
    pub(crate) deletion: Option<Duration>,
    /// The phase at the API server is final: nothing starts any more.
    pub(crate) is_over: bool,
    /// Condition types that must hold besides the containers being ready.
    pub(crate) readiness_gates: Vec<String>,
    /// Conditions of the pod that are true, including those that other controllers set.
    pub(crate) true_conditions: Vec<String>,
    /// When the condition of a readiness gate last changed.
    pub(crate) gates_changed_at: Option<Timestamp>,
}

/// The part of a container that decisions and status are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerWish {
    pub(crate) name: String,
    pub(crate) image: String,
    /// The signal that stops it.
    pub(crate) stop_signal: i32,
    pub(crate) probes: Probes,
    /// An init container that runs beside the main containers (`restartPolicy: Always`).
    pub(crate) is_sidecar: bool,
    /// What has to happen before it counts as running.
    pub(crate) post_start: Option<Hook>,
    /// What has to happen before it gets its stop signal.
    pub(crate) pre_stop: Option<Hook>,
}

/// When an ended container runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl Desired {
    pub(crate) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let meta = &pod.metadata;
        let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
        let grace = spec
            .termination_grace_period_seconds
            .map_or(DEFAULT_GRACE, seconds);
        let status = pod.status.as_ref();
        let conditions = status
            .and_then(|s| s.conditions.as_ref())
            .into_iter()
            .flatten();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            generation: meta.generation,
            init: spec
                .init_containers
                .iter()
                .flatten()
                .map(init_wish)
                .collect(),
            main: spec.containers.iter().map(wish).collect(),
            ephemeral: ephemeral::containers(&spec).iter().map(wish).collect(),
            restart: match spec.restart_policy.as_deref() {
                Some("Never") => RestartPolicy::Never,
                Some("OnFailure") => RestartPolicy::OnFailure,
                _ => RestartPolicy::Always,
            },
            grace,
            deadline: spec.active_deadline_seconds.map(seconds),
            deletion: meta
                .deletion_timestamp
                .as_ref()
                .map(|_| meta.deletion_grace_period_seconds.map_or(grace, seconds)),
            is_over: status
                .and_then(|s| s.phase.as_deref())
                .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed")),
            readiness_gates: spec
                .readiness_gates
                .iter()
                .flatten()
                .map(|gate| gate.condition_type.clone())
                .collect(),
            gates_changed_at: conditions
                .clone()
                .filter(|c| {
                    let mut gates = spec.readiness_gates.iter().flatten();
                    gates.any(|gate| gate.condition_type == c.type_)
                })
                .filter_map(|c| c.last_transition_time.as_ref().map(|time| time.0))
                .max(),
            true_conditions: conditions
                .filter(|c| c.status == "True")
                .map(|c| c.type_.clone())
                .collect(),
        }
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &ContainerWish> {
        self.init.iter().chain(&self.main).chain(&self.ephemeral)
    }

    pub(crate) fn is_ephemeral(&self, container: &ContainerWish) -> bool {
        self.ephemeral.iter().any(|it| it.name == container.name)
    }

    /// The containers that run beside each other, and that make the pod ready: sidecars, then the main ones.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = &ContainerWish> {
        let sidecars = self.init.iter().filter(|c| c.is_sidecar);
        sidecars.chain(&self.main)
    }

    pub(crate) fn find(&self, container: &str) -> Option<&ContainerWish> {
        self.containers().find(|c| c.name == container)
    }
}

fn wish(container: &Container) -> ContainerWish {
    let lifecycle = container.lifecycle.as_ref();
    let signal = lifecycle
        .and_then(|l| l.stop_signal.as_deref())
        .and_then(|name| name.parse::<nix::sys::signal::Signal>().ok());
    let hook = |handler: Option<&LifecycleHandler>| handler.map(|it| Hook::of(it, container));
    ContainerWish {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        stop_signal: signal.unwrap_or(nix::sys::signal::Signal::SIGTERM) as i32,
        probes: Probes::of(container),
        is_sidecar: false,
        post_start: hook(lifecycle.and_then(|l| l.post_start.as_ref())),
        pre_stop: hook(lifecycle.and_then(|l| l.pre_stop.as_ref())),
    }
}

fn init_wish(container: &Container) -> ContainerWish {
    ContainerWish {
        is_sidecar: container.restart_policy.as_deref() == Some("Always"),
        ..wish(container)
    }
}

/// Everything that the node knows about one of its pods.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// When the node first saw the pod: its `startTime`.
    pub(crate) acknowledged_at: Timestamp,
    pub(crate) preparation: Preparation,
    /// A shim is connected.
    pub(crate) has_shim: bool,
    /// The connected shim was found running, and has not yet reported everything that it knows.
    pub(crate) is_behind: bool,
    /// The attempts of each container, oldest first.
    pub(crate) attempts: BTreeMap<String, Vec<Attempt>>,
    /// What probes have found out about runs of containers; runs without probes have no entry.
    pub(crate) health: BTreeMap<AttemptId, Health>,
    /// The postStart hooks of runs of containers, as far as they have begun.
    pub(crate) post_start: BTreeMap<AttemptId, HookState>,
    /// Containers that are being ended.
    pub(crate) ending: BTreeMap<AttemptId, Ending>,
    pub(crate) stop: Option<Stop>,
    /// A stop that an earlier node began and may not have seen through.
    pub(crate) begun_stop: Option<BegunStop>,
    /// The object is gone from the API server.
    pub(crate) is_gone: bool,
    pub(crate) publication: Publication,
    pub(crate) refresh: Refresh,
}

/// How far the way to a running shim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    Needed,
    Running,
    Failed {
        refusal: Refusal,
        n_failures: u32,
        /// When the last try failed.
        since: Timestamp,
        /// When to try again; `None` while a try is under way.
        again_at: Option<Timestamp>,
    },
    Ready,
}

/// One attempt of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) state: AttemptState,
}

/// The state of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// The node has sent the shim the command to start it.
    Requested,
    Running(Started),
    Exited(Exit),
}

/// How far a hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookState {
    Running,
    Done,
    Failed,
}

/// One container is being ended: its preStop hook runs, then it gets its stop signal, and in the end it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// When its grace began.
    pub(crate) since: Timestamp,
    /// Its preStop hook, once that has begun.
    pub(crate) hook: Option<HookState>,
    /// When it got its stop signal.
    pub(crate) asked_at: Option<Timestamp>,
    pub(crate) is_killed: bool,
}

impl Ending {
    /// A container whose grace begins.
    pub(crate) fn begun(since: Timestamp) -> Self {
        Self {
            since,
            hook: None,
            asked_at: None,
            is_killed: false,
        }
    }

    /// A container that got its stop signal at the beginning of its grace.
    pub(crate) fn asked(since: Timestamp) -> Self {
        Self {
            asked_at: Some(since),
            ..Self::begun(since)
        }
    }
}

/// Containers are being stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    pub(crate) since: Timestamp,
    pub(crate) is_killed: bool,
}

/// What must be known of a stop to go on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BegunStop {
    pub(crate) cause: StopCause,
    pub(crate) since: Timestamp,
    /// The attempts that got their stop signal. Until there is one, a node that comes back begins the grace anew.
    #[serde(default)]
    pub(crate) asked: BTreeSet<AttemptId>,
}

/// Why containers are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StopCause {
    /// The pod object was deleted.
    Deleted,
    /// The pod has run longer than it may.
    DeadlineExceeded,
    /// The pod is over at the API server (evicted, say) or gone.
    Over,
    /// The main containers have ended, or an init container has failed for good: the sidecars are not needed any more.
    Completed,
}

/// What the API server knows from us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Publication {
    /// The last status that it took.
    pub(crate) written: Option<Value>,
    /// Since when the status is another one.
    pub(crate) changed_at: Option<Timestamp>,
    pub(crate) is_in_flight: bool,
    /// The last write failed: not before this time again.
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) n_failures: u32,
    /// The object's last deletion was accepted.
    pub(crate) is_deleted: bool,
}

/// When the volumes of files get new content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refresh {
    /// `None` while nothing in them changes by itself.
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) is_in_flight: bool,
    /// Something has changed since the refresh in flight began.
    pub(crate) is_outdated: bool,
    /// In a row.
    pub(crate) n_failures: u32,
}

impl Local {
    pub(crate) fn new(acknowledged_at: Timestamp) -> Self {
        Self {
            acknowledged_at,
            preparation: Preparation::Needed,
            has_shim: false,
            is_behind: false,
            attempts: BTreeMap::new(),
            health: BTreeMap::new(),
            post_start: BTreeMap::new(),
            ending: BTreeMap::new(),
            stop: None,
            begun_stop: None,
            is_gone: false,
            publication: Publication::default(),
            refresh: Refresh::default(),
        }
    }

    pub(crate) fn attempts_of(&self, container: &str) -> &[Attempt] {
        self.attempts.get(container).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn last(&self, container: &str) -> Option<&Attempt> {
        self.attempts_of(container).last()
    }

    /// Why the node never runs the pod, if it does not.
    pub(crate) fn rejection(&self) -> Option<&Refusal> {
        match &self.preparation {
            Preparation::Failed { refusal, .. } => Some(refusal).filter(|it| it.is_rejection()),
            Preparation::Needed | Preparation::Running | Preparation::Ready => None,
        }
    }

    /// The health of one run.
    pub(crate) fn health_of(&self, wish: &ContainerWish, attempt: u32) -> Health {
        let id = AttemptId {
            container: wish.name.clone(),
            attempt,
        };
        let known = self.health.get(&id).cloned();
        known.unwrap_or_else(|| Health::new(&wish.probes))
    }

    /// Whether a run counts as running: its postStart hook is done, or it has none.
    pub(crate) fn is_up(&self, wish: &ContainerWish, attempt: u32) -> bool {
        let id = AttemptId {
            container: wish.name.clone(),
            attempt,
        };
        wish.post_start.is_none() || self.post_start.get(&id) == Some(&HookState::Done)
    }

    /// Whether a container runs and has come up: its startup probe has succeeded, or it has none.
    pub(crate) fn has_started(&self, wish: &ContainerWish) -> bool {
        self.last(&wish.name).is_some_and(|last| {
            matches!(last.state, AttemptState::Running(_))
                && self.is_up(wish, last.number)
                && self.health_of(wish, last.number).is_started
        })
    }

    /// Attempts that were requested and have not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = AttemptId> {
        self.attempts.iter().flat_map(|(container, attempts)| {
            let live = attempts
                .iter()
                .filter(|a| !matches!(a.state, AttemptState::Exited(_)));
            live.map(|a| AttemptId {
                container: container.clone(),
                attempt: a.number,
            })
        })
    }

    /// Records what is known about an attempt; an end is never taken back. Returns whether that changed anything.
    pub(crate) fn learn(&mut self, id: &AttemptId, state: AttemptState) -> bool {
        let attempts = self.attempts.entry(id.container.clone()).or_default();
        match attempts.iter_mut().find(|a| a.number == id.attempt) {
            Some(Attempt {
                state: AttemptState::Exited(_),
                ..
            }) => false,
            Some(attempt) if attempt.state == state => false,
            Some(attempt) => {
                attempt.state = state;
                true
            }
            None => {
                attempts.push(Attempt {
                    number: id.attempt,
                    state,
                });
                attempts.sort_by_key(|a| a.number);
                true
            }
        }
    }

    /// Forgets a start request that did not reach the shim.
    pub(crate) fn forget(&mut self, id: &AttemptId) {
        if let Some(attempts) = self.attempts.get_mut(&id.container) {
            attempts.retain(|a| a.number != id.attempt);
        }
    }
}

impl Exit {
    /// Whether Kubernetes calls this exit a success.
    pub(crate) fn is_success(&self) -> bool {
        self.code == 0 && self.reason == ExitReason::Completed
    }
}
