//! Each story undisturbed, and then once for every effect of the scheduler with a crash before it, a crash after it,
//! its answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same.

use std::{ops::Range, sync::Arc, time::Duration};

use longshore_test::{
    faults::{Fault, FaultPlan, Point, Process, Refusal},
    laws::{
        Law, Owned, Scenario, Troubles, Violation, breaks, check_plans, check_scenario,
        check_seeds, replay,
    },
};

use crate::{
    scenarios::{self, People, Story},
    world::{World, digest},
};

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
            World::with_rules(self.dag, self.rules).await
        };
        tokio::spawn(self.people.use_cluster(world.place.clone()));
        Arc::new(world)
    }

    fn start(&self, world: &mut Arc<World>, process: &Process) -> Owned {
        let (world, process, people) = (world.clone(), process.clone(), self.people);
        Owned::spawn(async move {
            let dags = world.start(&process).await;
            people.use_scheduler(&world, &dags).await;
            std::future::pending::<()>().await;
        })
    }

    async fn digest(&self, world: &Arc<World>) -> String {
        digest(world).await
    }

    /// Commits take in whatever has come, so how many there are is a matter of timing.
    /// So is how often the API server refuses a pod for the moment.
    fn is_uncounted(&self, point: &Point) -> bool {
        let is_refused = !self.rules.is_empty() && point.what == "create pods";
        point.is_read() || point.what == "commit" || is_refused
    }

    /// Not the ConfigMap of a workspace that is refused: it is deleted at once, and one that lands after that stays until
    /// the next start, which looks for such ConfigMaps. Nor a pod that is deleted at once because it is stuck: the log of
    /// one that lands after that is kept.
    fn may_land_late(&self, point: &Point) -> bool {
        let deletes_at_once = |name: &str, what: &str| self.name == name && point.what == what;
        !(deletes_at_once(scenarios::WORKSPACE_REFUSED.name, "create configmaps")
            || deletes_at_once(scenarios::LAUNCH_FAILURE.name, "create pods"))
    }

    /// The scheduler launches a task again once it has seen that the stuck pod ended without having run. A pod that is
    /// missing from the list after an outage may have run: its try fails, as if a user had deleted the pod.
    fn is_given_up(&self, first: &FaultPlan, _: &Point) -> bool {
        self.name == scenarios::LAUNCH_FAILURE.name && first.has_outage()
    }

    fn has_appointments(&self) -> bool {
        !matches!(self.people, People::Watch | People::Schedule)
    }

    /// A log is stored once, and again after each restart where its pod is kept, and after each failure. For the rest
    /// there is room for timing, and none for a loop.
    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        let Troubles {
            n_undisturbed,
            n_starts,
            n_faults,
        } = *troubles;
        Some(match what {
            "archive log" => n_undisturbed * n_starts + n_faults,
            "commit" => 2 * n_undisturbed + 4 * (n_starts + n_faults),
            "watch pods" | "watch taskactions" => 400,
            _ => troubles.allowance(),
        })
    }

    /// No two pods of one task instance ran at the same time, and no pod of a try ran after one that had ended
    /// by itself.
    async fn broken(&self, world: &Arc<World>) -> Vec<Violation> {
        let history = world.node.history();
        let by_try = |run: &longshore_test::scripted_node::PodRun| run.labels.get("ti_id").cloned();
        let by_task = |run: &longshore_test::scripted_node::PodRun| {
            let part = |key: &str| run.annotations.get(key).cloned();
            Some([part("dag_id")?, part("run_id")?, part("task_id")?].join("/"))
        };
        let mut broken = history.overlapping(by_task);
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

/// All of them: for the laws, and but for those that it names itself for the real API server.
pub(crate) const STORIES: [Story; 23] = [
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
    scenarios::CLEARED,
    scenarios::RETRIED,
    scenarios::CANCELLED_AND_RETRIED,
    scenarios::TWO_DAGS,
    scenarios::ASKED_AGAIN,
    scenarios::WORKSPACE_REFUSED,
    scenarios::OVER_QUOTA,
    scenarios::BUSY,
    scenarios::TOO_LONG,
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
    a_cleared_task_survives_everything: CLEARED,
    a_retried_run_survives_everything: RETRIED,
    a_run_retried_while_its_pod_ends_survives_everything: CANCELLED_AND_RETRIED,
    two_dags_at_once_survive_everything: TWO_DAGS,
    a_run_requested_again_survives_everything: ASKED_AGAIN,
    a_refused_workspace_survives_everything: WORKSPACE_REFUSED,
    a_quota_that_is_used_up_survives_everything: OVER_QUOTA,
    a_busy_api_server_survives_everything: BUSY,
    a_task_that_takes_too_long_survives_everything: TOO_LONG,
}

/// The rows are read again after a commit without an answer. Where this fails on the way, it is made again: otherwise the
/// pods and the objects of a run that had ended by that commit stay.
#[test]
fn a_commit_without_an_answer_and_a_failed_read_after_it_are_survived() {
    let point = |what: &str, n| Point {
        what: what.to_owned(),
        n,
    };
    for (story, commits, reads) in [
        (scenarios::TIMED_OUT, 2..=5, 3..=4),
        (scenarios::RETRIED, 15..=18, 3..=5),
    ] {
        let plans = commits.flat_map(|commit| {
            reads.clone().map(move |read| FaultPlan {
                at: vec![
                    (point("commit", commit), Fault::LoseAnswer),
                    (
                        point("get run", read),
                        Fault::Refuse(Refusal::InternalError),
                    ),
                ],
                ..FaultPlan::none()
            })
        });
        check_plans(&story, plans).assert_kept();
    }
}

/// A scheduler beside which something goes on that should not.
struct Planted {
    what: &'static str,
    every: Duration,
    for_ever: bool,
}

impl Scenario for Planted {
    type World = Arc<World>;
    type Subject = (Owned, Owned);

    fn name(&self) -> String {
        format!("{} every {:?}", self.what, self.every)
    }

    async fn build(&self) -> Arc<World> {
        scenarios::CHAIN.build().await
    }

    fn start(&self, world: &mut Arc<World>, process: &Process) -> (Owned, Owned) {
        let n = if self.for_ever { u32::MAX } else { 50 };
        let (process_of_loop, what, every) = (process.clone(), self.what, self.every);
        let planted = Owned::spawn(async move {
            for _ in 0..n {
                tokio::time::sleep(every).await;
                let _ = process_of_loop.effect(what, async {}).await;
            }
        });
        (scenarios::CHAIN.start(world, process), planted)
    }

    async fn digest(&self, world: &Arc<World>) -> String {
        digest(world).await
    }

    fn is_uncounted(&self, point: &Point) -> bool {
        scenarios::CHAIN.is_uncounted(point)
    }

    /// As it is without the bug.
    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        let n_undisturbed = match what {
            "archive log" => 2,
            "commit" => 10,
            _ => troubles.n_undisturbed,
        };
        let troubles = Troubles {
            n_undisturbed,
            ..*troubles
        };
        scenarios::CHAIN.bound(what, &troubles)
    }
}

/// An upload again and again while the world is at rest, commits of nothing, and loops of both that end before that.
#[test]
fn planted_loops_of_uploads_and_commits_are_seen() {
    for what in ["archive log", "commit"] {
        for (every, for_ever, law) in [(50, true, Law::Quiet), (1, false, Law::Bounded)] {
            let planted = Planted {
                what,
                every: Duration::from_secs(every),
                for_ever,
            };
            assert!(breaks(&planted, law), "{what} every {every} s");
        }
    }
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
