//! Tasks with a plugin, under all laws: the same stories as for pods, with a TaskAction in the pod's place.

use std::time::Duration;

use longshore_store::{RunKey, RunState, TaskState};
use longshore_test::{
    faults::{FaultPlan, Faults},
    laws::{check_scenario, check_seeds, replay},
};

use crate::{
    executor,
    scenarios::{People, Story},
    world::{RUN_ID, World, seconds, undisturbed},
};

const CHAIN: Story = Story {
    name: "plugin_chain",
    dag: "
dag_id: plugin_chain
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {plugin: pod, command: [x], env: {SCRIPT: run 1s}, depends_on: a}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
",
    people: People::Watch,
    rules: &[],
};

const RETRY: Story = Story {
    name: "plugin_retry",
    dag: "
dag_id: plugin_retry
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: 'run 1s exit 3 | run 1s'}, retries: 1, retry_delay: 5}
  b: {plugin: pod, command: [x], env: {SCRIPT: run 1s exit 4}, depends_on: a}
  c: {command: [x], depends_on: b}
",
    people: People::Watch,
    rules: &[],
};

const CANCELLED: Story = Story {
    name: "plugin_cancelled",
    dag: "
dag_id: plugin_cancelled
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: run 90s}}
  b: {command: [x], depends_on: a}
",
    people: People::Cancel(20),
    rules: &[],
};

const CLEARED: Story = Story {
    name: "plugin_cleared",
    dag: "
dag_id: plugin_cleared
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: 'run 80s | run 1s'}}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::Clear("a", 20),
    rules: &[],
};

const DELETED: Story = Story {
    name: "plugin_deleted",
    dag: "
dag_id: plugin_deleted
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: 'run 80s | run 1s'}, retries: 1, retry_delay: 0}
",
    people: People::DeleteActionOf("a", 25),
    rules: &[],
};

const TOO_LONG: Story = Story {
    name: "plugin_too_long",
    dag: "
dag_id: plugin_too_long
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: 'run 120s | run 1s'}, execution_timeout: 15, retries: 1, retry_delay: 3}
",
    people: People::Watch,
    rules: &[],
};

const INTERRUPTED: Story = Story {
    name: "plugin_interrupted",
    dag: "
dag_id: plugin_interrupted
tasks:
  a: {plugin: pod, command: [x], env: {SCRIPT: run 30s}}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::InterruptAndResume("a", 15, 40),
    rules: &[],
};

const STORIES: [Story; 7] = [
    CHAIN,
    RETRY,
    CANCELLED,
    CLEARED,
    DELETED,
    TOO_LONG,
    INTERRUPTED,
];

macro_rules! stories {
    ($($test:ident: $story:ident,)*) => {
        $(
            #[test]
            fn $test() {
                check_scenario(&$story).assert_kept();
            }
        )*
    };
}

stories! {
    a_chain_with_a_plugin_survives_everything: CHAIN,
    retries_with_plugins_survive_everything: RETRY,
    a_cancelled_plugin_survives_everything: CANCELLED,
    a_cleared_plugin_survives_everything: CLEARED,
    a_deleted_action_survives_everything: DELETED,
    a_plugin_that_takes_too_long_survives_everything: TOO_LONG,
    an_interrupted_plugin_survives_everything: INTERRUPTED,
}

#[test]
fn every_story_with_a_plugin_survives_many_faults_at_once() {
    for story in STORIES {
        check_seeds(&story, 0..3).assert_kept();
    }
}

/// The undisturbed ends, as text to be reviewed.
#[test]
fn the_ends_with_plugins_are_these() {
    let ends = STORIES.map(|story| replay(&story, FaultPlan::none()).digest);
    insta::assert_snapshot!(ends.join("\n\n"));
}

/// The definition is not there: the task fails, and says what to do.
#[tokio::test(start_paused = true)]
async fn a_task_with_a_plugin_fails_where_the_cluster_has_no_task_actions() {
    let around = crate::surroundings::Surroundings::embedded();
    let world = World::standing_on(around, CHAIN.dag, &[]);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    let ended = tokio::time::timeout(Duration::from_secs(100), dags.ended(&run)).await;
    let (run, tasks) = ended.unwrap().unwrap().unwrap();
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(tasks[0].state, Some(TaskState::Success));
    let failure = tasks[1].failure.as_ref().unwrap();
    assert!(failure.message.contains("kubectl apply -f"), "{failure:?}");
}

/// The scheduler watches the definition of TaskActions: nothing is asked twice, and a run after it is there goes well.
#[tokio::test(start_paused = true)]
async fn a_scheduler_waits_for_task_actions_by_a_watch() {
    let dag = "{dag_id: late, tasks: {a: {plugin: pod, command: [x], env: {SCRIPT: run 1s}}}}";
    let world = World::standing_on(crate::surroundings::Surroundings::embedded(), dag, &[]);
    let faults = Faults::new(FaultPlan::none());
    let dags = world.start(&faults.start()).await;
    let state_of = async |run: RunKey| {
        let ended = tokio::time::timeout(Duration::from_secs(100), dags.ended(&run)).await;
        ended.unwrap().unwrap().unwrap().0.state
    };
    let early = world.request(&dags, RUN_ID).await;
    assert_eq!(state_of(early).await, RunState::Failed);
    seconds(600).await;
    assert_eq!(faults.count("list taskactions"), 1, "no polls");
    assert_eq!(faults.count("list customresourcedefinitions"), 1);

    executor::start(&world.place, world.clock.clone()).await;
    seconds(30).await;
    let late = world.request(&dags, "late").await;
    assert_eq!(state_of(late).await, RunState::Success);
}

/// A DAG without plugins costs no request about TaskActions.
#[test]
fn task_actions_are_watched_only_where_a_task_has_a_plugin() {
    let about_actions = |story: &Story| {
        let points = replay(story, FaultPlan::none()).points;
        let is_it = |point: &&longshore_test::faults::Point| point.what.contains("taskactions");
        points.iter().filter(is_it).count()
    };
    assert_eq!(about_actions(&crate::scenarios::CHAIN), 0);
    assert!(about_actions(&CHAIN) > 0);
}
