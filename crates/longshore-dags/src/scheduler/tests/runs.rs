//! How runs begin, stop, go on and end.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use longshore_core::Next;
use longshore_store::{
    RunState,
    TaskState::{
        Failed, Queued, Removed, Running, Scheduled, Skipped, Success, UpForRetry, UpstreamFailed,
    },
};

use super::world::{World, dag, failed, key, request, running, stopped, succeeded, task};
use crate::{
    model::{Dag, TriggerRule, Workspace},
    scheduler::{Fact, NewRun, RunWait, RunWaits, decide},
};

/// a -> b -> c
fn chain() -> Dag {
    dag(vec![task("a", &[]), task("b", &["a"]), task("c", &["b"])])
}

fn with_workspace(mut dag: Dag) -> Dag {
    dag.workspace = Some(Workspace {
        size: "1Gi".to_owned(),
        mount_path: "/workspace".to_owned(),
        storage_class_name: None,
        access_modes: Vec::new(),
    });
    dag
}

#[test]
fn a_requested_run_has_its_first_tasks_queued_in_one_commit() {
    let mut world = World::new();
    let changes = world.round(vec![request(&Arc::new(chain()), "r")]);
    assert_eq!((changes.runs.len(), changes.task_instances.len()), (1, 3));
    assert_eq!(changes.watch_position.as_deref(), Some("7"));
    assert_eq!(world.run().state, RunState::Running);
    assert!(world.run().is_prepared);
    assert_eq!(world.run().start_date, Some(world.now));
    let a = world.row("a");
    assert_eq!((a.state, a.try_number, a.launch), (Some(Queued), 1, 1));
    assert_eq!(a.priority_weight, 3);
    assert!(a.pod_name.is_some());
    assert_eq!([world.state("b"), world.state("c")], [None, None]);
    assert_eq!(world.next, Next::AwaitChange);
}

#[test]
fn a_run_is_requested_once() {
    let dag = Arc::new(chain());
    let mut world = World::new();
    world.round(vec![request(&dag, "r"), request(&dag, "r")]);
    assert_eq!(world.runs.len(), 1);
    assert!(world.round(vec![request(&dag, "r")]).is_empty());
}

#[test]
fn success_goes_down_the_chain_with_one_commit_for_each_step() {
    let mut world = World::with_run(chain());
    for (id, after) in [("a", "b"), ("b", "c")] {
        world.wait(10);
        let changes = world.pod_round(id, succeeded());
        assert_eq!(changes.task_instances.len(), 2);
        assert_eq!(world.state(after), Some(Queued));
    }
    world.pod_round("c", succeeded());
    assert_eq!(world.run().state, RunState::Success);
    assert_eq!(
        (world.run().end_date, world.run().reason.as_ref()),
        (Some(world.now), None)
    );
}

#[test]
fn a_failure_fails_all_that_follows_and_the_run_in_one_commit() {
    let mut world = World::with_run(chain());
    let changes = world.pod_round("a", failed());
    assert_eq!((changes.runs.len(), changes.task_instances.len()), (1, 3));
    assert_eq!(
        [world.state("a"), world.state("b"), world.state("c")],
        [Some(Failed), Some(UpstreamFailed), Some(UpstreamFailed)]
    );
    assert_eq!(
        (world.run().state, world.run().reason.as_ref()),
        (RunState::Failed, None)
    );
}

#[test]
fn only_leaves_decide_upon_the_run() {
    let mut cleanup = task("b", &["a"]);
    cleanup.trigger_rule = TriggerRule::AllDone;
    let mut skipped = task("c", &["a"]);
    skipped.trigger_rule = TriggerRule::AllSkipped;
    let mut world = World::with_run(dag(vec![task("a", &[]), cleanup, skipped]));
    world.pod_round("a", failed());
    assert_eq!(
        [world.state("b"), world.state("c")],
        [Some(Queued), Some(Skipped)]
    );
    world.pod_round("b", succeeded());
    assert_eq!(world.run().state, RunState::Success);
}

#[test]
fn a_setup_further_up_that_was_skipped_skips_whatever_the_rule_says() {
    let mut setup = task("b", &["a"]);
    setup.is_setup = true;
    setup.trigger_rule = TriggerRule::AllFailed;
    let mut between = task("c", &["b"]);
    between.trigger_rule = TriggerRule::Always;
    let mut last = task("d", &["c"]);
    last.trigger_rule = TriggerRule::AllDone;
    let mut world = World::with_run(dag(vec![task("a", &[]), setup, between, last]));
    assert_eq!(world.state("c"), Some(Queued));
    world.pod_round("a", succeeded());
    assert_eq!(
        [world.state("b"), world.state("d")],
        [Some(Skipped), Some(Skipped)]
    );
}

