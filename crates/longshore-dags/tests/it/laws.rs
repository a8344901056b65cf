//! Each story undisturbed, and then once for every effect of the scheduler with a crash before it, a crash after it,
//! its answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same.

use std::{ops::Range, sync::Arc};

use longshore_test::{
    faults::{Point, Process},
    laws::{Law, Scenario, Violation, check_scenario, check_seeds, replay},
};
use tokio::task::JoinHandle;

use crate::{
    scenarios::{self, Story},
    world::{World, digest},
};

/// A task of the test that ends with its owner.
pub(crate) struct Owned(JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Scenario for Story {
    type World = Arc<World>;
    type Subject = Owned;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn build(&self) -> Arc<World> {
        let world = if self.people.does_follow() {
            World::following(self.dag).await
        } else {
            World::new(self.dag).await
        };
        tokio::spawn(self.people.use_cluster(world.cluster.client()));
        Arc::new(world)
    }

    fn start(&self, world: &mut Arc<World>, process: &Process) -> Owned {
        let (world, process, people) = (world.clone(), process.clone(), self.people);
        Owned(tokio::spawn(async move {
            let dags = world.start(&process).await;
            people.use_scheduler(&world, &dags).await;
            std::future::pending::<()>().await;
        }))
    }

    async fn digest(&self, world: &Arc<World>) -> String {
        digest(world).await
    }

    /// Commits take in whatever has come, so how many there are is a matter of timing.
    fn is_uncounted(&self, point: &Point) -> bool {
        point.is_read() || point.what == "commit"
    }

    /// A scheduler that starts again stores the logs of the pods that are kept again.
    fn is_heartbeat(&self, point: &Point) -> bool {
        point.what == "archive log"
    }

    /// No two pods of one try ran at the same time, and none ran after one that had ended by itself.
    async fn broken(&self, world: &Arc<World>) -> Vec<Violation> {
        let history = world.node.history();
        let by_try = |run: &longshore_test::scripted_node::PodRun| run.labels.get("ti_id").cloned();
        let mut broken = history.overlapping(by_try);
        for (ti_id, runs) in history.by(by_try) {
            let n_ended = runs
                .iter()
                .filter(|run| run.exit_code.is_some_and(|code| code < 128));
            if n_ended.count() > 1 {
                broken.push(format!("the try {ti_id} ran to its end more than once"));
            }
        }
        broken
            .into_iter()
            .map(|what| Violation::of(Law::OwnInvariant, what))
            .collect()
    }
}

/// Worlds with many faults each, per story.
const SEEDS: Range<u64> = 0..4;

const STORIES: [Story; 14] = [
    scenarios::CHAIN,
    scenarios::RETRY,
    scenarios::DIAMOND,
    scenarios::TWO_RUNS,
    scenarios::LAUNCH_FAILURE,
    scenarios::INTERRUPTED,
    scenarios::CANCELLED,
    scenarios::POD_DELETED,
    scenarios::TIMED_OUT,
    scenarios::LIMITED,
    scenarios::RULES,
    scenarios::REFUSED,
    scenarios::SCHEDULED,
    scenarios::PAUSED,
];

macro_rules! stories {
    ($($test:ident: $story:ident,)*) => {
        $(
            #[test]
            fn $test() {
                let report = check_scenario(&scenarios::$story);
                println!("{}: {} worlds", report.scenario, report.n_worlds);
                report.assert_kept();
            }
        )*
    };
}

stories! {
    a_chain_survives_everything: CHAIN,
    retries_survive_everything: RETRY,
    limits_and_shared_objects_survive_everything: DIAMOND,
    runs_that_wait_for_each_other_survive_everything: TWO_RUNS,
    launch_failures_survive_everything: LAUNCH_FAILURE,
    an_interrupted_run_survives_everything: INTERRUPTED,
    a_cancelled_run_survives_everything: CANCELLED,
    a_deleted_pod_survives_everything: POD_DELETED,
    a_run_that_takes_too_long_survives_everything: TIMED_OUT,
    limits_over_runs_survive_everything: LIMITED,
    trigger_rules_survive_everything: RULES,
    a_refused_pod_survives_everything: REFUSED,
    a_schedule_survives_everything: SCHEDULED,
    a_paused_schedule_survives_everything: PAUSED,
}

/// Many faults at once.
#[test]
fn every_story_survives_many_faults_at_once() {
    for story in STORIES {
        check_seeds(&story, SEEDS).assert_kept();
    }
}

/// The undisturbed ends, as text to be reviewed.
#[test]
fn the_ends_are_these() {
    let ends =
        STORIES.map(|story| replay(&story, longshore_test::faults::FaultPlan::none()).digest);
    insta::assert_snapshot!(ends.join("\n\n"));
}
