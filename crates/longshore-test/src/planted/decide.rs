//! The toy's decision, right and wrong.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use longshore_core::{
    Action, Announcement, ChildIdentity, Create, Delete, EventType, Next, ObjectRef, Plan,
    Resource, Seen,
};
use serde_json::json;

use super::Bug;
use crate::scripted_node::ANNOTATION_SCRIPT;

/// The annotation that only the pod of one attempt of one order carries.
pub(super) const ANNOTATION_IDENTITY: &str = "test.longshore.dev/identity";
/// The label that says which order a pod is for.
pub(super) const LABEL_ORDER: &str = "test.longshore.dev/order";
/// The label that says which attempt it is.
pub(super) const LABEL_ATTEMPT: &str = "try_number";
/// When to repeat a read that failed: no event says that the read is possible now.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What the toy sees in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The order.
    pub order: Seen<Order>,
    /// Its pods.
    pub pods: Seen<Vec<OrderPod>>,
    /// Whether the creation of its pod was refused for good.
    pub is_refused: bool,
    /// How many of its creates failed since the process started.
    pub n_failed_creates: u32,
    /// The time.
    pub now: Timestamp,
}

/// A ConfigMap that orders a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The ConfigMap.
    pub target: ObjectRef,
    /// The version that was seen.
    pub version: String,
    /// The script of its pods.
    pub script: String,
    /// The number of its attempts.
    pub n_attempts: u32,
    /// The state of the order.
    pub state: State,
}

/// The state of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was done.
    New,
    /// This attempt was or is about to be created.
    Running(u32),
    /// This was the last attempt, and it succeeded.
    Succeeded(u32),
    /// This was the last attempt, and it failed.
    Failed(u32),
}

/// A pod of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderPod {
    /// The pod.
    pub target: ObjectRef,
    /// Which attempt it is.
    pub attempt: u32,
    /// The phase of the pod.
    pub phase: Option<PodPhase>,
    /// Whether the pod was seen running before.
    pub was_seen_running: bool,
    /// Whether the pod is being deleted.
    pub is_deleting: bool,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not started, or running.
    Unfinished,
    /// Exited with 0.
    Succeeded,
    /// Exited otherwise.
    Failed,
}

/// What the toy records.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The ConfigMap.
    pub target: ObjectRef,
    /// The version decided upon.
    pub version: String,
    /// The new state.
    pub state: State,
    /// Only with [`Bug::NeverQuiet`].
    pub checked_at: Option<Timestamp>,
}

/// The effects that only toys with a bug have.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Creates; an existing object is fine, whatever its owner.
    CreateAnyhow(Create),
    /// Creates, and counts failures.
    CreateCounted(Create),
    /// Deletes; an error is fine.
    DeleteAnyhow(ObjectRef),
}

pub(super) type OrderPlan = Plan<Status, Effect>;

impl Bug {
    /// Decides as a controller with this bug.
    pub(super) fn plan(self, observed: &Observed) -> OrderPlan {
        let order = match &observed.order {
            Seen::Present(order) => order,
            Seen::Absent => return Plan::await_change(),
            Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
        };
        let nothing = Vec::new();
        let pods = match &observed.pods {
            Seen::Present(pods) => pods,
            Seen::Absent => &nothing,
            Seen::Unknown(_) if self == Self::UnknownIsAbsent => &nothing,
            Seen::Unknown(_) if self == Self::AwaitsTheUnknown => return Plan::await_change(),
            Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
        };
        let mut plan = match order.state {
            State::New => self.begin(observed, order, 1),
            State::Running(attempt) => self.go_on(observed, order, attempt, pods),
            State::Failed(attempt) if self == Self::LeavesTerminal && attempt == 1 => {
                self.begin(observed, order, 2)
            }
            State::Succeeded(_) | State::Failed(_) => self.clean_up(observed, order, pods),
        };
        if self == Self::Unbounded && !plan.actions.is_empty() {
            plan.actions.extend((0..20).map(|n| announce(order, n)));
        }
        plan
    }

    fn begin(self, observed: &Observed, order: &Order, attempt: u32) -> OrderPlan {
        let record = persist(order, State::Running(attempt));
        let create = self.create(observed, order, attempt);
        if self == Self::CreatesBeforePersist {
            return Plan::of(vec![create, record]);
        }
        Plan::of(vec![record, create])
    }

    fn go_on(
        self,
        observed: &Observed,
        order: &Order,
        attempt: u32,
        pods: &[OrderPod],
    ) -> OrderPlan {
        if observed.is_refused {
            return Plan::of(vec![persist(order, State::Failed(attempt))]);
        }
        let pod = pods.iter().find(|pod| pod.attempt == attempt);
        let pod = pod.filter(|pod| {
            self != Self::RenamesOnRetry
                || pod.target.name == self.pod_name(observed, order, attempt)
        });
        let Some(pod) = pod else {
            if self == Self::GivesUpAfterTwo && observed.n_failed_creates >= 2 {
                return Plan::of(vec![persist(order, State::Failed(attempt))]);
            }
            if self == Self::OutcomeBeforeEffect {
                return self.fail(observed, order, attempt, pods);
            }
            return Plan::of(vec![self.create(observed, order, attempt)]);
        };
        match pod.phase {
            Some(PodPhase::Succeeded | PodPhase::Failed)
                if self == Self::NeedsTheEvent && !pod.was_seen_running =>
            {
                Plan::await_change()
            }
            Some(PodPhase::Succeeded) => self.end(order, State::Succeeded(attempt), pods),
            Some(PodPhase::Failed) => self.fail(observed, order, attempt, pods),
            Some(PodPhase::Unfinished) => Plan::await_change(),
            None => {
                assert!(self != Self::Panics, "a pod has a phase");
                Plan::await_change()
            }
        }
    }