/// `s` is set up for `w`, and torn down by `t` before `x`: its failure is none of `x`, nor of `t`.
#[test]
fn a_setup_binds_the_tasks_before_its_teardown_and_no_others() {
    let mut setup = task("s", &[]);
    setup.is_setup = true;
    let mut prepare = task("p", &["s"]);
    prepare.trigger_rule = TriggerRule::AllDone;
    let mut work = task("w", &["p"]);
    work.trigger_rule = TriggerRule::AllDone;
    let mut teardown = task("t", &["s", "w"]);
    teardown.is_teardown = true;
    teardown.trigger_rule = TriggerRule::AllDone;
    let mut after = task("x", &["t"]);
    after.trigger_rule = TriggerRule::AllDone;
    let mut last = task("z", &["x"]);
    last.is_teardown = true;
    let tasks = vec![setup, prepare, work, teardown, after, last];
    let mut world = World::with_run(dag(tasks));
    world.pod_round("s", failed());
    world.pod_round("p", succeeded());
    assert_eq!(world.state("w"), Some(UpstreamFailed));
    for task in ["t", "x", "z"] {
        assert_eq!(world.state(task), Some(Queued), "{task}");
        world.pod_round(task, succeeded());
    }
    assert_eq!(world.run().state, RunState::Success);
}

#[test]
fn a_dag_without_tasks_succeeds_at_once() {
    let mut dag = dag(Vec::new());
    dag.max_active_runs = 1;
    let dag = Arc::new(dag);
    let mut world = World::new();
    world.round(vec![request(&dag, "q"), request(&dag, "r")]);
    assert!(
        world
            .runs
            .values()
            .all(|run| run.state == RunState::Success)
    );
}

#[test]
fn a_run_that_shares_objects_waits_until_they_exist() {
    let mut world = World::with_run(with_workspace(chain()));
    assert_eq!(
        (world.run().state, world.run().is_prepared),
        (RunState::Running, false)
    );
    assert_eq!(world.state("a"), None);
    world.round(vec![Fact::RunPrepared(key("r"))]);
    assert_eq!(world.state("a"), Some(Queued));
    assert!(world.round(vec![Fact::RunPrepared(key("r"))]).is_empty());
    let refused = Fact::RunPrepareRefused {
        run: key("r"),
        message: "too late".to_owned(),
    };
    assert!(world.round(vec![refused]).is_empty());
}

#[test]
fn a_run_whose_shared_objects_are_refused_fails() {
    let mut world = World::with_run(with_workspace(chain()));
    world.round(vec![Fact::RunPrepareRefused {
        run: key("r"),
        message: "exceeded quota".to_owned(),
    }]);
    assert_eq!(world.run().state, RunState::Failed);
    assert_eq!(
        world.run().reason.as_deref(),
        Some("not_prepared: exceeded quota")
    );
    assert_eq!(world.state("c"), Some(Skipped));
}

#[test]
fn queued_runs_start_oldest_first_as_others_end() {
    let mut limited = chain();
    limited.max_active_runs = 1;
    let dag = Arc::new(limited);
    let mut world = World::new();
    world.round(vec![request(&dag, "r")]);
    for run in ["y", "x"] {
        world.wait(1);
        world.round(vec![request(&dag, run)]);
    }
    let states = |world: &World| [key("x"), key("y")].map(|key| world.runs[&key].state);
    assert_eq!(states(&world), [RunState::Queued, RunState::Queued]);
    world.pod_round("a", failed());
    assert_eq!(states(&world), [RunState::Queued, RunState::Running]);
}

#[test]
fn a_run_interrupted_and_resumed_before_it_started_is_as_it_was() {
    let mut limited = chain();
    limited.max_active_runs = 1;
    let dag = Arc::new(limited);
    let mut world = World::new();
    world.round(vec![request(&dag, "q"), request(&dag, "r")]);
    assert_eq!(world.run().state, RunState::Queued);
    let facts = vec![Fact::Interrupt(key("r")), Fact::Resume(key("r"))];
    assert!(world.round(facts).is_empty());
}

