//! Following a run of a service: the same progress as `longshore run`, but Ctrl-C only detaches.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use longshore_console::{
    RunName, TaskName,
    client::{Changes, Client, ClientError, Followed},
    control::{LogQuery, Until},
    objects::{self, Run, Task},
};
use longshore_dags::{Change, StateChange};
use longshore_kit::{Clock, SystemClock};
use longshore_store::{Failure, RunKey};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{self, MissedTickBehavior};

use super::{ServerArgs, block_on, follow::Subject, print};
use crate::{
    cli::{Format, Globals},
    cmd::run::report::{FailedTask, LOG_LINES, MAX_FAILURES, write_failures},
    error::{CliError, render},
    exit::Exit,
    output::{self, DIM},
    printable::plain,
    progress::{
        Progress, REDRAWS_PER_SECOND, age,
        board::{Board, BoardTask},
        lines::task_name,
    },
};

/// No more is read of the end of a log, in bytes.
const MAX_LOG_BYTES: usize = 64 * 1024;

/// Follows a run until it is over, and prints how it ended.
pub(super) fn to_the_end(
    client: &Client,
    run: RunName,
    timeout: Option<Duration>,
    server: &ServerArgs,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let subject = Subject {
        what: format!("run {run}"),
        kind: "run",
        again: format!("longshore runs watch {run}{}", server.flags()),
        stop: (
            "cancel",
            format!("longshore runs cancel {run}{}", server.flags()),
        ),
        late: "LS1381",
    };
    match subject.follow(timeout, watch(client, &run, globals))? {
        Ok(ended) => report(client, &run, &ended, &server.flags(), globals),
        Err(left) => Ok(left),
    }
}

/// Prints how a run ended; of one that failed also what `longshore run` prints.
fn report(
    client: &Client,
    name: &RunName,
    run: &Run,
    flags: &str,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let text = |run: &Run| {
        let took = match (run.started_at, run.ended_at) {
            (Some(from), Some(to)) => format!(" in {}", age::between(from, to)),
            _ => String::new(),
        };
        format!("run {name} {}{took}\n", run.state)
    };
    print::object(run, print::run_name, text, globals);
    if run.state == "success" {
        return Ok(Exit::Success);
    }
    if !matches!(globals.output, Format::Json | Format::Yaml) {
        let why = run
            .reason
            .as_ref()
            .map_or(String::new(), |reason| format!(": {reason}"));
        let mut text = block_on(failures(client, name, flags))?;
        let message = format!("run {name} failed{why}");
        text.push_str(&render::headline("LS1380", &message));
        output::note(&text);
        output::note(&format!(
            "{DIM}help:{DIM:#} correct the cause, then run again what is left: longshore runs retry {name}{flags}"
        ));
    }
    Ok(Exit::RunFailed)
}

/// Which tasks failed, why, and the ends of their logs.
async fn failures(client: &Client, run: &RunName, flags: &str) -> Result<String, CliError> {
    let failed = client.tasks(run, "failed").await?.items;
    let mut shown = Vec::new();
    for task in failed.iter().take(MAX_FAILURES) {
        let name = TaskName {
            run: run.clone(),
            task_id: task.task_id.clone(),
            map_index: task.map_index,
        };
        let lines = last_lines(client, &name).await;
        let command = format!("longshore logs {name}{flags}");
        shown.push((task, task.failure.as_ref().map(failure), (command, lines)));
    }
    let shown: Vec<FailedTask<'_>> = shown
        .iter()
        .map(|(task, failure, log)| FailedTask {
            name: task_name(&task.task_id, task.map_index),
            try_number: task.try_number,
            failure: failure.as_ref(),
            log: Some(log.clone()),
        })
        .collect();
    let mut text = String::new();
    write_failures(&mut text, &shown, failed.len());
    Ok(text)
}

/// The end of the log of a task's last try, or why it cannot be read.
async fn last_lines(client: &Client, task: &TaskName) -> Result<Vec<String>, String> {
    let query = LogQuery {
        attempt: None,
        tail: Some(LOG_LINES),
        until: Until::Now,
    };
    let mut log = client
        .logs(task, query)
        .await
        .map_err(|why| why.to_string())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = log.next().await
        && bytes.len() < MAX_LOG_BYTES
    {
        bytes.extend_from_slice(&chunk.map_err(|why| why.to_string())?);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(plain).collect())
}

async fn watch(client: &Client, name: &RunName, globals: &Globals) -> Result<Run, CliError> {
    let mut changes = client.changes(name);
    let mut view = View::read(client, name, &mut changes, globals).await?;
    let mut redraw = time::interval(Duration::from_secs(1) / u32::from(REDRAWS_PER_SECOND));
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // What was missed is read again until the service answers: it may stop in between.
    let mut is_behind = false;
    while !view.run.is_finished() {
        tokio::select! {
            followed = changes.next() => match followed? {
                Followed::Change(change) => is_behind |= view.change(&change),
                Followed::Reset => is_behind = true,
                Followed::Lost => view.progress.note("the service does not answer: trying again"),
                Followed::Ready => {}
            },
            _ = redraw.tick() => view.progress.tick(SystemClock.now()),
        }
        if is_behind {
            is_behind = !view.catch_up(client, name).await?;
        }
    }
    Ok(view.run.clone())
}

/// What is known of the run. When it is dropped, its board leaves the screen.
struct View {
    run: Run,
    /// State of the run as it was last shown.
    shown_run: String,
    /// State and try of each task as it was last shown.
    shown: BTreeMap<(String, i32), (Option<String>, u32)>,
    progress: Progress,
}