    fn fail(
        self,
        observed: &Observed,
        order: &Order,
        attempt: u32,
        pods: &[OrderPod],
    ) -> OrderPlan {
        if attempt < order.n_attempts {
            self.begin(observed, order, attempt + 1)
        } else {
            self.end(order, State::Failed(attempt), pods)
        }
    }

    fn end(self, order: &Order, state: State, pods: &[OrderPod]) -> OrderPlan {
        let mut actions = vec![persist(order, state)];
        actions.extend(self.deletes(pods));
        Plan::of(actions)
    }

    fn clean_up(self, observed: &Observed, order: &Order, pods: &[OrderPod]) -> OrderPlan {
        if self == Self::DropsFailedDeletes {
            return Plan::await_change(); // It has been done, hasn't it?
        }
        if self == Self::NeverQuiet {
            let status = Status {
                checked_at: Some(observed.now),
                ..record(order, order.state)
            };
            return Plan {
                actions: vec![Action::Persist(status)],
                next: Next::After(Duration::from_secs(20)),
            };
        }
        Plan::of(self.deletes(pods).collect())
    }

    fn deletes(self, pods: &[OrderPod]) -> impl Iterator<Item = Action<Status, Effect>> {
        let pods = pods.iter().filter(|pod| !pod.is_deleting);
        pods.map(move |pod| {
            let mut target = pod.target.clone();
            if self == Self::DropsFailedDeletes {
                return Action::Call(Effect::DeleteAnyhow(target));
            }
            if self == Self::DeletesWithoutUid {
                target.uid = None;
            }
            Action::Delete(Delete {
                target,
                grace_period_seconds: None,
                resource_version: None,
                waits_for_dependents: false,
            })
        })
    }

    fn pod_name(self, observed: &Observed, order: &Order, attempt: u32) -> String {
        let name = format!("{}-{attempt}", order.target.name);
        if self == Self::RandomNames {
            return format!("{name}-{}", uuid::Uuid::new_v4());
        }
        if self == Self::RenamesOnRetry && observed.n_failed_creates > 0 {
            return format!("{name}-{}", observed.n_failed_creates);
        }
        name
    }

    fn create(self, observed: &Observed, order: &Order, attempt: u32) -> Action<Status, Effect> {
        let create = pod(order, attempt, &self.pod_name(observed, order, attempt));
        if self == Self::AdoptsAnything {
            return Action::Call(Effect::CreateAnyhow(create));
        }
        if matches!(self, Self::RenamesOnRetry | Self::GivesUpAfterTwo) {
            return Action::Call(Effect::CreateCounted(create));
        }
        Action::Create(create)
    }
}

fn pod(order: &Order, attempt: u32, name: &str) -> Create {
    let uid = order.target.uid.clone().unwrap_or_default();
    let identity = format!("{uid}/{attempt}");
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": order.target.namespace,
            "labels": {LABEL_ORDER: order.target.name, LABEL_ATTEMPT: attempt.to_string()},
            "annotations": {ANNOTATION_IDENTITY: identity, ANNOTATION_SCRIPT: order.script},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "base", "image": "example.test/image:1"}],
        },
    });
    Create {
        resource: Resource::POD,
        object,
        identity: ChildIdentity::annotation(ANNOTATION_IDENTITY, identity),
    }
}

fn persist(order: &Order, state: State) -> Action<Status, Effect> {
    Action::Persist(record(order, state))
}

fn record(order: &Order, state: State) -> Status {
    Status {
        target: order.target.clone(),
        version: order.version.clone(),
        state,
        checked_at: None,
    }
}

fn announce(order: &Order, n: u32) -> Action<Status, Effect> {
    Action::Announce(Announcement {
        regarding: order.target.clone(),
        event_type: EventType::Normal,
        reason: "Busy",
        note: format!("step {n}"),
    })
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::Running(attempt) => write!(f, "running {attempt}"),
            Self::Succeeded(attempt) => write!(f, "succeeded {attempt}"),
            Self::Failed(attempt) => write!(f, "failed {attempt}"),
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, attempt) = text.split_once(' ').unwrap_or((text, "0"));
        let attempt = attempt
            .parse()
            .map_err(|_| format!("no attempt: {text:?}"))?;
        match word {
            "" | "new" => Ok(Self::New),
            "running" => Ok(Self::Running(attempt)),
            "succeeded" => Ok(Self::Succeeded(attempt)),
            "failed" => Ok(Self::Failed(attempt)),
            _ => Err(format!("no state: {text:?}")),
        }
    }
}
