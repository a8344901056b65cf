//! The status and the Events that the node writes to the API server.

use serde_json::{Value, json};

use super::{Case, StopCause, pod};

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
fn a_rejected_pod_says_why() {
    let case = pod("Always").rejected();
    assert_eq!(told(&case), "Failed | SysctlForbidden | Initialized");
    let status = case.status(9);
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!("SysctlForbidden"), &json!("Pod was rejected: no"))
    );
    assert_eq!(pod("Always").refused(5).status(9)["reason"], Value::Null);
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
