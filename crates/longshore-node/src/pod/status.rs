//! The pod's status as the API server shall see it: a pure function of what is known.
//!
//! Only fields and conditions that the node owns are in it; times come from the facts themselves, so that
//! the same facts always give the same status.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    decide::{Final, Outlook, outlook, restart_wait},
    model::{AttemptState, ContainerWish, Desired, Local, Preparation, StopCause},
};
use crate::{
    probes::Health,
    refusal::{REASON_CREATING, Refusal},
    shim::protocol::{AttemptId, Exit},
};

/// Builds the status. `uid` is part of identifiers in it.
pub(crate) fn build(
    desired: &Desired,
    local: &Local,
    uid: &str,
    (host_ip, pod_ip): (&str, &str),
    now: Timestamp,
) -> Value {
    let end = match outlook(desired, local, now) {
        Outlook::Over(end) => Some(end),
        Outlook::Finish(_) | Outlook::Start(_) | Outlook::Wait(_) => None,
    };
    let view = View {
        desired,
        local,
        uid,
        end,
        now,
    };
    let statuses =
        |all: &[ContainerWish]| all.iter().map(|c| view.container(c)).collect::<Vec<_>>();
    let mut status = json!({
        "phase": view.phase(),
        "startTime": time(local.acknowledged_at),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": view.conditions(),
        "containerStatuses": statuses(&desired.main),
    });
    if !desired.init.is_empty() {
        status["initContainerStatuses"] = statuses(&desired.init).into();
    }
    if !desired.ephemeral.is_empty() {
        status["ephemeralContainerStatuses"] = statuses(&desired.ephemeral).into();
    }
    if let Some(generation) = desired.generation {
        status["observedGeneration"] = generation.into();
    }
    if local
        .stop
        .as_ref()
        .is_some_and(|s| s.cause == StopCause::DeadlineExceeded)
        && end.is_some()
    {
        status["reason"] = "DeadlineExceeded".into();
        status["message"] = "the pod was active for longer than its activeDeadlineSeconds".into();
    }
    if let Some(refusal) = local.rejection() {
        status["reason"] = refusal.reason.into();
        status["message"] = format!("Pod was rejected: {}", refusal.message).into();
    }
    status
}

struct View<'a> {
    desired: &'a Desired,
    local: &'a Local,
    uid: &'a str,
    end: Option<Final>,
    now: Timestamp,
}

