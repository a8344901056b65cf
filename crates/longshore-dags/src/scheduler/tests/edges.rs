//! Every listed transition can be taken. (That no other one is taken, each test of this crate asserts.)

use super::world::{World, dag, failed, key, never_started, request, running, succeeded, task};
use crate::{
    model::{Dag, TriggerRule},
    scheduler::{Fact, LaunchChange, Selection, transitions::recorder},
};

/// `run` runs, `queue` is queued, `wait` waits for a slot, `next` for another task, `again` for its next try.
fn every_state() -> World {
    let mut again = task("again", &[]);
    again.retries = 1;
    again.priority_weight = 9;
    let mut run = task("run", &[]);
    run.retries = 1;
    run.priority_weight = 8;
    let mut queue = task("queue", &[]);
    queue.priority_weight = 7;
    let mut dag = dag(vec![
        again,
        run,
        queue,
        task("wait", &[]),
        task("next", &["wait"]),
    ]);
    dag.max_active_tasks = 3;
    dag.dagrun_timeout = Some(std::time::Duration::from_secs(60));
    let mut world = World::with_run(dag);
    let facts = vec![world.pod("run", running()), world.pod("again", running())];
    world.round(facts);
    // `wait` would take the slot; a smaller limit is not possible within a run, so parallelism holds it back.
    world.limits.parallelism = 2;
    world.pod_round("again", failed());
    world
}

fn single(rule: TriggerRule) -> Dag {
    let mut after = task("b", &["a"]);
    after.trigger_rule = rule;
    dag(vec![task("a", &[]), after])
}

fn unprepared() -> Dag {
    let mut dag = dag(vec![task("a", &[])]);
    dag.files.insert("a.csv".to_owned(), Vec::new());
    dag
}

fn cancelled_interrupted_and_timed_out() {
    every_state().round(vec![Fact::CancelRun(key("r"))]);
    let mut timed_out = every_state();
    timed_out.wait(60);
    timed_out.round(Vec::new());
    let mut restarting = every_state();
    let clear = restarting.clear("r", &Selection::default());
    restarting.round(vec![clear]);
    restarting.wait(60);
    restarting.round(Vec::new());
    let mut interrupted = every_state();
    interrupted.round(vec![Fact::Interrupt(key("r"))]);
    let done_before = interrupted.pod("run", succeeded());
    interrupted.round(vec![done_before]);
    interrupted.round(vec![Fact::CancelRun(key("r"))]);
    let mut refused = World::with_run(unprepared());
    refused.round(vec![Fact::RunPrepareRefused {
        run: key("r"),
        message: String::new(),
    }]);
    let mut limited = unprepared();
    limited.max_active_runs = 1;
    let dag = std::sync::Arc::new(limited);
    let mut queued = World::new();
    queued.round(vec![request(&dag, "q"), request(&dag, "r")]);
    queued.round(vec![Fact::Interrupt(key("r"))]);
    queued.round(vec![Fact::RunPrepareRefused {
        run: key("r"),
        message: String::new(),
    }]);
}

fn tries() {
    let mut retried = every_state();
    retried.pod_round("run", failed());
    retried.wait(59);
    let relaunched = retried.pod("queue", LaunchChange::Gone);
    retried.round(vec![relaunched]);
    retried.pod_round("queue", never_started("Error"));
    every_state().pod_round("run", succeeded());

    let mut queued_retry = task("a", &[]);
    queued_retry.retries = 1;
    let mut world = World::with_run(dag(vec![queued_retry]));
    world.pod_round("a", failed());
    world.wait(300);
    world.round(Vec::new());
    world.pod_round("a", running());
    world.pod_round("a", failed());

    let mut unbuildable = World::with_run(single(TriggerRule::AllSuccess));
    let (ti_id, launch) = (unbuildable.row("a").id, 1);
    unbuildable.round(vec![Fact::LaunchBuildFailed {
        ti_id,
        launch,
        message: String::new(),
    }]);
    World::with_run(single(TriggerRule::AllFailed)).pod_round("a", succeeded());
}

fn cleared() {
    let all = Selection::default();
    let mut world = every_state();
    world.pod_round("run", succeeded());
    let clear = world.clear("r", &all);
    world.round(vec![clear]);
    let mut cancelled = every_state();
    let clear = cancelled.clear("r", &all);
    cancelled.round(vec![clear]);
    cancelled.round(vec![Fact::CancelRun(key("r"))]);
    let clear = cancelled.clear("r", &all);
    cancelled.round(vec![clear]);
    let ended = cancelled.pods_ended("run");
    cancelled.round(vec![ended]);
    let mut interrupted = every_state();
    interrupted.round(vec![Fact::Interrupt(key("r"))]);
    let clear = interrupted.clear("r", &all);
    interrupted.round(vec![clear]);
    let mut queued = every_state();
    queued.round(vec![Fact::CancelRun(key("r"))]);
    let clear = queued.clear("r", &all);
    queued.round(vec![clear]);

    let mut failed_run = World::with_run(single(TriggerRule::AllSuccess));
    failed_run.pod_round("a", failed());
    let clear = failed_run.clear("r", &all);
    failed_run.round(vec![clear]);
    let mut done = World::with_run(dag(vec![task("a", &[])]));
    done.pod_round("a", succeeded());
    let clear = done.clear("r", &all);
    done.round(vec![clear]);
}

#[test]
fn every_listed_edge_is_taken() {
    cancelled_interrupted_and_timed_out();
    tries();
    cleared();
    super::retry::a_task_that_waits_for_its_retry_waits_for_what_is_cleared_before_it();
    super::waiting::a_sensor_looks_again_in_the_same_try();
    super::waiting::a_sensor_that_looks_again_is_examined_like_a_scheduled_task();
    super::waiting::a_run_that_ends_first_skips_what_waits_outside();
    super::waiting::what_waits_outside_can_be_cleared();
    super::workers::each_end_that_a_worker_reports_is_that_of_its_try();
    super::workers::a_worker_that_asks_for_a_retry_gets_the_next_try();
    super::workers::a_sensor_that_gives_up_its_worker_looks_again();
    super::workers::a_try_waits_for_a_trigger_or_a_human();
    super::workers::a_worker_that_never_begins_is_launched_again_and_then_fails();
    super::workers::a_branch_skips_what_has_not_run_and_nothing_else();
    super::python::a_task_that_does_nothing_succeeds_without_a_worker_and_counts_a_try();
    super::runs::a_run_of_which_no_task_can_ever_start_fails();
    assert_eq!(recorder::untaken(), (Vec::new(), Vec::new()));
}
