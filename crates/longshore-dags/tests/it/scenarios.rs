//! What is run: DAGs with scripts for their tasks, and what people do to them meanwhile.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use longshore_api::flyte;
use longshore_dags::{
    Dags,
    scheduler::{Selection, run_state::is_interrupted},
};
use longshore_kit::Clock;
use longshore_store::{RunKey, TaskInstance, TaskState};
use longshore_test::{Place, faults::Rule};

use crate::world::{RUN_ID, TASK_ACTIONS, World};

/// A DAG and what people do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) dag: &'static str,
    pub(crate) people: People,
    /// What the API server refuses.
    pub(crate) rules: &'static [Rule],
}

/// What people do besides asking for the run. Every instant is in seconds from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum People {
    /// Nothing.
    Watch,
    /// Put the DAG into the folder, and leave the rest to its schedule.
    Schedule,
    /// Put the DAG into the folder, hold its schedule, and let it go on later.
    ScheduleAndPause(u64, u64),
    /// Ask for a second run as well.
    AskTwice,
    /// Ask for the same run again later.
    AskAgain(u64),
    /// Ask for a run of every DAG.
    AskForAll,
    /// Clear a task while it runs, and those that wait for it.
    Clear(&'static str, u64),
    /// Retry the run once it is over.
    Retry(u64),
    /// Cancel the run, and retry it later.
    CancelAndRetry(u64, u64),
    /// Interrupt the run while a task runs, and let it go on later.
    InterruptAndResume(&'static str, u64, u64),
    /// Cancel the run.
    Cancel(u64),
    /// Delete the pod of a task while it runs.
    DeletePodOf(&'static str, u64),
    /// Delete the TaskAction of a task.
    DeleteActionOf(&'static str, u64),
}

impl People {
    /// Whether the scheduler follows a folder with the DAG.
    pub(crate) fn does_follow(self) -> bool {
        matches!(self, Self::Schedule | Self::ScheduleAndPause(..))
    }

    /// What they do through the scheduler. It is done again after each restart, as people would.
    pub(crate) async fn use_scheduler(self, world: &World, dags: &Dags) {
        if let Self::ScheduleAndPause(stop, go_on) = self {
            if at(world, stop).await < Duration::from_secs(go_on) {
                pause(dags, true).await;
            }
            at(world, go_on).await;
            pause(dags, false).await;
        }
        if self.does_follow() {
            return;
        }
        let run = world.request(dags, RUN_ID).await;
        match self {
            Self::Watch
            | Self::DeletePodOf(..)
            | Self::DeleteActionOf(..)
            | Self::Schedule
            | Self::ScheduleAndPause(..) => {}
            Self::AskTwice => {
                world
                    .request(dags, "manual__2026-01-01T00:00:01+00:00")
                    .await;
            }
            Self::InterruptAndResume(task, stop, go_on) => {
                at(world, stop).await;
                interrupt(world, dags, (&run, task), go_on).await;
            }
            Self::Cancel(second) => {
                at(world, second).await;
                dags.cancel(&run);
            }
            Self::AskAgain(second) => {
                at(world, second).await;
                world.request(dags, RUN_ID).await;
            }
            Self::AskForAll => {
                for dag in &world.others {
                    world.request_of(dags, dag, RUN_ID).await;
                }
            }
            Self::Clear(task, second) => {
                at(world, second).await;
                clear(world, dags, &run, task).await;
            }
            Self::Retry(second) => {
                at(world, second).await;
                retry(world, dags, &run).await;
            }
            Self::CancelAndRetry(cancel, again) => {
                // Another process has done so, or it is over by now.
                if at(world, cancel).await < Duration::from_secs(again) {
                    dags.cancel(&run);
                }
                at(world, again).await;
                retry(world, dags, &run).await;
            }
        }
    }

    /// What they do through the API server. It is done once, whatever becomes of the scheduler.
    pub(crate) async fn use_cluster(self, place: Place) {
        if let Self::DeleteActionOf(task_id, second) = self {
            delete_action(&place, task_id, second).await;
        }
        let Self::DeletePodOf(task_id, second) = self else {
            return;
        };
        tokio::time::sleep(Duration::from_secs(second)).await;
        let pods: Api<Pod> = Api::namespaced(place.client(), place.namespace());
        let of_task = ListParams::default().labels(&format!("task_id={task_id}"));
        loop {
            for pod in pods.list(&of_task).await.unwrap() {
                let is_live = pod.metadata.deletion_timestamp.is_none()
                    && pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running");
                if is_live {
                    pods.delete(&pod.name_any(), &DeleteParams::default())
                        .await
                        .unwrap();
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Deletes the TaskAction of a task once, after a second of the story.
async fn delete_action(place: &Place, task_id: &str, second: u64) {
    tokio::time::sleep(Duration::from_secs(second)).await;
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(flyte::GROUP, flyte::VERSION, flyte::KIND),
        TASK_ACTIONS,
    );
    let actions: Api<DynamicObject> =
        Api::namespaced_with(place.client(), place.namespace(), &kind);
    let of_task = ListParams::default().labels(&format!("task_id={task_id}"));
    loop {
        if let Some(action) = actions.list(&of_task).await.unwrap().items.first() {
            let now = DeleteParams::default();
            actions.delete(&action.name_any(), &now).await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Pauses the only DAG, or lets it go on. Asked again until the DAG is known, as a person would.
async fn pause(dags: &Dags, is_paused: bool) {
    loop {
        let known = dags.dags();
        let dag_id = known.first().and_then(|known| known.dag_id.clone());
        if let Some(dag_id) = dag_id {
            dags.set_paused(&dag_id, is_paused).await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Interrupts a run in the first launch of a task, once that runs, unless it is done, and lets it go on.
async fn interrupt(world: &World, dags: &Dags, (run, task_id): (&RunKey, &str), go_on: u64) {
    loop {
        let (row, rows) = world.rows(run).await;
        let task = rows.iter().find(|row| row.key.task_id == task_id).unwrap();
        if is_interrupted(&row) {
            at(world, go_on).await;
            dags.resume(run);
        } else if task.launch > 1 {
            return;
        } else if task.state == Some(TaskState::Running) {
            dags.interrupt(run).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Clears a task in its first try, once it runs, unless that is done.
async fn clear(world: &World, dags: &Dags, run: &RunKey, task_id: &str) {
    let selection = Selection {
        task_ids: [task_id.to_owned()].into(),
        includes_downstream: true,
        ..Selection::default()
    };
    loop {
        let (_, rows) = world.rows(run).await;
        let row = rows.iter().find(|row| row.key.task_id == task_id).unwrap();
        if row.try_number > 1 || row.state == Some(TaskState::Restarting) {
            return;
        }
        if row.state == Some(TaskState::Running) {
            let _ = dags.clear(run, &selection).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Retries a run with a task that is not done in its first try, once it is over, unless that is done.
async fn retry(world: &World, dags: &Dags, run: &RunKey) {
    loop {
        let (row, rows) = world.rows(run).await;
        let is_first = |row: &TaskInstance| row.try_number == 1 && !row.state.is_some_and(is_done);
        let was_retried = !rows.iter().any(is_first);
        let goes_on = rows
            .iter()
            .any(|row| row.state == Some(TaskState::Restarting));
        if was_retried || goes_on {
            return;
        }
        if row.state.is_finished() {
            let _ = dags.retry(run).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_done(state: TaskState) -> bool {
    state == TaskState::Success
}

/// Waits for a second of the story; returns how far it is.
async fn at(world: &World, second: u64) -> Duration {
    let now = || Duration::try_from(world.clock.now().duration_since(world.began_at)).unwrap();
    tokio::time::sleep(Duration::from_secs(second).saturating_sub(now())).await;
    now()
}

/// All stories. A tidy list: `laws.rs` has a test for each.
pub(crate) const CHAIN: Story = Story {
    name: "chain",
    dag: "
dag_id: chain
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const RETRY: Story = Story {
    name: "retry",
    dag: "
dag_id: retry
tasks:
  a: {command: [x], env: {SCRIPT: 'run 1s exit 3 | run 1s message {\"n\": 1}'}, retries: 2, retry_delay: 7}
  b: {command: [x, '{{ xcom.a.n }}'], env: {SCRIPT: run 1s exit 4}, depends_on: a, retries: 1, retry_delay: 5}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
  d: {command: [x], env: {SCRIPT: run 1s}, depends_on: b, trigger_rule: all_done}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const DIAMOND: Story = Story {
    name: "diamond",
    dag: "
dag_id: diamond
max_active_tasks: 2
files: [a.csv]
workspace: true
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 2s}, depends_on: a}
  c: {command: [x], env: {SCRIPT: run 3s}, depends_on: a}
  d: {command: [x], env: {SCRIPT: run 1s}, depends_on: a, priority_weight: 5}
  e: {command: [x], env: {SCRIPT: run 1s}, depends_on: [b, c, d]}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const TWO_RUNS: Story = Story {
    name: "two_runs",
    dag: "
dag_id: two_runs
max_active_runs: 1
tasks:
  a: {command: [x], env: {SCRIPT: run 2s}}
  b: {command: [x], env: {SCRIPT: run 1s exit 1}, depends_on: a}
",
    people: People::AskTwice,
    rules: &[],
};

pub(crate) const LAUNCH_FAILURE: Story = Story {
    name: "launch_failure",
    dag: "
dag_id: launch_failure
tasks:
  a: {command: [x], env: {SCRIPT: waiting ErrImagePull}}
  b: {command: [x, '{{ xcom.c.n }}'], depends_on: c}
  c: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const INTERRUPTED: Story = Story {
    name: "interrupted",
    dag: "
dag_id: interrupted
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 30s}, depends_on: a}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
",
    people: People::InterruptAndResume("b", 15, 30),
    rules: &[],
};

pub(crate) const CANCELLED: Story = Story {
    name: "cancelled",
    dag: "
dag_id: cancelled
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 60s}, depends_on: a}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
",
    people: People::Cancel(20),
    rules: &[],
};

pub(crate) const POD_DELETED: Story = Story {
    name: "pod_deleted",
    dag: "
dag_id: pod_deleted
tasks:
  a: {command: [x], env: {SCRIPT: run 40s | run 1s}, retries: 1, retry_delay: 5}
",
    people: People::DeletePodOf("a", 15),
    rules: &[],
};

pub(crate) const TIMED_OUT: Story = Story {
    name: "timed_out",
    dag: "
dag_id: timed_out
dagrun_timeout: 40
tasks:
  a: {command: [x], env: {SCRIPT: hang}}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::Watch,
    rules: &[],
};

/// `one` is a pool of one slot.
pub(crate) const LIMITED: Story = Story {
    name: "limited",
    dag: "
dag_id: limited
max_active_runs: 2
tasks:
  a: {command: [x], env: {SCRIPT: run 2s}, max_active_tis_per_dag: 1}
  b: {command: [x], env: {SCRIPT: run 1s}, pool: one}
  c: {command: [x], env: {SCRIPT: run 1s}, pool: one}
",
    people: People::AskTwice,
    rules: &[],
};

pub(crate) const RULES: Story = Story {
    name: "rules",
    dag: "
dag_id: rules
tasks:
  good: {command: [x], env: {SCRIPT: run 1s}}
  slow: {command: [x], env: {SCRIPT: run 20s exit 1}}
  skipped: {command: [x], depends_on: good, trigger_rule: all_failed}
  early: {command: [x], env: {SCRIPT: run 1s}, depends_on: [good, slow], trigger_rule: one_success}
  any: {command: [x], env: {SCRIPT: run 1s}, depends_on: [good, skipped], trigger_rule: none_failed_min_one_success}
  none: {command: [x], depends_on: [slow, skipped], trigger_rule: none_failed_min_one_success}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const REFUSED: Story = Story {
    name: "refused",
    dag: "
dag_id: refused
tasks:
  a: {command: [x], retries: 1, retry_delay: 3, executor_config: {pod_override: {metadata: {labels: {bad: 'not a value'}}}}}
  b: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::Watch,
    rules: &[],
};

pub(crate) const CLEARED: Story = Story {
    name: "cleared",
    dag: "
dag_id: cleared
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: 'run 50s | run 1s exit 1 | run 1s'}, depends_on: a, retries: 1, retry_delay: 3}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
",
    people: People::Clear("b", 15),
    rules: &[],
};

/// What its pods share went with its end, and has to come back.
pub(crate) const RETRIED: Story = Story {
    name: "retried",
    dag: "
dag_id: retried
files: [a.csv]
workspace: true
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: 'run 1s exit 1 | run 1s'}, depends_on: a}
  c: {command: [x], env: {SCRIPT: run 1s}, depends_on: b}
",
    people: People::Retry(30),
    rules: &[],
};

/// The pod of the cancelled try takes its whole grace to end.
pub(crate) const CANCELLED_AND_RETRIED: Story = Story {
    name: "cancelled_and_retried",
    dag: "
dag_id: cancelled_and_retried
tasks:
  a: {command: [x], env: {SCRIPT: 'hang | run 1s'}}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::CancelAndRetry(20, 35),
    rules: &[],
};

pub(crate) const TWO_DAGS: Story = Story {
    name: "two_dags",
    dag: "
dag_id: first
tasks:
  a: {command: [x], env: {SCRIPT: run 2s}, pool: one}
  b: {command: [x], env: {SCRIPT: run 1s exit 1}, depends_on: a}
---
dag_id: second
files: [a.csv]
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}, pool: one}
  b: {command: [x], env: {SCRIPT: run 1s}, depends_on: a}
",
    people: People::AskForAll,
    rules: &[],
};

pub(crate) const ASKED_AGAIN: Story = Story {
    name: "asked_again",
    dag: "
dag_id: asked_again
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::AskAgain(20),
    rules: &[],
};

pub(crate) const WORKSPACE_REFUSED: Story = Story {
    name: "workspace_refused",
    dag: "
dag_id: workspace_refused
files: [a.csv]
workspace: true
tasks:
  a: {command: [x], retries: 1}
",
    people: People::Watch,
    rules: &[Rule::Forbidden("persistentvolumeclaims")],
};

pub(crate) const OVER_QUOTA: Story = Story {
    name: "over_quota",
    dag: "
dag_id: over_quota
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::Watch,
    rules: &[Rule::PodQuota(1)],
};

pub(crate) const BUSY: Story = Story {
    name: "busy",
    dag: "
dag_id: busy
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
  b: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::Watch,
    rules: &[Rule::BusyAtFirst {
        n_creates: 3,
        retry_after_seconds: 4,
    }],
};

pub(crate) const TOO_LONG: Story = Story {
    name: "too_long",
    dag: "
dag_id: too_long
tasks:
  a: {command: [x], env: {SCRIPT: 'run 60s | run 1s'}, execution_timeout: 5, retries: 1, retry_delay: 3}
",
    people: People::Watch,
    rules: &[],
};

/// Three runs, 20 seconds apart, each of which takes longer than that; the first is due before the beginning.
pub(crate) const SCHEDULED: Story = Story {
    name: "scheduled",
    dag: "
dag_id: scheduled
schedule: 20s
start_date: '2025-12-31T23:59:55Z'
end_date: '2026-01-01T00:00:35Z'
catchup: true
max_active_runs: 2
tasks:
  a: {command: [x], env: {SCRIPT: run 25s}}
",
    people: People::Schedule,
    rules: &[],
};

/// Of what was missed during the pause, the latest is run.
pub(crate) const PAUSED: Story = Story {
    name: "paused",
    dag: "
dag_id: paused
schedule: '* * * * *'
start_date: '2026-01-01T00:00:30Z'
end_date: '2026-01-01T00:03:30Z'
tasks:
  a: {command: [x], env: {SCRIPT: run 1s}}
",
    people: People::ScheduleAndPause(100, 200),
    rules: &[],
};