#[test]
fn cancelling_skips_what_has_not_run_and_fails_what_runs() {
    let mut world = World::with_run(dag(vec![
        task("a", &[]),
        task("b", &[]),
        task("c", &["a"]),
        task("d", &[]),
    ]));
    world.pod_round("a", running());
    world.pod_round("d", succeeded());
    world.round(vec![Fact::CancelRun(key("r"))]);
    let states = ["a", "b", "c", "d"].map(|id| world.state(id).unwrap());
    assert_eq!(states, [Failed, Skipped, Skipped, Success]);
    let run = world.run();
    assert_eq!(
        (run.state, run.reason.as_deref()),
        (RunState::Failed, Some("cancelled"))
    );
    assert_eq!(
        world.row("a").failure.as_ref().unwrap().message,
        "its run ended first: cancelled"
    );
    // What its pods still say changes nothing.
    assert!(world.pod_round("a", succeeded()).is_empty());
    assert!(world.round(vec![Fact::CancelRun(key("r"))]).is_empty());
}

#[test]
fn an_interrupted_run_goes_on_with_the_same_tries_and_new_launches() {
    let mut dag = dag(vec![task("a", &[]), task("b", &[]), task("c", &["a"])]);
    dag.dagrun_timeout = Some(Duration::from_secs(100));
    let mut world = World::with_run(dag);
    world.pod_round("a", running());
    let (id, late) = (world.row("a").id, world.pod("a", stopped()));
    world.round(vec![Fact::Interrupt(key("r"))]);
    let run = world.run();
    assert_eq!(
        (run.state, run.reason.as_deref()),
        (RunState::Queued, Some("interrupted"))
    );
    assert_eq!(
        [world.state("a"), world.state("b")],
        [Some(Scheduled), Some(Scheduled)]
    );
    assert_eq!(
        (
            world.row("a").pod_name.as_ref(),
            world.row("a").pod_uid.as_ref()
        ),
        (None, None)
    );

    // It stays as it is, also over its timeout and a restart.
    world.wait(1000);
    assert_eq!(world.next, Next::AwaitChange);
    assert!(world.round(vec![late.clone()]).is_empty());
    assert!(world.round(vec![Fact::Interrupt(key("r"))]).is_empty());

    world.round(vec![Fact::Resume(key("r")), late.clone()]);
    assert_eq!(world.run().state, RunState::Running);
    let a = world.row("a");
    assert_eq!(
        (a.state, a.id, a.try_number, a.launch),
        (Some(Queued), id, 1, 2)
    );
    assert!(world.round(vec![Fact::Resume(key("r")), late]).is_empty());
    assert_eq!(world.next, Next::After(Duration::from_secs(100)));
}

#[test]
fn a_pod_that_succeeded_by_itself_counts_though_its_run_was_interrupted_meanwhile() {
    for is_resumed in [false, true] {
        let mut world = World::with_run(dag(vec![task("a", &[]), task("b", &["a"])]));
        world.pod_round("a", running());
        let (pod, late) = (world.row("a").clone(), world.pod("a", succeeded()));
        world.round(vec![Fact::Interrupt(key("r"))]);
        if is_resumed {
            world.round(vec![Fact::Resume(key("r"))]);
        }
        world.round(vec![late]);
        let a = world.row("a");
        assert_eq!((a.state, &a.pod_name), (Some(Success), &pod.pod_name));
        assert_eq!(world.state("b"), is_resumed.then_some(Queued));
    }
}

#[test]
fn a_run_over_its_timeout_fails_whether_or_not_its_tasks_may_start() {
    for dag in [chain(), with_workspace(chain())] {
        let dag = Dag {
            dagrun_timeout: Some(Duration::from_secs(60)),
            ..dag
        };
        let mut world = World::with_run(dag);
        assert_eq!(world.next, Next::After(Duration::from_secs(60)));
        world.wait(59);
        assert!(world.round(Vec::new()).is_empty());
        assert_eq!(world.next, Next::After(Duration::from_secs(1)));
        world.wait(1);
        world.round(Vec::new());
        let run = world.run();
        assert_eq!(
            (run.state, run.reason.as_deref()),
            (RunState::Failed, Some("timed_out"))
        );
        assert_eq!(world.state("a"), Some(Skipped));
        assert_eq!(world.next, Next::AwaitChange);
    }
}