impl View {
    /// Reads the state after the stream of changes is ready, so that no change falls between the two.
    async fn read(
        client: &Client,
        name: &RunName,
        changes: &mut Changes,
        globals: &Globals,
    ) -> Result<Self, CliError> {
        while changes.next().await? != Followed::Ready {}
        let run = client.run(name).await?;
        let tasks = client.tasks(name, "").await?.items;
        // The graph is for people: a DAG that is gone by now shows none.
        let dag = client.dag(&name.dag_id).await.unwrap_or_default();
        let upstream = |id: &str| {
            let task = dag.tasks.iter().flatten().find(|task| task.task_id == id);
            task.map(|task| task.upstream.clone()).unwrap_or_default()
        };
        let on_board = tasks
            .iter()
            .filter(|task| task.map_index < 0)
            .map(|task| BoardTask {
                id: task.task_id.clone(),
                upstream: upstream(&task.task_id),
                max_tries: task.max_tries,
            })
            .collect();
        let started_at = run
            .started_at
            .or(run.queued_at)
            .unwrap_or_else(|| SystemClock.now());
        let board = Board::new(key(&run.dag_id, &run.run_id), on_board, started_at);
        let mut view = Self {
            progress: Progress::choose(globals, board),
            shown: BTreeMap::new(),
            shown_run: String::new(),
            run: Run::default(),
        };
        view.show(run, tasks);
        Ok(view)
    }

    /// Shows what has changed while the stream of changes was interrupted. Returns whether the service has answered.
    async fn catch_up(&mut self, client: &Client, name: &RunName) -> Result<bool, CliError> {
        let read = async {
            let run = client.run(name).await?;
            let tasks = client.tasks(name, "").await?.items;
            Ok::<_, ClientError>((run, tasks))
        };
        let read = read.await;
        match read {
            Ok((run, tasks)) => self.show(run, tasks),
            Err(error) if error.is_temporary() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn show(&mut self, run: Run, tasks: Vec<Task>) {
        let at = SystemClock.now();
        if run.state != self.shown_run {
            let from = Some(self.shown_run.clone()).filter(|state| !state.is_empty());
            self.change(&objects::Change::RunChange {
                at,
                dag_id: run.dag_id.clone(),
                run_id: run.run_id.clone(),
                from,
                to: run.state.clone(),
                reason: run.reason.clone(),
            });
        }
        self.run = run;
        for task in tasks {
            let key = (task.task_id.clone(), task.map_index);
            let (from, _) = self.shown.get(&key).cloned().unwrap_or_default();
            if from == task.state {
                continue;
            }
            self.change(&objects::Change::TaskChange {
                at: task
                    .ended_at
                    .or(task.started_at)
                    .or(task.queued_at)
                    .unwrap_or(at),
                dag_id: task.dag_id,
                run_id: task.run_id,
                task_id: task.task_id,
                map_index: task.map_index,
                try_number: task.try_number,
                from,
                to: task.state,
                pod: task.pod,
                failure: task.failure,
            });
        }
    }

    /// Shows a change; returns whether the run may be over with it.
    fn change(&mut self, change: &objects::Change) -> bool {
        if let Some(known) = state_change(change) {
            self.progress.change(&known);
        }
        match change {
            objects::Change::RunChange { to, .. } => {
                self.shown_run.clone_from(to);
                ["success", "failed"].contains(&to.as_str())
            }
            objects::Change::TaskChange {
                task_id,
                map_index,
                to,
                try_number,
                ..
            } => {
                let state = (to.clone(), *try_number);
                self.shown.insert((task_id.clone(), *map_index), state);
                false
            }
            objects::Change::TaskPending { .. } => false,
        }
    }
}

fn key(dag_id: &str, run_id: &str) -> RunKey {
    RunKey {
        dag_id: dag_id.to_owned(),
        run_id: run_id.to_owned(),
    }
}

/// A change from the wire as the progress takes it. `None`: it has a word that this version does not know.
fn state_change(change: &objects::Change) -> Option<StateChange> {
    let (dag_id, run_id) = change.run();
    let run = key(dag_id, run_id);
    Some(match change {
        objects::Change::RunChange {
            at,
            from,
            to,
            reason,
            ..
        } => StateChange {
            at: *at,
            run,
            change: Change::Run {
                from: optional(from.as_deref())?,
                to: word(to)?,
                reason: reason.clone(),
            },
        },
        objects::Change::TaskChange {
            at,
            task_id,
            map_index,
            try_number,
            from,
            to,
            pod,
            failure: why,
            ..
        } => StateChange {
            at: *at,
            run,
            change: Change::Task {
                task_id: task_id.clone(),
                map_index: *map_index,
                try_number: *try_number,
                from: optional(from.as_deref())?,
                to: optional(to.as_deref())?,
                pod: pod.clone(),
                failure: why.as_ref().map(failure),
            },
        },
        objects::Change::TaskPending {
            at,
            task_id,
            map_index,
            message,
            ..
        } => StateChange {
            at: *at,
            run,
            change: Change::Pending {
                task_id: task_id.clone(),
                map_index: *map_index,
                message: message.clone(),
            },
        },
    })
}

fn failure(failure: &objects::Failure) -> Failure {
    Failure {
        message: failure.message.clone(),
        reason: failure.reason.clone(),
        exit_code: failure.exit_code,
        container: failure.container.clone(),
    }
}

fn word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(Value::from(word)).ok()
}

/// A state that may be absent; `None` for a word that this program does not know.
fn optional<T: DeserializeOwned>(state: Option<&str>) -> Option<Option<T>> {
    match state {
        None => Some(None),
        Some(text) => word(text).map(Some),
    }
}
