//! Sidecars: init containers that run beside the main containers.

use serde_json::{Value, json};

use super::{Case, StopCause, pod};

/// A pod with the sidecars `a` and `b`, an init container between them, and the container `main`.
fn crew(restart: &str) -> Case {
    let probe = json!({"tcpSocket": {"port": 1}});
    pod(restart).with(
        "initContainers",
        json!([
            {"name": "a", "image": "i", "restartPolicy": "Always"},
            {"name": "init", "image": "i"},
            {"name": "b", "image": "i", "restartPolicy": "Always", "startupProbe": probe},
        ]),
    )
}

/// All of it runs, as far as the node knows.
fn running(restart: &str) -> Case {
    let case = crew(restart).prepared().running("a", 0, 1);
    let case = case.exited("init", 0, 0, 2, 3);
    case.running("b", 0, 4).running("main", 0, 5)
}

#[test]
fn sidecars_start_in_their_order_and_hold_what_comes_after_them_until_they_are_up() {
    let begun = || crew("Never").prepared();
    let up = || begun().running("a", 0, 1);
    let done = || up().exited("init", 0, 0, 2, 3);
    for (situation, case, now, expected) in [
        ("nothing runs", begun(), 0, "start a/0"),
        ("the first one starts", begun().requested("a", 0), 1, ""),
        ("the first one is up", up(), 1, "start init/0"),
        ("the init container runs", up().running("init", 0, 2), 2, ""),
        (
            "the first one ends meanwhile",
            begun().exited("a", 0, 0, 1, 2).running("init", 0, 2),
            3,
            "start a/1",
        ),
        ("the init container is done", done(), 3, "start b/0"),
        ("the second one is not up", done().running("b", 0, 4), 4, ""),
        (
            "the first one waits, the others run",
            begun()
                .exited("a", 0, 1, 1, 2)
                .exited("a", 1, 1, 2, 3)
                .exited("init", 0, 0, 2, 3)
                .running("b", 0, 4)
                .running("main", 0, 5),
            5,
            "wake 13",
        ),
    ] {
        assert_eq!(case.told().next(now), expected, "{situation}");
    }
}

#[test]
fn sidecars_do_not_keep_a_pod_from_its_end_and_end_last() {
    let ended = |code| running("Never").exited("main", 0, code, 5, 6);
    let stopping = || {
        let case = ended(0).stop_begun(StopCause::Completed, 6);
        case.ending("a", 6, None, None)
    };
    let asked = |case: Case, since| case.ending("b", 6, None, Some(since));
    let b_ended = || stopping().exited("b", 0, 143, 4, 7);
    for (situation, case, now, expected) in [
        ("all of it runs", running("Never"), 5, ""),
        ("it has succeeded", ended(0), 6, "stop Completed"),
        ("it has failed", ended(1), 6, "stop Completed"),
        (
            "an init container has failed",
            crew("Never")
                .prepared()
                .running("a", 0, 1)
                .exited("init", 0, 1, 2, 3),
            3,
            "stop Completed",
        ),
        (
            "the last sidecar is the first to be asked",
            stopping().ending("b", 6, None, None),
            6,
            "wake 36, ask b/0",
        ),
        ("the other one waits", asked(stopping(), 6), 7, "wake 36"),
        ("until it has ended", b_ended(), 7, "ask a/0"),
        (
            "in whose grace it is",
            b_ended().ending("a", 6, None, Some(7)),
            8,
            "wake 36",
        ),
        (
            "late, it has a short time",
            b_ended().ending("a", 6, None, Some(35)),
            36,
            "wake 37",
        ),
        (
            "all are over",
            b_ended().exited("a", 0, 143, 1, 8),
            8,
            "release",
        ),
    ] {
        let mut words: Vec<String> = case
            .told()
            .next(now)
            .split(", ")
            .map(String::from)
            .collect();
        words.sort();
        let mut wanted: Vec<&str> = expected.split(", ").collect();
        wanted.sort_unstable();
        assert_eq!(words, wanted, "{situation}");
    }
}

#[test]
fn a_deleted_pod_ends_its_main_containers_first() {
    let stopping = || running("Always").stop_begun(StopCause::Deleted, 10);
    let begun = || {
        let case = stopping().ending("a", 10, None, None);
        case.ending("b", 10, None, None)
    };
    let first = begun().ending("main", 10, None, None).told();
    assert_eq!(first.next(10), "ask main/0, wake 40");
    let second = begun().exited("main", 0, 143, 5, 11).told();
    assert_eq!(second.next(11), "ask b/0, wake 40");
    // The grace is over: nobody waits for anybody.
    let late = begun().ending("main", 10, None, Some(10)).told();
    assert_eq!(late.next(40), "ask a/0, ask b/0, kill main/0");
}

/// The phase, the states of the init containers, and the conditions that hold.
fn told(case: &Case) -> String {
    let status = case.status(10);
    let words = status["initContainerStatuses"].as_array().expect("a list");
    let words = words.iter().map(|it| {
        let state = it["state"]
            .as_object()
            .and_then(|state| state.keys().next());
        let state = state.expect("a state");
        let ready = if it["ready"] == true { "+" } else { "-" };
        format!("{ready}{state}")
    });
    let words: Vec<String> = words.collect();
    let conditions = status["conditions"].as_array().expect("conditions");
    let holding = conditions.iter().filter(|c| c["status"] == "True");
    let holding: Vec<&str> = holding.filter_map(|c| c["type"].as_str()).collect();
    let phase = status["phase"].as_str().expect("a phase");
    format!("{phase} | {} | {}", words.join(" "), holding.join(" "))
}

#[test]
fn a_pod_with_sidecars_is_told_as_kubernetes_tells_it() {
    let probed = || running("Never");
    let healthy = || {
        let mut case = probed();
        let wish = case.desired().init[2].clone();
        let mut health = case.local.health_of(&wish, 0);
        health.learn(
            &wish.probes,
            crate::probes::Kind::Startup,
            true,
            super::t(5),
        );
        case.local.health.insert(super::id("b", 0), health);
        case
    };
    let sandbox = "PodReadyToStartContainers";
    for (situation, case, expected) in [
        (
            "the init container runs",
            crew("Never")
                .prepared()
                .running("a", 0, 1)
                .running("init", 0, 2),
            format!("Pending | +running -running -waiting | {sandbox}"),
        ),
        (
            "a sidecar is not up",
            probed(),
            format!("Running | +running +terminated -running | {sandbox} Initialized"),
        ),
        (
            "all is well",
            healthy(),
            format!(
                "Running | +running +terminated +running | {sandbox} Initialized ContainersReady Ready"
            ),
        ),
        (
            "the sidecars are being stopped",
            healthy()
                .exited("main", 0, 0, 5, 6)
                .stopping(StopCause::Completed, 6),
            format!("Running | -running +terminated -running | {sandbox} Initialized"),
        ),
        (
            "all have ended",
            healthy()
                .exited("main", 0, 0, 5, 6)
                .stopping(StopCause::Completed, 6)
                .exited("a", 0, 143, 1, 7)
                .exited("b", 0, 137, 1, 7),
            "Succeeded | -terminated +terminated -terminated | Initialized".to_owned(),
        ),
    ] {
        assert_eq!(told(&case), expected, "{situation}");
    }
    let restarted = probed().exited("a", 0, 1, 1, 2).exited("a", 1, 1, 2, 3);
    let state: &Value = &restarted.status(4)["initContainerStatuses"][0]["state"];
    assert_eq!(state["waiting"]["reason"], "CrashLoopBackOff");
}
