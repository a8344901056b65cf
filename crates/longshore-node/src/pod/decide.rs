//! What to do next for one pod: a pure function of its specification, of the known facts, and of the time.

use std::time::Duration;

use jiff::Timestamp;
use longshore_k8s::Backoff;
use serde_json::Value;

use super::model::{
    Attempt, AttemptState, ContainerWish, Desired, Local, Preparation, RestartPolicy, StopCause,
};
use crate::shim::protocol::{AttemptId, Exit};

/// Kubernetes' back-off of crashing containers; the first restart is immediate.
const CRASH_LOOP: Backoff = Backoff {
    first: Duration::from_secs(10),
    max: Duration::from_secs(300),
};
/// A container that ran this long starts with a clean slate.
const CRASH_LOOP_RESET: Duration = Duration::from_secs(600);
/// How long to wait before trying again what a pod needs and does not get.
pub(crate) const PREPARE_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// A pod that ends within this time costs one status write less.
const QUIET_START: Duration = Duration::from_millis(20);

/// One effect on shim, disk or API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Read what the pod refers to, make its volumes, start its shim.
    Prepare,
    /// Have the shim start an attempt.
    Start(AttemptId),
    /// Read what the pod refers to again, and bring its volumes up to date.
    Refresh,
    /// Ask every container to end.
    Stop(StopCause),
    /// Ask one container to end, because a probe has given it up.
    End(AttemptId),
    /// End one container that did not end by itself.
    KillOne(AttemptId),
    /// End every container.
    Kill,
    /// Write the status.
    Publish(Value),
    /// Delete the object for good.
    DeleteObject,
    /// End the shim: nothing will run any more.
    Release,
    /// Drop everything that is kept about the pod.
    Forget,
}

/// What to do now and when to look again even if nothing happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) wake_at: Option<Timestamp>,
}

/// How the containers of a pod go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Nothing runs and nothing will.
    Over(Final),
    /// These attempts are due.
    Start(Vec<AttemptId>),
    /// Something runs, or will at this time.
    Wait(Option<Timestamp>),
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Final {
    Succeeded,
    Failed,
}

/// Decides. `status` is what [`status::build`](super::status::build) makes of the same inputs.
pub(crate) fn decide(desired: &Desired, local: &Local, status: &Value, now: Timestamp) -> Plan {
    let mut plan = Plan {
        actions: Vec::new(),
        wake_at: None,
    };
    if local.is_behind {
        return plan;
    }
    let outlook = outlook(desired, local, now);
    if local.is_gone {
        decide_gone(local, &mut plan);
        return plan;
    }
    match stop_cause(desired, local, now) {
        Some(cause) if local.stop.is_none() => plan.actions.push(Action::Stop(cause)),
        Some(_) => decide_stopping(desired, local, now, &mut plan),
        None => {
            decide_doomed(desired, local, now, &mut plan);
            decide_running(desired, local, &outlook, now, &mut plan);
        }
    }
    let is_over = matches!(outlook, Outlook::Over(_));
    if !is_over {
        decide_refresh(local, now, &mut plan);
    }
    decide_publication(desired, local, status, is_over, now, &mut plan);
    let is_told = desired.is_over || local.publication.written.as_ref() == Some(status);
    if is_over && is_told {
        if local.has_shim {
            plan.actions.push(Action::Release);
        }
        let publication = &local.publication;
        if desired.deletion.is_some() && !publication.is_deleted && !publication.is_in_flight {
            match publication.not_before.filter(|at| *at > now) {
                Some(at) => wake(&mut plan, at),
                None => plan.actions.push(Action::DeleteObject),
            }
        }
    }
    plan
}

/// The object is gone: the plan ends the processes and removes the files, and reports nothing.
fn decide_gone(local: &Local, plan: &mut Plan) {
    // Without a shim nothing runs, whatever could not be read about it.
    if local.has_shim && local.live().next().is_some() {
        if local.stop.as_ref().is_none_or(|stop| !stop.is_killed) {
            plan.actions.push(Action::Kill);
        }
    } else if local.preparation != Preparation::Running {
        plan.actions.push(Action::Forget);
    }
}

/// Why the containers must end, if they must.
fn stop_cause(desired: &Desired, local: &Local, now: Timestamp) -> Option<StopCause> {
    if let Some(stop) = &local.stop {
        return Some(stop.cause);
    }
    if let Some(begun) = &local.begun_stop {
        return Some(begun.cause);
    }
    if desired.deletion.is_some() {
        return Some(StopCause::Deleted);
    }
    if desired.is_over {
        return Some(StopCause::Over);
    }
    let is_over = matches!(outlook(desired, local, now), Outlook::Over(_));
    let deadline = deadline(desired, local).filter(|at| *at <= now && !is_over);
    deadline.map(|_| StopCause::DeadlineExceeded)
}

