//! Clear and retry.

use longshore_store::{RunState, TaskState};

use super::world::{World, dag, failed, key, request, running, succeeded, task};
use crate::{
    model::Dag,
    scheduler::{Fact, LaunchChange, Selection, States},
};

fn of(task_id: &str) -> Selection {
    Selection {
        task_ids: [task_id.to_owned()].into(),
        ..Selection::default()
    }
}

/// `a`, then `b`, then `c`, where `a` may be retried twice.
fn chain() -> Dag {
    let mut a = task("a", &[]);
    a.retries = 2;
    dag(vec![a, task("b", &["a"]), task("c", &["b"])])
}

/// A run in which `a` succeeded, `b` failed and `c` never ran.
fn failed_run() -> World {
    let mut world = World::with_run(chain());
    world.pod_round("a", succeeded());
    world.pod_round("b", failed());
    assert_eq!(world.run().state, RunState::Failed);
    world.wait(60);
    world
}

fn clear(world: &mut World, selection: &Selection) {
    let fact = world.clear("r", selection);
    world.round(vec![fact]);
}

fn end_pods_of(world: &mut World, task: &str) {
    let fact = world.pods_ended(task);
    world.round(vec![fact]);
}

#[test]
fn a_cleared_success_runs_again_as_a_new_try_that_may_be_retried_as_often_as_the_first() {
    let mut world = failed_run();
    let before = world.row("a").clone();
    clear(&mut world, &of("a"));
    let row = world.row("a");
    assert_eq!(row.state, Some(TaskState::Queued));
    assert_eq!((row.try_number, row.max_tries, row.launch), (2, 3, 1));
    assert_ne!(row.id, before.id);
    assert_eq!(world.archived.last().unwrap().id, before.id);
    assert_eq!(
        world.archived.last().unwrap().state,
        Some(TaskState::Success)
    );
    for (task, state) in [("b", TaskState::Failed), ("c", TaskState::UpstreamFailed)] {
        assert_eq!(world.state(task), Some(state));
    }
    for _ in 0..2 {
        world.pod_round("a", failed());
        assert_eq!(world.state("a"), Some(TaskState::UpForRetry));
        world.wait(300);
        world.round(Vec::new());
    }
    world.pod_round("a", failed());
    assert_eq!(
        (world.state("a"), world.row("a").try_number),
        (Some(TaskState::Failed), 4)
    );
}

#[test]
fn a_run_that_was_over_goes_on_with_a_new_start() {
    let mut world = failed_run();
    let queued_at = world.run().queued_at;
    clear(&mut world, &of("a"));
    let run = world.run();
    assert_eq!(run.state, RunState::Running);
    assert_eq!((run.start_date, run.end_date), (Some(world.now), None));
    assert_eq!((run.reason.as_deref(), run.queued_at), (None, queued_at));
    world.pod_round("a", succeeded());
    assert_eq!(
        world.run().state,
        RunState::Failed,
        "b has not been cleared"
    );
}

#[test]
fn a_run_that_goes_on_waits_for_its_turn_and_for_what_its_pods_share() {
    let mut limited = dag(vec![task("a", &[])]);
    limited.max_active_runs = 1;
    limited.files.insert("a.csv".to_owned(), Vec::new());
    let limited = std::sync::Arc::new(limited);
    let mut world = World::new();
    world.round(vec![request(&limited, "r")]);
    world.round(vec![Fact::RunPrepared(key("r"))]);
    world.pod_round("a", succeeded());
    world.round(vec![request(&limited, "q")]);
    clear(&mut world, &Selection::default());
    assert_eq!(
        (world.run().state, world.run().is_prepared),
        (RunState::Queued, false)
    );
    world.round(vec![Fact::CancelRun(key("q"))]);
    assert_eq!(world.run().state, RunState::Running);
    assert_eq!(world.state("a"), None);
    world.round(vec![Fact::RunPrepared(key("r"))]);
    assert_eq!(world.state("a"), Some(TaskState::Queued));
}

