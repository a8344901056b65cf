//! Each story undisturbed, and then once for every effect of the controllers with a crash before it, a crash after it,
//! its answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use longshore_api::podops::FINALIZER_SERVICES;
use longshore_test::{
    faults::{FaultPlan, Point, Process},
    laws::{Law, Owned, Scenario, Troubles, Violation, check_scenario, replay},
};

use crate::{
    stories::{self, MostOut, People, Story},
    world::World,
};

impl Scenario for Story {
    type World = (Arc<World>, MostOut);
    type Subject = Owned;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn build(&self) -> Self::World {
        self.begin().await
    }

    fn start(&self, world: &mut Self::World, process: &Process) -> Owned {
        let (world, process) = (world.0.clone(), process.clone());
        Owned::spawn(async move { world.run(&process).await })
    }

    async fn digest(&self, world: &Self::World) -> String {
        world.0.digest().await
    }

    fn time(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Timing decides how often another client writes a pod first, and how often a pod is shown what a rule says; and
    /// whether the controller has seen that a pod is gone when it no longer waits for the client that evicts it.
    fn is_uncounted(&self, point: &Point) -> bool {
        let is_write = point.what.starts_with("patch ") || point.what.ends_with(" events");
        let is_evicted = self.people == People::Evict && point.what == "create pods/eviction";
        point.is_read() || is_write || is_evicted
    }

    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        troubles.allowance_of_writes(what)
    }

    async fn broken(&self, world: &Self::World) -> Vec<Violation> {
        let (world, most_out) = world;
        let mut broken = world.webhooks.broken.lock().unwrap().clone();
        broken.extend(world.slow.broken());
        let most_out = most_out.load(Ordering::Relaxed);
        if most_out > self.max_out {
            broken.push(format!("{most_out} pods were out of service at once"));
        }
        let violation = |what| Violation::of(Law::OwnInvariant, what);
        broken.into_iter().map(violation).collect()
    }
}

#[test]
fn a_deletion_survives_everything() {
    check(&stories::DELETED);
}

#[test]
fn evictions_under_a_budget_survive_everything() {
    check(&stories::EVICTED);
}

#[test]
fn an_eviction_that_is_not_repeated_survives_everything() {
    check(&stories::EVICTED_ONCE);
}

#[test]
fn two_operations_survive_everything() {
    check(&stories::TWICE);
}

#[test]
fn a_deletion_behind_a_service_survives_everything() {
    check(&stories::DELETED_BEHIND_A_SERVICE);
}

#[test]
fn a_rule_survives_everything() {
    check(&stories::UNDER_RULE);
}

#[test]
fn a_task_of_a_rule_survives_everything() {
    check(&stories::UNDER_TASK);
}

/// The webhook has an open request about the first pod when the second one comes: a crash makes no other requests of
/// them.
#[test]
fn requests_about_pods_that_came_one_after_the_other_survive_everything() {
    check(&stories::UNDER_TASKS);
}

#[test]
fn a_pod_that_takes_part_no_more_survives_everything() {
    check(&stories::FREED);
}

fn check(story: &Story) {
    let report = check_scenario(story);
    println!("{}: {} worlds", report.scenario, report.n_worlds);
    report.assert_kept();
}

/// The webhook has begun the operation with its own write; the rules, the gate and the delete are what follows.
#[test]
fn a_deletion_costs_three_requests_of_the_controller() {
    let run = replay(&stories::DELETED, FaultPlan::none());
    let is_counted = |point: &&Point| !point.is_read() && !point.what.ends_with(" events");
    let asked: Vec<_> = run.points.iter().filter(is_counted).collect();
    let asked: Vec<&str> = asked.iter().map(|point| point.what.as_str()).collect();
    let serves = ["patch pods/status", "patch pods"];
    let goes = ["patch pods", "patch pods/status", "delete pods"];
    assert_eq!(asked, [&serves[..], &goes[..]].concat(), "{}", run.log);
}

/// The webhook has noted that it is wanted: the controller reserves a disruption in the budget, and begins the operation
/// with the next write. The client that evicts removes the pod; where it does not retry, the controller evicts the pod.
#[test]
fn an_eviction_costs_two_requests_more() {
    let run = replay(&stories::EVICTED_ONCE, FaultPlan::none());
    let is_counted = |point: &&Point| !point.is_read() && !point.what.ends_with(" events");
    let asked: Vec<_> = run.points.iter().filter(is_counted).collect();
    let asked: Vec<&str> = asked.iter().map(|point| point.what.as_str()).collect();
    let goes = [
        "patch poddisruptionbudgets/status",
        "patch pods",
        "patch pods",
        "patch pods/status",
        "create pods/eviction",
    ];
    assert!(asked.ends_with(&goes), "{asked:?}\n{}", run.log);
    assert_eq!(asked.len(), 2 * 2 + goes.len(), "{asked:?}");
}

#[test]
fn undisturbed_every_story_ends_well() {
    let serving = "ready true gate Some(True) labels [\"app\", \"kusionstack.io/control\", \
                   \"podopslifecycle.kusionstack.io/service-available\"] \
                   finalizers {\"prot.podopslifecycle.kusionstack.io/";
    let stories = [
        stories::DELETED,
        stories::TWICE,
        stories::IN_TURN,
        stories::UNDER_RULE,
        stories::FOUR_UNDER_RULE,
        stories::UNDER_TASK,
        stories::UNDER_TASKS,
        stories::DELETED_BEHIND_A_SERVICE,
        stories::IN_TURN_BEHIND_A_SERVICE,
        stories::EVICTED,
        stories::EVICTED_ONCE,
        // The controller makes up for what no webhook saw.
        stories::DELETED_PAST_THE_WEBHOOK,
        stories::TWICE_PAST_THE_WEBHOOK,
    ];
    for story in &stories {
        let run = replay(story, FaultPlan::none());
        let n_serving = run.digest.matches(serving).count();
        let ours = format!("\"{FINALIZER_SERVICES}\"");
        let expected = match story.people {
            People::Delete => 0,
            People::EvictOnce => 1,
            People::OperateTwice
            | People::OperateInTurn
            | People::OperateUnderRule
            | People::OperateUnderTask
            | People::Free
            | People::Evict => story.n_pods,
        };
        assert_eq!(
            n_serving, expected,
            "{}: {}\n{}",
            story.name, run.digest, run.log
        );
        assert_eq!(run.digest.lines().count(), expected, "{}", run.digest);
        let n_held = run.digest.matches(&ours).count();
        let n_routed = if story.is_routed { expected } else { 0 };
        assert_eq!(n_held, n_routed, "{}: {}", story.name, run.digest);
    }
}

/// Nothing of ours is left, and its gate is open.
#[test]
fn undisturbed_a_pod_that_takes_part_no_more_serves() {
    let run = replay(&stories::FREED, FaultPlan::none());
    let expected = "pod web-0: ready true gate Some(True) labels [\"app\"] finalizers \
                    {\"prot.podopslifecycle.kusionstack.io/traffic\"} details {}\n";
    assert_eq!(run.digest, expected, "{}", run.log);
}
