//! What to do next for one pod: a pure function of its specification, of the known facts, and of the time.

use std::time::Duration;

use jiff::Timestamp;
use longshore_k8s::Backoff;
use serde_json::Value;

use super::model::{
    Attempt, AttemptState, ContainerWish, Desired, Ending, HookState, Local, Preparation,
    RestartPolicy, StopCause,
};
use crate::{
    refusal::Refusal,
    shim::protocol::{AttemptId, Exit},
};

/// Kubernetes' back-off of crashing containers; the first restart is immediate.
const CRASH_LOOP: Backoff = Backoff {
    first: Duration::from_secs(10),
    max: Duration::from_secs(300),
};
/// A container that ran this long starts with a clean slate.
const CRASH_LOOP_RESET: Duration = Duration::from_secs(600);
/// How long to wait before trying again what a pod needs and does not get.
const PREPARE_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// A kubelet's back-off between the pulls of an image.
const IMAGE_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(10),
    max: Duration::from_secs(300),
};
/// As a kubelet: however much of the grace a hook has used up, a program has this time after its stop signal.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// A pod that ends within this time costs one status write less.
const QUIET_START: Duration = Duration::from_millis(20);

/// One effect on shim, disk or API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Read what the pod refers to, make its volumes, start its shim.
    Prepare,
    /// Have the shim start an attempt.
    Start(AttemptId),
    /// Run the postStart hook of a run.
    PostStart(AttemptId),
    /// Read what the pod refers to again, and bring its volumes up to date.
    Refresh,
    /// Begin to end all containers.
    Stop(StopCause),
    /// Begin to end one container: a probe has given it up, its postStart hook has failed, or the pod is being stopped.
    End(AttemptId),
    /// Run the preStop hook of a run.
    PreStop(AttemptId),
    /// Send one container its stop signal.
    Ask(AttemptId),
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
    /// It has come to this end, and sidecars still run.
    Finish(Final),
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
            decide_post_starts(desired, local, &mut plan);
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
    match outlook(desired, local, now) {
        Outlook::Over(_) => None,
        Outlook::Finish(_) => Some(StopCause::Completed),
        Outlook::Start(_) | Outlook::Wait(_) => {
            let deadline = deadline(desired, local).filter(|at| *at <= now);
            deadline.map(|_| StopCause::DeadlineExceeded)
        }
    }
}

fn deadline(desired: &Desired, local: &Local) -> Option<Timestamp> {
    desired
        .deadline
        .map(|limit| later(local.acknowledged_at, limit))
}

fn decide_stopping(desired: &Desired, local: &Local, now: Timestamp, plan: &mut Plan) {
    if local.stop.as_ref().is_none_or(|stop| stop.is_killed) {
        return;
    }
    // A second deletion may shorten the grace.
    let grace = desired.deletion.unwrap_or(desired.grace);
    for id in local.live() {
        let has_turn = has_turn(desired, local, &id);
        decide_end(desired, local, (id, grace, has_turn), now, plan);
    }
}

/// Whether a container may get its stop signal now: sidecars come after the main containers, the last one first.
fn has_turn(desired: &Desired, local: &Local, id: &AttemptId) -> bool {
    let lasting: Vec<&ContainerWish> = desired.lasting().collect();
    let place = lasting.iter().position(|c| c.name == id.container);
    let Some(place) = place.filter(|at| lasting.get(*at).is_some_and(|c| c.is_sidecar)) else {
        return true;
    };
    let waits_for = |other: &AttemptId| {
        let mut later = lasting.iter().skip(place + 1);
        later.any(|c| c.name == other.container)
    };
    !local.live().any(|other| waits_for(&other))
}

/// A run counts as running only after its postStart hook.
fn decide_post_starts(desired: &Desired, local: &Local, plan: &mut Plan) {
    for id in local.live() {
        let wish = desired.find(&id.container);
        let is_due = wish.is_some_and(|c| c.post_start.is_some())
            && !local.post_start.contains_key(&id)
            && is_running(local, &id);
        if is_due {
            plan.actions.push(Action::PostStart(id));
        }
    }
}

fn is_running(local: &Local, id: &AttemptId) -> bool {
    let mut attempts = local.attempts_of(&id.container).iter();
    attempts.any(|a| a.number == id.attempt && matches!(a.state, AttemptState::Running(_)))
}

/// Containers that a probe has given up, or whose postStart hook has failed, get their grace, then they are killed.
fn decide_doomed(desired: &Desired, local: &Local, now: Timestamp, plan: &mut Plan) {
    for id in local.live() {
        let doom = local.health.get(&id).and_then(|health| health.doom);
        let has_failed_hook = local.post_start.get(&id) == Some(&HookState::Failed);
        if doom.is_none() && !has_failed_hook {
            continue;
        }
        let of_probe =
            doom.and_then(|(kind, _)| desired.find(&id.container)?.probes.get(kind)?.grace);
        let grace = of_probe.unwrap_or(desired.grace);
        decide_end(desired, local, (id, grace, true), now, plan);
    }
}