impl View<'_> {
    fn phase(&self) -> &'static str {
        match self.end {
            Some(Final::Succeeded) => "Succeeded",
            Some(Final::Failed) => "Failed",
            None if self.desired.main.iter().any(|c| self.has_run(c)) => "Running",
            None => "Pending",
        }
    }

    fn has_run(&self, container: &ContainerWish) -> bool {
        let attempts = self.local.attempts_of(&container.name);
        attempts.iter().any(|a| match a.state {
            AttemptState::Requested => false,
            AttemptState::Running(_) => self.local.is_up(container, a.number),
            AttemptState::Exited(_) => true,
        })
    }

    fn is_ready(&self, container: &ContainerWish) -> bool {
        self.local.stop.is_none()
            && self
                .health(container)
                .is_some_and(|it| it.is_started && it.is_ready)
    }

    /// The health of the run under way.
    fn health(&self, container: &ContainerWish) -> Option<Health> {
        let last = self.local.last(&container.name)?;
        let runs = matches!(last.state, AttemptState::Running(_))
            && self.local.is_up(container, last.number);
        runs.then(|| self.local.health_of(container, last.number))
    }

    fn is_done(&self, container: &ContainerWish) -> bool {
        let last = self.local.last(&container.name).map(|a| &a.state);
        matches!(last, Some(AttemptState::Exited(exit)) if exit.is_success())
    }

    /// Whether an init container lets those after it begin, or has let them.
    fn is_passed(&self, container: &ContainerWish) -> bool {
        if !container.is_sidecar {
            return self.is_done(container);
        }
        let mut main = self.desired.main.iter();
        self.local.has_started(container) || main.any(|c| self.local.last(&c.name).is_some())
    }

    fn container(&self, container: &ContainerWish) -> Value {
        let attempts = self.local.attempts_of(&container.name);
        let last = attempts.last();
        let init = self.desired.init.iter().find(|c| c.name == container.name);
        let is_started = self.health(container).is_some_and(|it| it.is_started);
        let ready = if init.is_some_and(|c| !c.is_sidecar) {
            self.is_done(container)
        } else {
            self.is_ready(container) && !self.desired.is_ephemeral(container)
        };
        let (state, last_exit) = self.states(container);
        let mut status = json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": ready,
            "started": is_started,
            "restartCount": last.map_or(0, |a| a.number),
            "state": state,
            "lastState": last_exit.map_or_else(|| json!({}), |(number, exit)| {
                json!({"terminated": self.terminated(container, number, exit)})
            }),
        });
        if let Some(attempt) = last {
            status["containerID"] = self.container_id(container, attempt.number).into();
        }
        status
    }

    /// The current state and the end of the attempt before it.
    fn states(&self, container: &ContainerWish) -> (Value, Option<(u32, &Exit)>) {
        let attempts = self.local.attempts_of(&container.name);
        let mut ends = attempts.iter().rev().filter_map(|a| match &a.state {
            AttemptState::Exited(exit) => Some((a.number, exit)),
            AttemptState::Requested | AttemptState::Running(_) => None,
        });
        let last_end = ends.next();
        match attempts.last().map(|a| &a.state) {
            None => (self.waiting(container), None),
            Some(AttemptState::Requested) => {
                (json!({"waiting": {"reason": REASON_CREATING}}), last_end)
            }
            Some(AttemptState::Running(started)) => {
                let number = attempts.last().map_or(0, |a| a.number);
                let state = if self.local.is_up(container, number) {
                    json!({"running": {"startedAt": time(started.at)}})
                } else {
                    json!({"waiting": {"reason": REASON_CREATING}})
                };
                (state, last_end)
            }
            Some(AttemptState::Exited(exit)) => {
                let number = last_end.map_or(0, |(number, _)| number);
                match restart_wait(container, self.desired, self.local) {
                    Some(_) if self.refusal_of(container).is_some() => {
                        (self.waiting(container), last_end)
                    }
                    Some(wait) if !wait.is_zero() => {
                        let message = format!(
                            "back-off {}s restarting failed container={} pod={}",
                            wait.as_secs(),
                            container.name,
                            self.desired.name
                        );
                        let reason = "CrashLoopBackOff";
                        (
                            json!({"waiting": {"reason": reason, "message": message}}),
                            last_end,
                        )
                    }
                    Some(_) | None => (
                        json!({"terminated": self.terminated(container, number, exit)}),
                        ends.next(),
                    ),
                }
            }
        }
    }

    /// Why this container does not start, and since when.
    fn refusal_of(&self, container: &ContainerWish) -> Option<(&Refusal, Timestamp)> {
        let (refusal, since) = match &self.local.preparation {
            Preparation::Failed { refusal, since, .. } => (refusal, *since),
            Preparation::Needed | Preparation::Running | Preparation::Ready => return None,
        };
        let blamed = refusal.container.as_ref();
        blamed
            .is_none_or(|name| *name == container.name)
            .then_some((refusal, since))
    }

    fn waiting(&self, container: &ContainerWish) -> Value {
        if let Some((refusal, since)) = self.refusal_of(container) {
            return json!({"waiting": refusal.waiting(since, self.now)});
        }
        let waits_for_init = self.desired.init.iter().any(|c| !self.is_passed(c));
        let is_first = self
            .desired
            .containers()
            .next()
            .is_some_and(|c| c.name == container.name);
        let reason = if waits_for_init && !is_first {
            "PodInitializing"
        } else {
            REASON_CREATING
        };
        json!({"waiting": {"reason": reason}})
    }

    fn terminated(&self, container: &ContainerWish, attempt: u32, exit: &Exit) -> Value {
        let mut state = Map::new();
        state.insert("exitCode".into(), exit.code.into());
        state.insert("reason".into(), exit.reason.as_str().into());
        state.insert(
            "startedAt".into(),
            time(exit.started_at.unwrap_or(exit.finished_at)),
        );
        state.insert("finishedAt".into(), time(exit.finished_at));
        state.insert(
            "containerID".into(),
            self.container_id(container, attempt).into(),
        );
        if let Some(signal) = exit.signal {
            state.insert("signal".into(), signal.into());
        }
        if !exit.message.is_empty() {
            state.insert("message".into(), exit.message.clone().into());
        }
        state.into()
    }

    fn container_id(&self, container: &ContainerWish, attempt: u32) -> String {
        let id = AttemptId {
            container: container.name.clone(),
            attempt,
        };
        format!("process://{}/{id}", self.uid)
    }

    fn conditions(&self) -> Value {
        let unready: Vec<&str> = self
            .desired
            .lasting()
            .filter(|c| !self.is_ready(c))
            .map(|c| c.name.as_str())
            .collect();
        let why_unready = match self.end {
            Some(Final::Succeeded) => Some(("PodCompleted", String::new())),
            Some(Final::Failed) => Some(("PodFailed", String::new())),
            None if unready.is_empty() => None,
            None => {
                let message = format!("containers with unready status: [{}]", unready.join(" "));
                Some(("ContainersNotReady", message))
            }
        };
        let open_gates: Vec<&str> = self
            .desired
            .readiness_gates
            .iter()
            .filter(|gate| !self.desired.true_conditions.contains(gate))
            .map(String::as_str)
            .collect();
        let why_not_ready = why_unready.clone().or_else(|| {
            let message = format!(
                "the conditions of these readiness gates are not True: {}",
                open_gates.join(" ")
            );
            (!open_gates.is_empty()).then_some(("ReadinessGatesNotReady", message))
        });
        let uninitialized: Vec<&str> = self
            .desired
            .init
            .iter()
            .filter(|c| !self.is_passed(c))
            .map(|c| c.name.as_str())
            .collect();
        let why_uninitialized = (!uninitialized.is_empty()).then(|| {
            let message = format!(
                "containers with incomplete status: [{}]",
                uninitialized.join(" ")
            );
            ("ContainersNotInitialized", message)
        });
        let mut initialized = condition("Initialized", why_uninitialized, self.initialized_at());
        if self.end == Some(Final::Succeeded) {
            initialized["reason"] = "PodCompleted".into();
        }
        // Also while it is prepared anew for another container.
        let is_prepared = self.local.has_shim || self.local.preparation == Preparation::Ready;
        let has_sandbox = self.end.is_none() && is_prepared;
        let why_no_sandbox = (!has_sandbox).then(|| ("", String::new()));
        let changed_at = self.changed_at();
        let gates = self.desired.gates_changed_at;
        let ready_changed_at = gates.map_or(changed_at, |it| it.max(changed_at));
        json!([
            condition(
                "PodReadyToStartContainers",
                why_no_sandbox,
                self.local.acknowledged_at
            ),
            initialized,
            condition("ContainersReady", why_unready, changed_at),
            condition("Ready", why_not_ready, ready_changed_at),
        ])
    }

    fn initialized_at(&self) -> Timestamp {
        let passed = self.desired.init.iter().filter_map(|c| {
            let attempts = self.local.attempts_of(&c.name);
            // A sidecar has passed with its first start.
            let attempt = if c.is_sidecar {
                attempts.first()
            } else {
                attempts.last()
            };
            match attempt.map(|a| &a.state)? {
                AttemptState::Exited(exit) if c.is_sidecar => exit.started_at,
                AttemptState::Exited(exit) => Some(exit.finished_at),
                AttemptState::Running(started) => c.is_sidecar.then_some(started.at),
                AttemptState::Requested => None,
            }
        });
        passed.max().unwrap_or(self.local.acknowledged_at)
    }

    /// When a main container or a sidecar last started, ended or got another health, or the stop of the pod began.
    fn changed_at(&self) -> Timestamp {
        let times = self.desired.lasting().filter_map(|c| {
            match self.local.last(&c.name).map(|a| &a.state) {
                Some(AttemptState::Exited(exit)) => Some(exit.finished_at),
                Some(AttemptState::Running(started)) => {
                    let health = self.health(c).and_then(|it| it.changed_at);
                    Some(health.map_or(started.at, |it| it.max(started.at)))
                }
                Some(AttemptState::Requested) | None => None,
            }
        });
        let stop = self.local.stop.as_ref().map(|stop| stop.since);
        times
            .chain(stop)
            .max()
            .unwrap_or(self.local.acknowledged_at)
    }
}

/// A condition that is true, or false for a reason.
///
/// Reason and message are always there: a merge must take the old ones away.
fn condition(kind: &str, why_not: Option<(&str, String)>, since: Timestamp) -> Value {
    let status = if why_not.is_some() { "False" } else { "True" };
    let (reason, message) = why_not.unwrap_or_default();
    let or_null = |text: &str| {
        if text.is_empty() {
            Value::Null
        } else {
            text.into()
        }
    };
    json!({
        "type": kind,
        "status": status,
        "reason": or_null(reason),
        "message": or_null(&message),
        "lastTransitionTime": time(since),
    })
}

/// Kubernetes' times have whole seconds.
fn time(at: Timestamp) -> Value {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}
