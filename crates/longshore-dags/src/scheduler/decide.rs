//! What follows from the facts: at most one set of changes, and when to look again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{Never, Plan};
use longshore_store::{Changes, Heartbeats};

use crate::scheduler::{
    board::Board,
    decide::round::Round,
    facts::Fact,
    worker::{RequestId, WorkerAnswer},
};

mod advance;
mod clear;
mod give_up;
mod pod_facts;
mod round;
mod run_facts;
mod work;
mod worker;

pub(crate) use pod_facts::{deadline, limit};
pub(crate) use worker::REASON_TASK_FAILED;

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The clock.
    pub now: Timestamp,
    /// The committed state.
    pub board: Board,
    /// What has happened since the last commit, in order.
    pub facts: Vec<Fact>,
    /// The newest `resourceVersion` among the facts, or of a bookmark. It is stored together with other rows, or alone
    /// where `store_position` asks for it.
    pub watch_position: Option<String>,
    /// Whether to store the position although nothing else changes (by bookmark, at most once a second).
    pub store_position: bool,
    /// What bounds the scheduler.
    pub limits: Limits,
    /// When workers were last heard.
    pub heartbeats: Arc<Heartbeats>,
}

/// What bounds the scheduler, from Airflow's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Task instances queued or running at the same time; `[core] parallelism`.
    pub parallelism: u32,
    /// No wait between two tries is longer; `[core] max_task_retry_delay`.
    pub max_task_retry_delay: Duration,
    /// How often a pod that died before its process ran is replaced within the same try; `None` is no bound.
    /// `[kubernetes_executor] pod_launch_failure_retries`, whose -1 is `None` here.
    pub pod_launch_failure_retries: Option<u32>,
    /// Reasons for which such a pod is not replaced; `[kubernetes_executor]
    /// pod_launch_failure_excluded_container_reasons`.
    pub excluded_reasons: BTreeSet<String>,
    /// A worker that was not heard for longer is dead; `[scheduler] task_instance_heartbeat_timeout`.
    pub heartbeat_timeout: Duration,
    /// A try that is queued for longer, and whose worker has not begun, is stuck; `[scheduler] task_queued_timeout`.
    pub queued_timeout: Duration,
    /// How often a stuck try gets another pod before it fails; `[scheduler] num_stuck_in_queued_retries`. Pods that died
    /// before their process ran count too.
    pub stuck_in_queued_retries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            parallelism: 32,
            max_task_retry_delay: Duration::from_secs(86_400),
            pod_launch_failure_retries: Some(1),
            excluded_reasons: BTreeSet::from(["Error".to_owned()]),
            heartbeat_timeout: Duration::from_secs(300),
            queued_timeout: Duration::from_secs(600),
            stuck_in_queued_retries: 2,
        }
    }
}

/// Decides one round: what the facts say, in order, and all that follows from it, up to the slots that became free.
///
/// The plan holds at most one `Persist`, in which each row appears at most once with the version that it has on the
/// board; an empty plan means that nothing follows. `next` is the earliest retry or timeout.
///
/// Costs as much as the active runs have tasks and edges, plus a sort of the scheduled task instances while slots are
/// free; nothing is quadratic. Measured with optimisation: about 50 µs for 1,000 parallel task instances.
pub fn decide(observed: &Observed) -> Plan<Changes, Never> {
    decide_and_answer(observed).plan
}

/// What a round decides.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The changes, and when to look again.
    pub plan: Plan<Changes, Never>,
    /// The answers to workers, one for each of their facts, for when the changes are committed. `None` where the id of the
    /// try is that of no present try of a run that goes on.
    pub answers: Vec<(RequestId, Option<WorkerAnswer>)>,
}

/// The same as [`decide`], with the answers to workers.
pub fn decide_and_answer(observed: &Observed) -> Decision {
    let mut round = Round::new(observed);
    for fact in &observed.facts {
        round.take(fact);
    }
    round.advance_runs();
    round.start_runs();
    round.queue_task_instances();
    round.into_decision()
}
