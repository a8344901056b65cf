//! Each story undisturbed, and then once for every effect of the controller with a crash before it, a crash after it, its
//! answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same.

use std::{sync::Arc, time::Duration};

use longshore_test::{
    faults::{FaultPlan, Point, Process},
    laws::{Law, Owned, Scenario, Troubles, Violation, check_scenario, replay},
};

use crate::world::World;

/// What people do to a Service with two pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// One pod is operated on and serves again, the other one is deleted.
    Operated,
    /// One pod becomes another Service's, then the Service is deleted.
    Deleted,
}

impl Scenario for Story {
    type World = Arc<World>;
    type Subject = Owned;

    fn name(&self) -> String {
        format!("{self:?}")
    }

    async fn build(&self) -> Arc<World> {
        let world = World::new().await;
        world.make_service().await;
        tokio::spawn(people(world.clone(), *self));
        world
    }

    fn start(&self, world: &mut Arc<World>, process: &Process) -> Owned {
        let (world, process) = (world.clone(), process.clone());
        Owned::spawn(async move { world.run(&process).await })
    }

    async fn digest(&self, world: &Arc<World>) -> String {
        world.digest().await
    }

    fn time(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// How often another client writes a pod first, and what a table did before its answer was lost, depends on timing.
    fn is_uncounted(&self, _: &Point) -> bool {
        true
    }

    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        troubles.allowance_of_writes(what)
    }

    async fn broken(&self, world: &Arc<World>) -> Vec<Violation> {
        let broken = world.broken.lock().unwrap().clone();
        let violation = |pod: String| {
            let what = format!("{pod} lost its protection while it was in the table");
            Violation::of(Law::OwnInvariant, what)
        };
        broken.into_iter().map(violation).collect()
    }
}

async fn people(world: Arc<World>, story: Story) {
    for name in ["web-0", "web-1"] {
        world.make_pod(name).await;
        world.until_served(name, true).await;
    }
    match story {
        Story::Operated => {
            world.set_gate("web-0", "False").await;
            world.until_served("web-0", false).await;
            world.delete_pod("web-1").await;
            world.until_served("web-1", false).await;
            world.set_gate("web-0", "True").await;
        }
        Story::Deleted => {
            world.set_app("web-1", "other").await;
            world.until_served("web-1", false).await;
            world.delete_service().await;
        }
    }
}

#[test]
fn a_pod_that_is_operated_on_leaves_the_table_and_comes_back() {
    check(Story::Operated);
}

#[test]
fn a_service_that_is_deleted_leaves_nothing_behind() {
    check(Story::Deleted);
}

fn check(story: Story) {
    let report = check_scenario(&story);
    println!("{}: {} worlds", report.scenario, report.n_worlds);
    report.assert_kept();
}

#[test]
fn undisturbed_every_story_ends_well() {
    let finalizer = "prot.podopslifecycle.kusionstack.io/";
    let run = replay(&Story::Operated, FaultPlan::none());
    let end: Vec<&str> = run.digest.lines().collect();
    assert_eq!(end.len(), 3, "{}\n{}", run.digest, run.log);
    assert_eq!(
        end[0],
        r#"table {Employer: {"listener": Number(80)}, Employees: {"web-0": String("up")}}"#
    );
    assert_eq!(
        end[1],
        r#"service ["resource-consist.kusionstack.io/clean-finalizer"]"#
    );
    assert_eq!(end[2].matches(finalizer).count(), 2, "{}", end[2]);
    let run = replay(&Story::Deleted, FaultPlan::none());
    let nothing =
        r#"[] {"pod.kusionstack.io/available-conditions": "{\"expectedFinalizers\":{}}"}"#;
    let expected = format!(
        "table {{Employer: {{}}, Employees: {{}}}}\npod web-0: {nothing}\npod web-1: {nothing}\n"
    );
    assert_eq!(run.digest, expected, "{}", run.log);
}
