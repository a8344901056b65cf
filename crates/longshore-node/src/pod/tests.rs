//! Tables for the two pure functions of a pod: what is done next, and what is told.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::decide::{Action, Plan, decide};
use super::model::{AttemptState, Desired, Local, Preparation, Stop, StopCause};
use super::status;
use crate::refusal::Refusal;
use crate::shim::protocol::{AttemptId, Exit, ExitReason, Started};

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

    fn refused(mut self, again_at: i64) -> Self {
        let refusal = Refusal::config("main", "no");
        let again_at = Some(t(again_at));
        self.local.preparation = Preparation::Failed {
            refusal,
            n_failures: 1,
            again_at,
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

    fn stopping(mut self, cause: StopCause, since: i64) -> Self {
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
        status::build(&self.desired(), &self.local, "u", "127.0.0.1", t(now))
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

#[test]
#[expect(clippy::too_many_lines, reason = "one row per situation")]
fn each_situation_has_its_next_step() {
    use StopCause::{DeadlineExceeded, Deleted, Over};
    let never = || pod("Never");
    let ran = |code| never().prepared().exited("main", 0, code, 1, 2);
    for (situation, case, now, expected) in [
        ("new", never(), 0, "prepare, wake 1"),
        (
            "ready to start",
            never().prepared(),
            0,
            "start main/0, wake 0",
        ),
        ("refused", never().refused(5), 1, "publish Pending, wake 5"),
        (
            "refused, time to try again",
            never().refused(5).told(),
            5,
            "prepare",
        ),
        (
            "starting",
            never().prepared().requested("main", 0).told(),
            1,
            "",
        ),
        (
            "running",
            never().prepared().running("main", 0, 1).told(),
            2,
            "",
        ),
        (
            "running, not told yet",
            never().prepared().running("main", 0, 1),
            2,
            "wake 2",
        ),
        (
            "init first",
            never().with_init().prepared().told(),
            0,
            "start init/0",
        ),
        (
            "init runs",
            never().with_init().prepared().running("init", 0, 1).told(),
            2,
            "",
        ),
        (
            "init done",
            never()
                .with_init()
                .prepared()
                .exited("init", 0, 0, 1, 2)
                .told(),
            2,
            "start main/0",
        ),
        (
            "init failed",
            never().with_init().prepared().exited("init", 0, 1, 1, 2),
            2,
            "publish Failed",
        ),
        ("succeeded", ran(0), 2, "publish Succeeded"),
        ("failed", ran(3), 2, "publish Failed"),
        ("succeeded and told", ran(0).told(), 2, "release"),
        (
            "terminal at the API server, nothing local",
            never().at_phase("Failed"),
            0,
            "stop Over",
        ),
        (
            "evicted while running",
            never()
                .at_phase("Failed")
                .prepared()
                .running("main", 0, 1)
                .told(),
            2,
            "stop Over",
        ),
        (
            "evicted, stopping",
            never()
                .at_phase("Failed")
                .prepared()
                .running("main", 0, 1)
                .stopping(Over, 2)
                .told(),
            3,
            "wake 32",
        ),
        (
            "OnFailure, succeeded",
            pod("OnFailure").prepared().exited("main", 0, 0, 1, 2),
            2,
            "publish Succeeded",
        ),
        (
            "OnFailure, first failure",
            pod("OnFailure")
                .prepared()
                .exited("main", 0, 1, 1, 2)
                .told(),
            2,
            "start main/1",
        ),
        (
            "Always, first success",
            pod("Always").prepared().exited("main", 0, 0, 1, 2).told(),
            2,
            "start main/1",
        ),
        (
            "second failure waits",
            pod("Always")
                .prepared()
                .exited("main", 0, 1, 1, 2)
                .exited("main", 1, 1, 2, 3)
                .told(),
            4,
            "wake 13",
        ),
        (
            "second failure, waited",
            pod("Always")
                .prepared()
                .exited("main", 0, 1, 1, 2)
                .exited("main", 1, 1, 2, 3)
                .told(),
            13,
            "start main/2",
        ),
        (
            "a long run forgives",
            pod("Always")
                .prepared()
                .exited("main", 0, 1, 1, 2)
                .exited("main", 1, 1, 2, 700)
                .told(),
            701,
            "start main/2",
        ),
        (
            "restart after the shim died",
            pod("Always").exited("main", 0, 1, 1, 2).told(),
            2,
            "prepare",
        ),
        (
            "deleted before anything ran",
            never().deleted(30).told(),
            1,
            "stop Deleted",
        ),
        (
            "deleted while running",
            never().prepared().running("main", 0, 1).deleted(30).told(),
            2,
            "stop Deleted",
        ),
        (
            "stopping",
            never()
                .prepared()
                .running("main", 0, 1)
                .deleted(30)
                .stopping(Deleted, 2)
                .told(),
            3,
            "wake 32",
        ),
        (
            "stopping, shorter grace",
            never()
                .prepared()
                .running("main", 0, 1)
                .deleted(1)
                .stopping(Deleted, 2)
                .told(),
            3,
            "kill",
        ),
        (
            "killed",
            never()
                .prepared()
                .running("main", 0, 1)
                .deleted(1)
                .stopping(Deleted, 2)
                .killed()
                .told(),
            4,
            "",
        ),
        (
            "stopped, not told",
            ran(143).deleted(30).stopping(Deleted, 1),
            2,
            "publish Failed",
        ),
        (
            "stopped and told",
            ran(143).deleted(30).stopping(Deleted, 1).told(),
            2,
            "release, delete",
        ),
        (
            "no restart while stopping",
            pod("Always")
                .prepared()
                .exited("main", 0, 1, 1, 2)
                .deleted(9)
                .stopping(Deleted, 1)
                .told(),
            3,
            "release, delete",
        ),
        (
            "before the deadline",
            never()
                .with("activeDeadlineSeconds", json!(9))
                .prepared()
                .running("main", 0, 1)
                .told(),
            2,
            "wake 9",
        ),
        (
            "at the deadline",
            never()
                .with("activeDeadlineSeconds", json!(9))
                .prepared()
                .running("main", 0, 1)
                .told(),
            9,
            "stop DeadlineExceeded",
        ),
        (
            "done before the deadline",
            ran(0).with("activeDeadlineSeconds", json!(9)).told(),
            10,
            "release",
        ),
        (
            "stopped by the deadline",
            ran(143).stopping(DeadlineExceeded, 1),
            2,
            "publish Failed",
        ),
        (
            "gone while running",
            never().prepared().running("main", 0, 1).gone(),
            2,
            "kill",
        ),
        (
            "gone, killed",
            never()
                .prepared()
                .running("main", 0, 1)
                .stopping(Over, 2)
                .killed()
                .gone(),
            2,
            "",
        ),
        ("gone and ended", ran(137).gone(), 2, "forget"),
        ("gone before it began", never().gone(), 0, "forget"),
    ] {
        assert_eq!(short(&case.plan(now)), expected, "{situation}");
    }
}

#[test]
fn an_end_is_never_taken_back() {
    let case = pod("Never")
        .prepared()
        .exited("main", 0, 3, 1, 2)
        .running("main", 0, 5)
        .exited("main", 0, 0, 1, 9);
    assert_eq!(
        case.status(9)["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
}

#[test]
fn waits_between_restarts_double_up_to_five_minutes() {
    let mut case = pod("Always").prepared();
    let mut waits = Vec::new();
    for n in 0..8 {
        case = case.exited("main", n, 1, 0, 0);
        let plan = case.clone().told().plan(0);
        waits.push(
            plan.wake_at
                .map_or(0, |at| at.duration_since(t(0)).as_secs()),
        );
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn the_same_facts_always_give_the_same_status() {
    let case = pod("Always")
        .prepared()
        .exited("main", 0, 1, 1, 2)
        .running("main", 1, 3);
    assert_eq!(case.status(4), case.status(4000));
}

/// Phase, then the container's state in short, then the conditions that are true.
fn told(case: &Case) -> String {
    let status = case.status(10);
    let container = &status["containerStatuses"][0];
    let state = &container["state"];
    let state = match (
        &state["waiting"]["reason"],
        &state["terminated"]["exitCode"],
    ) {
        (Value::String(reason), _) => reason.clone(),
        (_, Value::Number(code)) => format!("exit {code}"),
        _ => "running".into(),
    };
    let conditions = status["conditions"].as_array().expect("conditions");
    let holding = conditions.iter().filter(|c| c["status"] == "True");
    let holding: Vec<_> = holding
        .map(|c| c["type"].as_str().expect("a type"))
        .collect();
    format!(
        "{} | {state} | {}",
        status["phase"].as_str().expect("a phase"),
        holding.join(" ")
    )
}

#[test]
fn each_situation_is_told_as_kubernetes_tells_it() {
    let never = || pod("Never");
    for (situation, case, expected) in [
        ("new", never(), "Pending | ContainerCreating | Initialized"),
        (
            "refused",
            never().refused(5),
            "Pending | CreateContainerConfigError | Initialized",
        ),
        (
            "init runs",
            never().with_init().prepared().running("init", 0, 1),
            "Pending | PodInitializing | PodReadyToStartContainers",
        ),
        (
            "running",
            never().prepared().running("main", 0, 1),
            "Running | running | PodReadyToStartContainers Initialized ContainersReady Ready",
        ),
        (
            "gated",
            never()
                .with("readinessGates", json!([{"conditionType": "x"}]))
                .prepared()
                .running("main", 0, 1),
            "Running | running | PodReadyToStartContainers Initialized ContainersReady",
        ),
        (
            "stopping",
            never()
                .prepared()
                .running("main", 0, 1)
                .stopping(StopCause::Deleted, 2),
            "Running | running | PodReadyToStartContainers Initialized",
        ),
        (
            "succeeded",
            never().prepared().exited("main", 0, 0, 1, 2),
            "Succeeded | exit 0 | Initialized",
        ),
        (
            "failed",
            never().prepared().exited("main", 0, 3, 1, 2),
            "Failed | exit 3 | Initialized",
        ),
        (
            "restarts at once",
            pod("Always").prepared().exited("main", 0, 3, 1, 2),
            "Running | exit 3 | PodReadyToStartContainers Initialized",
        ),
        (
            "backs off",
            pod("Always")
                .prepared()
                .exited("main", 0, 3, 1, 2)
                .exited("main", 1, 3, 2, 3),
            "Running | CrashLoopBackOff | PodReadyToStartContainers Initialized",
        ),
        (
            "deleted before it ran",
            never().stopping(StopCause::Deleted, 2),
            "Failed | ContainerCreating | Initialized",
        ),
    ] {
        assert_eq!(told(&case), expected, "{situation}");
    }
}

#[test]
fn a_restarted_container_shows_its_last_end() {
    let case = pod("Always")
        .prepared()
        .exited("main", 0, 3, 1, 2)
        .running("main", 1, 3);
    let container = &case.status(4)["containerStatuses"][0];
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(
        container["lastState"]["terminated"]["containerID"],
        "process://u/main/0"
    );
    assert_eq!(
        (&container["restartCount"], &container["containerID"]),
        (&json!(1), &json!("process://u/main/1"))
    );
}