/// The next step to the end of one container, whose turn it may be to get its stop signal.
fn decide_end(
    desired: &Desired,
    local: &Local,
    (id, grace, has_turn): (AttemptId, Duration, bool),
    now: Timestamp,
    plan: &mut Plan,
) {
    let Some(ending) = local.ending.get(&id) else {
        plan.actions.push(Action::End(id));
        return;
    };
    let over_at = later(ending.since, grace);
    let wish = desired.find(&id.container);
    let has_hook = wish.is_some_and(|c| c.pre_stop.is_some()) && is_running(local, &id);
    let next = match (ending.asked_at, ending.hook) {
        _ if ending.is_killed => return,
        (Some(asked_at), _) => {
            let kill_at = kill_at(ending, asked_at, over_at);
            if kill_at <= now {
                Ok(Action::KillOne(id))
            } else {
                Err(kill_at)
            }
        }
        (None, _) if over_at <= now => Ok(Action::Ask(id)),
        (None, None) if has_hook => Ok(Action::PreStop(id)),
        (None, Some(HookState::Running)) => Err(over_at),
        (None, None | Some(HookState::Done | HookState::Failed)) if has_turn => Ok(Action::Ask(id)),
        (None, None | Some(HookState::Done | HookState::Failed)) => Err(over_at),
    };
    match next {
        Ok(action) => plan.actions.push(action),
        Err(at) => wake(plan, at),
    }
}

/// When a container is killed that got its stop signal then. As a kubelet, whole seconds count.
fn kill_at(ending: &Ending, asked_at: Timestamp, over_at: Timestamp) -> Timestamp {
    let used = asked_at.duration_since(ending.since).as_secs();
    if used == 0 {
        return over_at;
    }
    over_at.max(later(asked_at, LEAST_GRACE))
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
        Outlook::Over(_) | Outlook::Finish(_) | Outlook::Wait(None) => {}
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
                again_at: Some(at),
                refusal,
                since,
                ..
            } => {
                wake(plan, *at);
                if let Some(turns_at) = refusal.turns_at(*since).filter(|at| *at > now) {
                    wake(plan, turns_at);
                }
            }
        },
    }
}

/// How long a pod waits after this many refusals in a row.
pub(crate) fn prepare_wait(refusal: &Refusal, n_failures: u32) -> Duration {
    let backoff = if refusal.is_of_image() {
        IMAGE_AGAIN
    } else {
        PREPARE_AGAIN
    };
    backoff.wait(n_failures)
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
    if local.rejection().is_some() {
        return finished(local, Final::Failed);
    }
    let mut course = Course::default();
    // An init container begins when those before it are done or, as sidecars, have come up. What has begun goes on.
    let mut may_begin = true;
    for container in &desired.init {
        if !may_begin && local.last(&container.name).is_none() {
            continue;
        }
        match prospect(container, desired, local, now) {
            Prospect::Done(exit) if exit.is_success() => {}
            Prospect::Done(_) => return finished(local, Final::Failed),
            Prospect::Live => may_begin &= container.is_sidecar && local.has_started(container),
            waiting @ (Prospect::Due(_) | Prospect::At(_)) => {
                may_begin = false;
                course.take(waiting);
            }
        }
    }
    let (mut is_open, mut has_failed) = (false, false);
    for container in &desired.main {
        if !may_begin && local.last(&container.name).is_none() {
            is_open = true;
            continue;
        }
        match prospect(container, desired, local, now) {
            Prospect::Done(exit) => has_failed |= !exit.is_success(),
            open @ (Prospect::Due(_) | Prospect::At(_) | Prospect::Live) => {
                is_open = true;
                course.take(open);
            }
        }
    }
    let ephemeral = desired.ephemeral.iter();
    let new = ephemeral.filter(|c| is_open && local.last(&c.name).is_none());
    course.due.extend(new.map(|c| AttemptId {
        container: c.name.clone(),
        attempt: 0,
    }));
    match (is_open, has_failed) {
        (false, true) => finished(local, Final::Failed),
        (false, false) => finished(local, Final::Succeeded),
        (true, _) if course.due.is_empty() => Outlook::Wait(course.next),
        (true, _) => Outlook::Start(course.due),
    }
}

/// What is due, and when something will be.
#[derive(Default)]
struct Course {
    due: Vec<AttemptId>,
    next: Option<Timestamp>,
}

impl Course {
    fn take(&mut self, prospect: Prospect<'_>) {
        match prospect {
            Prospect::Due(id) => self.due.push(id),
            Prospect::At(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
            Prospect::Done(_) | Prospect::Live => {}
        }
    }
}

/// The pod has come to its end as soon as no sidecar runs any more.
fn finished(local: &Local, end: Final) -> Outlook {
    match local.live().next() {
        Some(_) => Outlook::Finish(end),
        None => Outlook::Over(end),
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
    if desired.is_ephemeral(container) {
        return None;
    }
    let is_init = desired.init.iter().any(|c| c.name == container.name);
    let of_pod = match desired.restart {
        RestartPolicy::Never => false,
        RestartPolicy::OnFailure => !exit.is_success(),
        // An init container that succeeded is done, whatever the policy.
        RestartPolicy::Always => !(is_init && exit.is_success()),
    };
    let is_again = container.is_sidecar || of_pod;
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