fn deadline(desired: &Desired, local: &Local) -> Option<Timestamp> {
    desired
        .deadline
        .map(|limit| later(local.acknowledged_at, limit))
}

fn decide_stopping(desired: &Desired, local: &Local, now: Timestamp, plan: &mut Plan) {
    let Some(stop) = local.stop.as_ref().filter(|stop| !stop.is_killed) else {
        return;
    };
    if local.live().next().is_none() {
        return;
    }
    // A second deletion may shorten the grace.
    let kill_at = later(stop.since, desired.deletion.unwrap_or(desired.grace));
    if kill_at <= now {
        plan.actions.push(Action::Kill);
    } else {
        wake(plan, kill_at);
    }
}

/// Containers that a probe has given up get their grace, then they are killed.
fn decide_doomed(desired: &Desired, local: &Local, now: Timestamp, plan: &mut Plan) {
    for id in local.live() {
        let Some((kind, _)) = local.health.get(&id).and_then(|health| health.doom) else {
            continue;
        };
        let Some(ending) = local.ending.get(&id) else {
            plan.actions.push(Action::End(id));
            continue;
        };
        let wish = desired.main.iter().find(|c| c.name == id.container);
        let grace = wish.and_then(|c| c.probes.get(kind)?.grace);
        let kill_at = later(ending.since, grace.unwrap_or(desired.grace));
        if ending.is_killed {
            continue;
        }
        if kill_at <= now {
            plan.actions.push(Action::KillOne(id));
        } else {
            wake(plan, kill_at);
        }
    }
}

fn decide_running(
    desired: &Desired,
    local: &Local,
    outlook: &Outlook,
    now: Timestamp,
    plan: &mut Plan,
) {
    if let (Some(at), false) = (
        deadline(desired, local),
        matches!(outlook, Outlook::Over(_)),
    ) {
        wake(plan, at);
    }
    match outlook {
        Outlook::Over(_) | Outlook::Wait(None) => {}
        Outlook::Wait(Some(at)) => wake(plan, *at),
        Outlook::Start(due) => match &local.preparation {
            Preparation::Ready => plan.actions.extend(due.iter().cloned().map(Action::Start)),
            Preparation::Needed => plan.actions.push(Action::Prepare),
            Preparation::Running | Preparation::Failed { again_at: None, .. } => {}
            Preparation::Failed {
                again_at: Some(at), ..
            } if *at <= now => {
                plan.actions.push(Action::Prepare);
            }
            Preparation::Failed {
                again_at: Some(at), ..
            } => wake(plan, *at),
        },
    }
}

/// Tokens are renewed also while containers are being stopped: their last words may need one.
fn decide_refresh(local: &Local, now: Timestamp, plan: &mut Plan) {
    let refresh = &local.refresh;
    let Some(due_at) = refresh.due_at.filter(|_| local.has_shim) else {
        return;
    };
    if refresh.is_in_flight {
        return;
    }
    if due_at <= now {
        plan.actions.push(Action::Refresh);
    } else {
        wake(plan, due_at);
    }
}

fn decide_publication(
    desired: &Desired,
    local: &Local,
    status: &Value,
    is_over: bool,
    now: Timestamp,
    plan: &mut Plan,
) {
    let publication = &local.publication;
    let Some(changed_at) = publication.changed_at.filter(|_| !publication.is_in_flight) else {
        return;
    };
    if desired.is_over {
        return;
    }
    let is_refused = matches!(local.preparation, Preparation::Failed { .. });
    let has_begun = local
        .attempts
        .values()
        .flatten()
        .any(|a| a.state != AttemptState::Requested);
    if !(is_over || is_refused || has_begun) {
        // That the pod is on its way is no news: its binding said so.
        return;
    }
    let patience = if is_over || is_refused {
        Duration::ZERO
    } else {
        QUIET_START
    };
    let due = later(changed_at, patience).max(publication.not_before.unwrap_or(changed_at));
    if due <= now {
        plan.actions.push(Action::Publish(status.clone()));
    } else {
        wake(plan, due);
    }
}