#[test]
fn a_run_over_its_timeout_skips_what_runs() {
    let dag = Dag {
        dagrun_timeout: Some(Duration::from_secs(60)),
        ..chain()
    };
    let mut world = World::with_run(dag);
    world.pod_round("a", running());
    world.wait(60);
    world.round(Vec::new());
    assert_eq!(world.run().state, RunState::Failed);
    let row = world.row("a");
    assert_eq!((row.state, &row.failure), (Some(Skipped), &None));
}

#[test]
fn a_run_about_an_instant_to_come_waits_for_it_and_holds_no_other() {
    let dag = Arc::new(Dag {
        max_active_runs: 1,
        ..chain()
    });
    let mut world = World::new();
    let Fact::RunRequested(new) = request(&dag, "q") else {
        unreachable!()
    };
    let to_come = Fact::RunRequested(NewRun {
        logical_date: world.now.checked_add(SignedDuration::from_secs(60)).ok(),
        ..new
    });
    world.round(vec![to_come]);
    let state = |world: &World| world.runs[&key("q")].state;
    let wait = |world: &World, run_id: &str| {
        RunWaits::of(world.board.clone()).of_run(&key(run_id), world.now)
    };
    assert_eq!(state(&world), RunState::Queued);
    assert_eq!(world.next, Next::After(Duration::from_secs(60)));
    let date = world
        .now
        .checked_add(SignedDuration::from_secs(60))
        .unwrap();
    assert_eq!(wait(&world, "q"), Some(RunWait::LogicalDate(date)));
    world.round(vec![request(&dag, "r"), request(&dag, "s")]);
    assert_eq!(world.run().state, RunState::Running);
    assert_eq!(wait(&world, "r"), None);
    assert_eq!(wait(&world, "s"), Some(RunWait::ActiveRuns(1)));
    world.round(vec![Fact::CancelRun(key("r"))]);
    world.round(vec![Fact::CancelRun(key("s"))]);
    assert_eq!(state(&world), RunState::Queued);
    world.wait(60);
    assert_eq!(wait(&world, "q"), None, "it begins in the next round");
    world.round(Vec::new());
    assert_eq!(state(&world), RunState::Running);
}

#[test]
pub(super) fn a_run_of_which_no_task_can_ever_start_fails() {
    let mut never = task("b", &["a"]);
    never.trigger_rule = TriggerRule::AllSkipped;
    let mut world = World::with_run(dag(vec![task("a", &[]), never]));
    // A row that a DAG without this task would have left behind.
    let row = world.rows.get_mut(&key("r").task("a")).unwrap();
    row.state = Some(Removed);
    row.end_date = Some(world.now);
    let mut reloaded = world.board.clone();
    let changes = longshore_store::Changes {
        task_instances: vec![longshore_store::TaskInstance {
            version: row.version - 1,
            ..row.clone()
        }],
        ..Default::default()
    };
    reloaded.apply(&changes, &[]);
    world.board = reloaded;
    world.round(Vec::new());
    let run = world.run();
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(run.reason.as_deref(), Some("all_tasks_deadlocked"));
}

#[test]
fn a_task_that_waits_for_its_next_try_is_skipped_when_its_run_ends() {
    let mut retried = task("a", &[]);
    retried.retries = 1;
    let mut world = World::with_run(dag(vec![retried]));
    world.pod_round("a", failed());
    assert_eq!(world.state("a"), Some(UpForRetry));
    world.round(vec![Fact::CancelRun(key("r"))]);
    assert_eq!(world.state("a"), Some(Skipped));
}

#[test]
fn the_watch_position_is_stored_with_other_rows_or_when_asked() {
    let world = World::with_run(chain());
    let mut observed = world.observe(Vec::new());
    assert_eq!(decide(&observed).actions, []);
    observed.store_position = true;
    let plan = decide(&observed);
    assert_eq!(plan.actions.len(), 1);
    observed.watch_position = None;
    assert_eq!(decide(&observed).actions, []);
}

#[test]
fn facts_of_one_round_are_taken_in_order() {
    let mut world = World::with_run(chain());
    let facts = vec![
        world.pod("a", running()),
        world.pod("a", succeeded()),
        world.pod("a", crate::scheduler::LaunchChange::Gone),
    ];
    let changes = world.round(facts);
    assert_eq!(changes.task_instances.len(), 2);
    assert_eq!(
        [world.state("a"), world.state("b")],
        [Some(Success), Some(Queued)]
    );
    assert_ne!(world.state("a"), Some(Running));
}
