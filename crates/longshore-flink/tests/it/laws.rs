//! Each story undisturbed, and then once for every effect of the controllers with a crash before it, a crash after it, its
//! answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same, and no job starts
//! from an older state than the newest that was saved, or twice.

use std::sync::Arc;

use longshore_test::{
    faults::{FaultPlan, Point, Process},
    laws::{Law, Owned, Scenario, Troubles, Violation, check_crashes, check_scenario, replay},
};

use crate::{
    stories::{self, People, Story},
    world::World,
};

impl Scenario for Story {
    type World = Arc<World>;
    type Subject = Owned;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn build(&self) -> Self::World {
        self.begin().await
    }

    fn start(&self, world: &mut Self::World, process: &Process) -> Owned {
        let (world, process) = (Arc::clone(world), process.clone());
        Owned::spawn(async move { world.run(&process).await })
    }

    async fn digest(&self, world: &Self::World) -> String {
        let digest = world.digest().await;
        // A savepoint that is found only by what the ended job says of itself gets no resource.
        let is_shown = |it: &&str| self != &stories::FORGOTTEN || !it.contains("\"UPGRADE\"");
        let lines: Vec<&str> = digest.lines().filter(is_shown).collect();
        lines.join("\n")
    }

    /// Timing decides how many looks at a job, records of what was seen and repeated requests there are. How often a
    /// cluster is made is counted.
    fn is_uncounted(&self, point: &Point) -> bool {
        point.what != "create deployments"
    }

    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        troubles.allowance_of_writes(what)
    }

    async fn broken(&self, world: &Self::World) -> Vec<Violation> {
        let broken = world.job_managers.broken().into_iter();
        let violation = |what| Violation::of(Law::OwnInvariant, what);
        broken.map(violation).collect()
    }
}

#[test]
fn a_first_deployment_survives_everything() {
    check(&stories::CREATED);
}

#[test]
fn an_upgrade_with_a_savepoint_survives_everything() {
    check(&stories::SAVEPOINT_UPGRADE);
}

#[test]
fn an_upgrade_whose_savepoint_is_forgotten_survives_every_crash() {
    check_crashes(&stories::FORGOTTEN).assert_kept();
}

#[test]
fn an_upgrade_from_the_last_state_survives_everything() {
    check(&stories::LAST_STATE_UPGRADE);
}

#[test]
fn an_upgrade_without_state_survives_every_crash() {
    check_crashes(&stories::STATELESS_UPGRADE).assert_kept();
}

#[test]
fn a_suspension_survives_everything() {
    check(&stories::SUSPENDED);
}

#[test]
fn a_deletion_survives_everything() {
    check(&stories::DELETED);
}

#[test]
fn a_savepoint_by_a_nonce_survives_everything() {
    check(&stories::SAVED);
}

#[test]
fn a_session_job_survives_everything() {
    check(&stories::SESSION_JOB);
}

fn check(story: &Story) {
    let report = check_scenario(story);
    println!("{}: {} worlds", report.scenario, report.n_worlds);
    report.assert_kept();
}

#[test]
fn undisturbed_every_story_ends_well() {
    for story in &stories::ALL {
        let run = replay(story, FaultPlan::none());
        let (name, digest) = (story.name, &run.digest);
        let n_running = if story.people == People::Delete { 0 } else { 1 };
        assert!(
            digest.contains(&format!("{n_running} jobs run")),
            "{name}: {digest}\n{}",
            run.log
        );
        let n_starts = match story.people {
            People::Create | People::Delete | People::Savepoint => 1,
            People::Upgrade
            | People::UpgradeForgotten
            | People::SuspendAndResume
            | People::SessionJob => 2,
        };
        let starts = format!("{n_starts} starts");
        assert!(digest.contains(&starts), "{name}: {digest}\n{}", run.log);
        assert!(run.broken.is_empty(), "{name}: {:?}", run.broken);
        assert!(!digest.contains("error true"), "{name}: {digest}");
    }
}

#[test]
fn a_first_deployment_costs_three_records_and_seven_requests_more() {
    let run = replay(&stories::CREATED, FaultPlan::none());
    let is_counted = |point: &&Point| !point.is_read() && !point.what.ends_with(" events");
    let asked = run.points.iter().filter(is_counted);
    let asked: Vec<&str> = asked.map(|point| point.what.as_str()).collect();
    let n_records = asked.iter().filter(|it| it.ends_with("/status")).count();
    assert_eq!(n_records, 3, "{asked:?}");
    assert!(asked.len() <= 9, "{asked:?}");
}