#[test]
fn a_running_task_restarts_once_its_pod_has_ended_and_that_is_no_failure() {
    let mut world = World::with_run(chain());
    world.pod_round("a", running());
    let before = world.row("a").clone();
    clear(&mut world, &of("a"));
    assert_eq!(
        (world.state("a"), world.row("a").id),
        (Some(TaskState::Restarting), before.id)
    );
    // Neither a change of its pod nor another clear ends the restart.
    for what in [running(), failed(), LaunchChange::Gone, succeeded()] {
        assert!(world.pod_round("a", what).is_empty());
    }
    clear(&mut world, &Selection::default());
    assert_eq!(world.state("a"), Some(TaskState::Restarting));
    end_pods_of(&mut world, "a");
    let row = world.row("a");
    assert_eq!(
        (row.state, row.try_number, row.max_tries),
        (Some(TaskState::Queued), 2, 3)
    );
    assert_ne!(row.id, before.id);
    let ended = world.archived.last().unwrap();
    assert_eq!(
        (ended.id, ended.state),
        (before.id, Some(TaskState::Failed))
    );
    assert_eq!(
        ended.failure.as_ref().unwrap().reason.as_deref(),
        Some("Cleared")
    );
    assert!(world.rows.values().all(|row| row.failure.is_none()));
}

#[test]
fn what_waits_for_a_cleared_task_waits_again() {
    let mut world = World::with_run(chain());
    world.pod_round("a", succeeded());
    world.pod_round("b", running());
    let selection = Selection {
        includes_downstream: true,
        ..of("a")
    };
    clear(&mut world, &selection);
    assert_eq!(world.state("a"), Some(TaskState::Queued));
    end_pods_of(&mut world, "b");
    assert_eq!((world.state("b"), world.state("c")), (None, None));
    for task in ["a", "b", "c"] {
        world.pod_round(task, succeeded());
    }
    assert_eq!(world.run().state, RunState::Success);
}

#[test]
fn a_retry_clears_all_that_did_not_get_done_and_nothing_else() {
    let mut world = failed_run();
    clear(&mut world, &Selection::not_done());
    assert_eq!(world.state("a"), Some(TaskState::Success));
    assert_eq!(world.state("b"), Some(TaskState::Restarting));
    assert_eq!(world.state("c"), None);
    end_pods_of(&mut world, "b");
    for task in ["b", "c"] {
        world.pod_round(task, succeeded());
    }
    assert_eq!(world.run().state, RunState::Success);

    let mut cancelled = World::with_run(chain());
    cancelled.pod_round("a", running());
    cancelled.round(vec![Fact::CancelRun(key("r"))]);
    assert_eq!(cancelled.state("b"), Some(TaskState::Skipped));
    clear(&mut cancelled, &Selection::not_done());
    assert_eq!(cancelled.state("a"), Some(TaskState::Restarting));
    assert_eq!((cancelled.state("b"), cancelled.state("c")), (None, None));
    assert_eq!(cancelled.run().reason, None);
}

#[test]
fn a_clear_names_tries_so_one_that_comes_late_changes_nothing() {
    let mut world = failed_run();
    let late = world.clear("r", &Selection::not_done());
    world.round(vec![late.clone()]);
    end_pods_of(&mut world, "b");
    assert!(world.round(vec![late]).is_empty());
}

#[test]
fn a_selection_follows_the_edges_and_keeps_to_its_states() {
    let world = failed_run();
    let select = |task: &str, upstream, downstream, states| {
        let selection = Selection {
            task_ids: [task.to_owned()].into(),
            includes_upstream: upstream,
            includes_downstream: downstream,
            states,
        };
        let Fact::Clear(clearing) = world.clear("r", &selection) else {
            unreachable!()
        };
        let tasks = ["a", "b", "c"];
        let is_in = |task: &&str| clearing.tries.contains(&world.row(task).id);
        tasks.into_iter().filter(is_in).collect::<String>()
    };
    for (task, upstream, downstream, states, expected) in [
        ("b", false, false, States::Any, "b"),
        ("b", true, false, States::Any, "ab"),
        ("b", false, true, States::Any, "bc"),
        ("b", true, true, States::Any, "abc"),
        ("a", false, true, States::Failed, "bc"),
        ("a", false, false, States::Failed, ""),
        ("a", false, true, States::NotDone, "bc"),
    ] {
        assert_eq!(select(task, upstream, downstream, states), expected);
    }
    let unknown = of("nope").tries(&world.stored(&key("r")));
    assert_eq!(unknown, Err("nope".to_owned()));
}
