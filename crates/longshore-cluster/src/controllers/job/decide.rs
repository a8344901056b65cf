//! What one round of a Job does. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{
    claims,
    manage::{Work, manage},
    model::{Desired, Mode, Observed, until},
    pod, policy,
    policy::Outcome,
    status::{self, Written},
    tally::Tally,
};
use crate::controllers::workloads::{
    hands::{Note, Request, Target},
    pods,
};

/// The requests of one round, in their order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Adoptions and releases. Nothing else happens in such a round.
    pub(super) claims: Vec<Request>,
    pub(super) status: Option<Request>,
    pub(super) notes: Vec<Note>,
    /// Finalizers of pods whose end the status has.
    pub(super) let_go: Vec<Request>,
    /// Pods that are too many: each is let go of, and then deleted.
    pub(super) retire: Vec<(Request, Request)>,
    /// Pods of a Job that has ended.
    pub(super) delete: Vec<Request>,
    pub(super) create: Vec<Value>,
    /// The time after the end is over: the Job itself goes.
    pub(super) is_over: bool,
    pub(super) again: Option<Duration>,
}

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    fn failure(reason: &str, message: impl Into<String>) -> Option<Verdict> {
        Some(Verdict {
            is_success: false,
            reason: reason.to_owned(),
            message: message.into(),
        })
    }

    fn success(reason: &str, message: impl Into<String>) -> Option<Verdict> {
        Some(Verdict {
            is_success: true,
            reason: reason.to_owned(),
            message: message.into(),
        })
    }
}

pub(super) fn decide(desired: &Desired, observed: &Observed) -> Plan {
    if desired.is_managed_elsewhere() {
        return Plan::default();
    }
    let (mine, claims) = claims::sort(desired, observed);
    let now = observed.now;
    if !claims.is_empty() {
        return Plan {
            claims,
            ..Plan::default()
        };
    }
    if desired.end().is_some() {
        return after_the_end(desired, &mine, now);
    }
    let tally = Tally::of(desired, mine);
    let verdict = judge(desired, &tally, now);
    let is_going_on = verdict.is_none() && !desired.job.is_deleting();
    let work = if is_going_on {
        manage(desired, &tally, now)
    } else {
        Work::default()
    };
    let Written {
        request,
        notes,
        counted,
    } = status::write(desired, &tally, verdict.as_ref(), now);
    let delete = tally.active.iter().filter(|_| verdict.is_some());
    let time_left = desired.time_left(now).filter(|_| verdict.is_none());
    Plan {
        status: request,
        notes,
        let_go: counted.into_iter().map(pod::let_go).collect(),
        retire: work
            .retire
            .into_iter()
            .map(|it| (pod::let_go(it), deletion(it)))
            .collect(),
        delete: delete.map(|it| deletion(it)).collect(),
        create: work.create,
        again: [work.wait, time_left].into_iter().flatten().min(),
        ..Plan::default()
    }
}

/// Whether a Job ends, and how.
fn judge(desired: &Desired, tally: &Tally<'_>, now: Timestamp) -> Option<Verdict> {
    let known = |kind: &str, is_success: bool| {
        let condition = desired.holds(kind)?;
        Some(Verdict {
            is_success,
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        })
    };
    known("SuccessCriteriaMet", true)
        .or_else(|| known("FailureTarget", false))
        .or_else(|| by_failed_pods(desired, tally))
        .or_else(|| {
            let is_late = desired.time_left(now).is_some_and(|it| it.is_zero());
            let message = "Job was active longer than specified deadline";
            Verdict::failure("DeadlineExceeded", message).filter(|_| is_late)
        })
        .or_else(|| by_indexes(desired, tally))
        .or_else(|| by_completions(desired, tally))
}

