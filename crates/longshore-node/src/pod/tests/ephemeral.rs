//! Containers that were added to a running pod.

use serde_json::json;

use super::{Case, pod};

fn debugged(restart: &str) -> Case {
    let debug = json!([{"name": "debug", "image": "i"}]);
    pod(restart).with("ephemeralContainers", debug).prepared()
}

#[test]
fn an_added_container_runs_once_and_nothing_waits_for_it() {
    let main_runs = || debugged("Always").running("main", 0, 1);
    let main_ended = || debugged("Never").exited("main", 0, 0, 1, 2);
    for (situation, case, expected) in [
        ("new", debugged("Never"), "start main/0, start debug/0"),
        (
            "before the init containers are done",
            debugged("Never").with_init(),
            "start init/0, start debug/0",
        ),
        ("added", main_runs().told(), "start debug/0"),
        ("runs", main_runs().running("debug", 0, 2).told(), ""),
        (
            "has ended",
            main_runs().exited("debug", 0, 3, 2, 3).told(),
            "",
        ),
        ("added too late", main_ended().told(), "release"),
        (
            "runs after the others",
            main_ended().running("debug", 0, 2).told(),
            "stop Completed",
        ),
    ] {
        assert_eq!(case.next(9), expected, "{situation}");
    }
}

#[test]
fn its_end_is_its_own() {
    let status = debugged("Never")
        .exited("main", 0, 0, 1, 2)
        .exited("debug", 0, 3, 1, 2)
        .status(9);
    assert_eq!(status["phase"], "Succeeded");
    let status = debugged("Always")
        .running("main", 0, 1)
        .exited("debug", 0, 3, 1, 2)
        .status(9);
    assert_eq!(status["phase"], "Running");
    let debug = &status["ephemeralContainerStatuses"][0];
    assert_eq!(debug["state"]["terminated"]["exitCode"], 3);
    assert_eq!(debug["ready"], false);
    assert_eq!(status["containerStatuses"][0]["ready"], true);
    assert!(pod("Never").status(9)["ephemeralContainerStatuses"].is_null());
}
