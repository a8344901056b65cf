//! The next steps that `decide` plans.

use serde_json::json;

use super::{Ending, Preparation, StopCause, id, pod, t};
use crate::{pod::decide::prepare_wait, probes::Kind, refusal::Refusal};

#[test]
#[expect(clippy::too_many_lines, reason = "one row per situation")]
fn each_situation_has_its_next_step() {
    use StopCause::{DeadlineExceeded, Deleted, Over};
    let never = || pod("Never");
    let ran = |code| never().prepared().exited("main", 0, code, 1, 2);
    for (situation, case, now, expected) in [
        ("new", never(), 0, "prepare"),
        ("ready to start", never().prepared(), 0, "start main/0"),
        ("refused", never().refused(5), 1, "publish Pending, wake 5"),
        (
            "refused, time to try again",
            never().refused(5).told(),
            5,
            "prepare",
        ),
        ("rejected", never().rejected(), 1, "publish Failed"),
        ("rejected, and told", never().rejected().told(), 9, ""),
        (
            "rejected, and deleted",
            never().rejected().deleted(30).told(),
            9,
            "stop Deleted, delete",
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
            "kill main/0",
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
        assert_eq!(case.next(now), expected, "{situation}");
    }
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
fn a_container_that_a_probe_gives_up_gets_its_grace() {
    let probe = json!({"tcpSocket": {"port": 1}, "failureThreshold": 1, "terminationGracePeriodSeconds": 5});
    let mut case = pod("Always").prepared().running("main", 0, 1);
    case.pod["spec"]["containers"][0]["livenessProbe"] = probe;
    let wish = case.desired().main[0].clone();
    let mut health = case.local.health_of(&wish, 0);
    health.learn(&wish.probes, Kind::Liveness, false, t(2));
    case.local.health.insert(id("main", 0), health);
    let case = case.told();
    assert_eq!(case.next(2), "end main/0");
    let mut asked = case;
    asked
        .local
        .ending
        .insert(id("main", 0), Ending::begun(t(2)));
    assert_eq!(asked.next(2), "ask main/0");
    asked
        .local
        .ending
        .insert(id("main", 0), Ending::asked(t(2)));
    assert_eq!(asked.next(3), "wake 7");
    assert_eq!(asked.next(7), "kill main/0");
    let asked = asked.killed();
    assert_eq!(asked.next(8), "");
    let again = asked.exited("main", 0, 137, 1, 8).told();
    assert_eq!(again.next(8), "start main/1");
}

#[test]
fn volumes_are_refreshed_when_that_is_due_and_once_at_a_time() {
    let running = || pod("Never").prepared().running("main", 0, 1).told();
    for (situation, case, now, expected) in [
        ("not yet", running().refreshing(9, false), 8, "wake 9"),
        ("due", running().refreshing(9, false), 9, "refresh"),
        ("under way", running().refreshing(9, true), 20, ""),
        (
            "being stopped",
            running()
                .stopping(StopCause::Deleted, 5)
                .told()
                .refreshing(9, false),
            9,
            "refresh, wake 35",
        ),
        (
            "not running yet",
            pod("Never").refreshing(0, false),
            1,
            "prepare",
        ),
        (
            "over",
            pod("Never")
                .prepared()
                .exited("main", 0, 0, 1, 2)
                .told()
                .refreshing(9, false),
            9,
            "release",
        ),
    ] {
        assert_eq!(case.next(now), expected, "{situation}");
    }
}

#[test]
fn an_image_is_tried_again_as_a_kubelet_pulls_again() {
    let refusal = Refusal::image("main", "no entry");
    let waits: Vec<u64> = (1..8)
        .map(|n| prepare_wait(&refusal, n).as_secs())
        .collect();
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(prepare_wait(&Refusal::pod("no"), 1).as_secs(), 1);
    let mut case = pod("Never");
    case.local.preparation = Preparation::Failed {
        refusal,
        n_failures: 1,
        since: t(0),
        again_at: Some(t(10)),
    };
    let told = case.told();
    // First the reason turns, then the node tries again.
    assert_eq!(told.next(0), "wake 1");
    assert_eq!(told.next(1), "publish Pending, wake 10");
    assert!(told.next(10).starts_with("prepare"));
}
