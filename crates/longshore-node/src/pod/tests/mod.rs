//! A pod in any situation, for the tables of its two pure functions.

mod ephemeral;
mod hooks;
mod next_steps;
mod sidecars;
mod told;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    decide::{Action, Plan, decide},
    model::{AttemptState, Desired, Ending, HookState, Local, Preparation, Stop, StopCause},
    status,
};
use crate::{
    refusal::Refusal,
    shim::protocol::{AttemptId, Exit, ExitReason, Started},
};

/// A pod in some situation, built by adjectives.
#[derive(Clone)]
struct Case {
    pod: Value,
    local: Local,
}

fn t(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
}

fn id(container: &str, attempt: u32) -> AttemptId {
    AttemptId {
        container: container.into(),
        attempt,
    }
}

/// A pod with the container `main`, first seen at 0.
fn pod(restart: &str) -> Case {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "i"}]},
    });
    Case {
        pod,
        local: Local::new(t(0)),
    }
}

impl Case {
    fn with_init(mut self) -> Self {
        self.pod["spec"]["initContainers"] = json!([{"name": "init", "image": "i"}]);
        self
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.pod["spec"][field] = value;
        self
    }

    fn deleted(mut self, grace: i64) -> Self {
        self.pod["metadata"]["deletionTimestamp"] = json!("1970-01-12T13:46:40Z");
        self.pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self
    }

    fn at_phase(mut self, phase: &str) -> Self {
        self.pod["status"] = json!({"phase": phase});
        self
    }

    fn prepared(mut self) -> Self {
        self.local.preparation = Preparation::Ready;
        self.local.has_shim = true;
        self
    }

    fn refused(self, again_at: i64) -> Self {
        self.refused_with(Refusal::config("main", "no"), again_at)
    }

    /// For good.
    fn rejected(self) -> Self {
        self.refused_with(Refusal::rejection("SysctlForbidden", "no"), 5)
    }

    fn refused_with(mut self, refusal: Refusal, again_at: i64) -> Self {
        self.local.preparation = Preparation::Failed {
            refusal,
            n_failures: 1,
            since: t(again_at - 1),
            again_at: Some(t(again_at)),
        };
        self
    }

    fn requested(mut self, container: &str, attempt: u32) -> Self {
        self.local
            .learn(&id(container, attempt), AttemptState::Requested);
        self
    }

    fn running(mut self, container: &str, attempt: u32, since: i64) -> Self {
        let started = Started {
            at: t(since),
            pid: 7,
        };
        self.local
            .learn(&id(container, attempt), AttemptState::Running(started));
        self
    }

    fn exited(mut self, container: &str, attempt: u32, code: i32, from: i64, to: i64) -> Self {
        let exit = Exit {
            code,
            signal: None,
            reason: if code == 0 {
                ExitReason::Completed
            } else {
                ExitReason::Error
            },
            started_at: Some(t(from)),
            finished_at: t(to),
            message: String::new(),
        };
        self.local
            .learn(&id(container, attempt), AttemptState::Exited(exit));
        self
    }

    /// Its containers got their stop signal.
    fn stopping(mut self, cause: StopCause, since: i64) -> Self {
        self = self.stop_begun(cause, since);
        for id in self.local.live().collect::<Vec<_>>() {
            self.local.ending.insert(id, Ending::asked(t(since)));
        }
        self
    }

    fn stop_begun(mut self, cause: StopCause, since: i64) -> Self {
        self.local.stop = Some(Stop {
            cause,
            since: t(since),
            is_killed: false,
        });
        self
    }

    fn killed(mut self) -> Self {
        if let Some(stop) = &mut self.local.stop {
            stop.is_killed = true;
        }
        for ending in self.local.ending.values_mut() {
            ending.is_killed = true;
        }
        self
    }

    /// The end of a run has begun: its hook, and when it got its stop signal.
    fn ending(
        mut self,
        container: &str,
        since: i64,
        hook: Option<HookState>,
        asked_at: Option<i64>,
    ) -> Self {
        let ending = Ending {
            hook,
            asked_at: asked_at.map(t),
            ..Ending::begun(t(since))
        };
        self.local.ending.insert(id(container, 0), ending);
        self
    }

    fn post_start(mut self, container: &str, state: HookState) -> Self {
        self.local.post_start.insert(id(container, 0), state);
        self
    }

    fn refreshing(mut self, due_at: i64, is_in_flight: bool) -> Self {
        self.local.refresh.due_at = Some(t(due_at));
        self.local.refresh.is_in_flight = is_in_flight;
        self
    }

    fn gone(mut self) -> Self {
        self.local.is_gone = true;
        self
    }

    /// The API server knows the status as it is now.
    fn told(mut self) -> Self {
        self.local.publication.written = Some(self.status(0));
        self
    }

    fn desired(&self) -> Desired {
        let pod: Pod = serde_json::from_value(self.pod.clone()).expect("a pod");
        Desired::of(&pod)
    }

    fn status(&self, now: i64) -> Value {
        let ips = ("127.0.0.1", "127.1.2.3");
        status::build(&self.desired(), &self.local, "u", ips, t(now))
    }

    /// The plan in short: actions, and the second to wake at.
    fn next(&self, now: i64) -> String {
        short(&self.plan(now))
    }

    fn plan(&self, now: i64) -> Plan {
        let (mut local, status) = (self.local.clone(), self.status(now));
        if local.publication.written.as_ref() != Some(&status) {
            local.publication.changed_at.get_or_insert(t(now));
        }
        decide(&self.desired(), &local, &status, t(now))
    }
}

/// The plan in short: actions, and the second to wake at.
fn short(plan: &Plan) -> String {
    let mut words: Vec<String> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Prepare => "prepare".into(),
            Action::Start(id) => format!("start {id}"),
            Action::Stop(cause) => format!("stop {cause:?}"),
            Action::Refresh => "refresh".into(),
            Action::PostStart(id) => format!("post-start {id}"),
            Action::End(id) => format!("end {id}"),
            Action::PreStop(id) => format!("pre-stop {id}"),
            Action::Ask(id) => format!("ask {id}"),
            Action::KillOne(id) => format!("kill {id}"),
            Action::Kill => "kill".into(),
            Action::Publish(status) => {
                format!("publish {}", status["phase"].as_str().expect("a phase"))
            }
            Action::DeleteObject => "delete".into(),
            Action::Release => "release".into(),
            Action::Forget => "forget".into(),
        })
        .collect();
    if let Some(at) = plan.wake_at {
        words.push(format!("wake {}", at.duration_since(t(0)).as_secs()));
    }
    words.join(", ")
}
