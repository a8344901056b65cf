//! Hooks: what happens between a start and running, and between the wish to stop and the stop signal.

use serde_json::json;

use super::{Case, HookState, StopCause, pod};

/// A pod whose container has both hooks.
fn hooked(restart: &str) -> Case {
    let hook = json!({"exec": {"command": ["x"]}});
    let mut case = pod(restart);
    case.pod["spec"]["containers"][0]["lifecycle"] = json!({"postStart": hook, "preStop": hook});
    case.prepared().running("main", 0, 1)
}

#[test]
fn a_container_runs_once_its_post_start_hook_is_done() {
    use HookState::{Done, Failed, Running};
    let after = |state| hooked("Always").post_start("main", state);
    for (situation, case, state, next) in [
        (
            "it has begun",
            hooked("Always"),
            "waiting",
            "post-start main/0",
        ),
        ("its hook runs", after(Running), "waiting", ""),
        ("its hook is done", after(Done), "running", ""),
        (
            "its hook has failed",
            after(Failed),
            "waiting",
            "end main/0",
        ),
    ] {
        let status = case.status(2);
        let found = status["containerStatuses"][0]["state"].as_object();
        let found = found.and_then(|it| it.keys().next()).map(String::as_str);
        assert_eq!(found, Some(state), "{situation}");
        let phase = if state == "running" {
            "Running"
        } else {
            "Pending"
        };
        assert_eq!(status["phase"], phase, "{situation}");
        assert_eq!(case.told().next(2), next, "{situation}");
    }
    // A pod that is being stopped begins no hook.
    let stopped = hooked("Always").stop_begun(StopCause::Deleted, 2).told();
    assert_eq!(stopped.next(2), "end main/0");
}

#[test]
fn a_stop_signal_follows_the_pre_stop_hook_in_the_same_grace() {
    use HookState::{Done, Failed, Running};
    let stopping = |hook, asked_at| {
        let case = hooked("Never").post_start("main", Done).deleted(30);
        let case = case.stop_begun(StopCause::Deleted, 10);
        case.ending("main", 10, hook, asked_at).told()
    };
    for (situation, case, now, next) in [
        (
            "the grace begins",
            stopping(None, None),
            10,
            "pre-stop main/0",
        ),
        (
            "the hook runs",
            stopping(Some(Running), None),
            11,
            "wake 40",
        ),
        (
            "it takes all of the grace",
            stopping(Some(Running), None),
            40,
            "ask main/0",
        ),
        ("it is done", stopping(Some(Done), None), 15, "ask main/0"),
        (
            "it has failed",
            stopping(Some(Failed), None),
            15,
            "ask main/0",
        ),
        (
            "the program has the rest",
            stopping(Some(Done), Some(15)),
            16,
            "wake 40",
        ),
        (
            "and no more",
            stopping(Some(Done), Some(15)),
            40,
            "kill main/0",
        ),
        (
            "but a short time",
            stopping(Some(Failed), Some(40)),
            40,
            "wake 42",
        ),
        (
            "no longer",
            stopping(Some(Failed), Some(40)),
            42,
            "kill main/0",
        ),
    ] {
        assert_eq!(case.next(now), next, "{situation}");
    }
    let without = hooked("Never")
        .deleted(0)
        .stop_begun(StopCause::Deleted, 10);
    let without = without.ending("main", 10, None, None).told();
    assert_eq!(
        without.next(10),
        "ask main/0",
        "without a grace no hook runs"
    );
}

#[test]
fn a_container_whose_post_start_hook_has_failed_runs_again() {
    let failed = hooked("Always").post_start("main", HookState::Failed);
    let ending = failed.ending("main", 2, None, None).told();
    assert_eq!(ending.next(2), "pre-stop main/0");
    let mut ended = ending.exited("main", 0, 137, 1, 33);
    ended.local.ending.clear();
    assert_eq!(ended.told().next(33), "start main/1");
}