/// Derives how the containers of a pod go on.
pub(crate) fn outlook(desired: &Desired, local: &Local, now: Timestamp) -> Outlook {
    if local.stop.is_some() || desired.is_over {
        return match local.live().next() {
            Some(_) => Outlook::Wait(None),
            None => Outlook::Over(final_of_stopped(desired, local)),
        };
    }
    for container in &desired.init {
        match prospect(container, desired, local, now) {
            Prospect::Done(exit) if exit.is_success() => {}
            Prospect::Done(_) => return Outlook::Over(Final::Failed),
            Prospect::Due(id) => return Outlook::Start(vec![id]),
            Prospect::At(at) => return Outlook::Wait(Some(at)),
            Prospect::Live => return Outlook::Wait(None),
        }
    }
    let (mut due, mut next, mut n_live, mut has_failed) = (Vec::new(), None, 0, false);
    for container in &desired.main {
        match prospect(container, desired, local, now) {
            Prospect::Done(exit) => has_failed |= !exit.is_success(),
            Prospect::Due(id) => due.push(id),
            Prospect::At(at) => next = Some(next.map_or(at, |n: Timestamp| n.min(at))),
            Prospect::Live => n_live += 1,
        }
    }
    match (due.is_empty(), next, n_live) {
        (false, _, _) => Outlook::Start(due),
        (true, None, 0) => Outlook::Over(if has_failed {
            Final::Failed
        } else {
            Final::Succeeded
        }),
        (true, next, _) => Outlook::Wait(next),
    }
}

/// A pod whose containers were stopped succeeded only if all of them had succeeded by themselves.
fn final_of_stopped(desired: &Desired, local: &Local) -> Final {
    let is_deadline = local
        .stop
        .as_ref()
        .is_some_and(|s| s.cause == StopCause::DeadlineExceeded);
    let all_done = desired.main.iter().all(|c| {
        let last = local.last(&c.name).map(|a| &a.state);
        matches!(last, Some(AttemptState::Exited(exit)) if exit.is_success())
    });
    if all_done && !is_deadline {
        Final::Succeeded
    } else {
        Final::Failed
    }
}

/// How one container goes on.
enum Prospect<'a> {
    Done(&'a Exit),
    Due(AttemptId),
    At(Timestamp),
    Live,
}

fn prospect<'a>(
    container: &ContainerWish,
    desired: &Desired,
    local: &'a Local,
    now: Timestamp,
) -> Prospect<'a> {
    let attempt = |attempt| AttemptId {
        container: container.name.clone(),
        attempt,
    };
    let attempts = local.attempts_of(&container.name);
    let Some(last) = attempts.last() else {
        return Prospect::Due(attempt(0));
    };
    let AttemptState::Exited(exit) = &last.state else {
        return Prospect::Live;
    };
    let Some(wait) = restart_wait(container, desired, local) else {
        return Prospect::Done(exit);
    };
    let at = later(exit.finished_at, wait);
    if at <= now {
        Prospect::Due(attempt(last.number + 1))
    } else {
        Prospect::At(at)
    }
}

/// How long a container that has ended waits for its next run; `None` when it has not ended or stays so.
pub(crate) fn restart_wait(
    container: &ContainerWish,
    desired: &Desired,
    local: &Local,
) -> Option<Duration> {
    let attempts = local.attempts_of(&container.name);
    let AttemptState::Exited(exit) = &attempts.last()?.state else {
        return None;
    };
    let is_init = desired.init.iter().any(|c| c.name == container.name);
    let is_again = match desired.restart {
        RestartPolicy::Never => false,
        RestartPolicy::OnFailure => !exit.is_success(),
        // An init container that succeeded is done, whatever the policy.
        RestartPolicy::Always => !(is_init && exit.is_success()),
    };
    (is_again && local.stop.is_none() && !desired.is_over).then(|| crash_loop_wait(attempts))
}

/// The back-off after the last of these attempts.
fn crash_loop_wait(attempts: &[Attempt]) -> Duration {
    let mut n_restarts = 0;
    for attempt in attempts {
        let AttemptState::Exited(exit) = &attempt.state else {
            continue;
        };
        let ran = exit
            .started_at
            .map(|at| exit.finished_at.duration_since(at).unsigned_abs());
        n_restarts = if ran.is_some_and(|ran| ran >= CRASH_LOOP_RESET) {
            0
        } else {
            n_restarts + 1
        };
    }
    CRASH_LOOP.wait(n_restarts.max(1) - 1)
}

fn later(at: Timestamp, wait: Duration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn wake(plan: &mut Plan, at: Timestamp) {
    plan.wake_at = Some(plan.wake_at.map_or(at, |known| known.min(at)));
}