fn by_failed_pods(desired: &Desired, tally: &Tally<'_>) -> Option<Verdict> {
    let failed = tally.pods.iter().filter(|it| pod::has_failed(desired, it));
    let why = failed
        .filter_map(|it| match policy::of_failure(desired, it) {
            Outcome::FailsJob(why) => Some(why),
            Outcome::Counts | Outcome::Ignored | Outcome::FailsIndex => None,
        })
        .next();
    if let Some(why) = why {
        return Verdict::failure("PodFailurePolicy", why);
    }
    let limit = i64::from(desired.spec.backoff_limit.unwrap_or(6));
    let n_failed = i64::try_from(tally.n_failed).unwrap_or(i64::MAX);
    let is_past = n_failed > limit || restarts_too_often(desired, tally, limit);
    let message = "Job has reached the specified backoff limit";
    Verdict::failure("BackoffLimitExceeded", message).filter(|_| is_past)
}

/// Containers that are started again in their pod fail too.
fn restarts_too_often(desired: &Desired, tally: &Tally<'_>, limit: i64) -> bool {
    if desired.job.at("/spec/template/spec/restartPolicy") != "OnFailure" {
        return false;
    }
    let is_alive = |it: &&&Pod| matches!(pods::phase(it), "Running" | "Pending");
    let statuses = tally
        .pods
        .iter()
        .filter(is_alive)
        .filter_map(|it| it.status.as_ref());
    let containers = statuses.flat_map(|it| {
        let lists = [&it.init_container_statuses, &it.container_statuses];
        lists.into_iter().flatten().flatten()
    });
    let n_restarts: i64 = containers.map(|it| i64::from(it.restart_count)).sum();
    if limit == 0 {
        n_restarts > 0
    } else {
        n_restarts >= limit
    }
}

fn by_indexes(desired: &Desired, tally: &Tally<'_>) -> Option<Verdict> {
    let Mode::Indexed { completions, .. } = desired.mode else {
        return None;
    };
    if let Some(failed) = &tally.failed {
        let most = desired.spec.max_failed_indexes;
        let most = most.and_then(|it| usize::try_from(it).ok());
        if most.is_some_and(|most| failed.total() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Verdict::failure("MaxFailedIndexesExceeded", message);
        }
        let n_over = failed.total() + tally.succeeded.total();
        if failed.total() > 0 && n_over >= completions {
            return Verdict::failure("FailedIndexes", "Job has failed indexes");
        }
    }
    let message = policy::of_success(desired, completions, &tally.succeeded)?;
    Verdict::success("SuccessPolicy", message)
}

fn by_completions(desired: &Desired, tally: &Tally<'_>) -> Option<Verdict> {
    let is_enough = match desired.mode {
        Mode::Plain { completions: None } => tally.n_succeeded > 0,
        Mode::Plain {
            completions: Some(completions),
        }
        | Mode::Indexed { completions, .. } => tally.n_succeeded >= completions,
    };
    let message = "Reached expected number of succeeded pods";
    let success = Verdict::success("CompletionsReached", message);
    success.filter(|_| is_enough && tally.active.is_empty())
}

/// Pods that are left, made by a request that came late, and the time until the Job goes.
fn after_the_end(desired: &Desired, mine: &[&Pod], now: Timestamp) -> Plan {
    let ended_at = desired
        .end()
        .and_then(|it| it.last_transition_time.as_ref());
    let ttl = desired.spec.ttl_seconds_after_finished.map(i64::from);
    let left = ttl.map(|ttl| until(ended_at.map_or(now, |it| it.0), ttl, now));
    let left = left.filter(|_| !desired.job.is_deleting());
    let tracked = mine.iter().filter(|it| pod::is_tracked(it));
    let active = mine.iter().filter(|it| pods::is_active(it));
    Plan {
        let_go: tracked.map(|it| pod::let_go(it)).collect(),
        delete: active.map(|it| deletion(it)).collect(),
        is_over: left.is_some_and(|it| it.is_zero()),
        again: left.filter(|it| !it.is_zero()),
        ..Plan::default()
    }
}

fn deletion(pod: &Pod) -> Request {
    Request::Delete {
        target: Target::Pod,
        name: pods::name(pod).to_owned(),
        uid: pods::uid(pod).to_owned(),
    }
}
