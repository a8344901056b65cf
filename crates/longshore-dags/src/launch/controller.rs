//! What one try is launched as: created when its row is queued, removed when its row no longer wants it.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::dags::ANNOTATION_LAUNCH;
use longshore_core::{
    AskError, Class, Classify, Incarnation, Never, Question as _, Seen, UnknownCause,
};
use longshore_kit::{Answers, Controller, Refusal};
use longshore_store::{StoreError, TaskInstance, TaskState};
use serde_json::Value;
use uuid::Uuid;

use super::{
    decide::{
        Disposal, LaunchEffect, LaunchPlan, LogAnswer, LogQuestion, Observed, TaskView,
        decide_launch,
    },
    keep_log::LogKeeper,
    table::{Name, incarnation_of},
};
use crate::{
    actions,
    base::shared::Shared,
    logs::LogPath,
    model::{Launcher, Task},
    pods::build::{self, BuildInput},
    scheduler::{board::ActiveRun, decide::deadline, facts::Fact},
};

/// Makes the cluster hold what the committed rows ask for, and nothing else of ours.
pub(crate) struct Launches {
    shared: Arc<Shared>,
    config: Disposal,
    log_keeper: LogKeeper,
}

/// Why a round about a try failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The store could not tell about a try.
    #[error("the try cannot be read")]
    Store(#[from] StoreError),
}

impl Classify for LaunchError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
        }
    }
}

impl Launches {
    pub(crate) fn new(shared: Arc<Shared>, config: Disposal, log_keeper: LogKeeper) -> Self {
        Self {
            shared,
            config,
            log_keeper,
        }
    }

    async fn task(&self, ti_id: &Uuid, is_launched: bool) -> Result<Seen<TaskView>, StoreError> {
        if self.shared.inbox.is_waiting_for(ti_id) {
            return Ok(Seen::unknown(
                UnknownCause::Behind,
                "the scheduler has not taken in what is known of it",
            ));
        }
        if let Some((active, row)) = self.shared.board().task_instance_by_id(ti_id) {
            let task = active.dag.tasks.get(&row.key.task_id);
            return Ok(Seen::Present(TaskView {
                deadline: task.and_then(|task| deadline(task, row)),
                ..view(row)
            }));
        }
        if !is_launched {
            // Over, and nothing left of it: not worth a look into the store.
            return Ok(Seen::Absent);
        }
        let ended = self.shared.ended_try(ti_id).await?;
        Ok(ended.as_deref().map(view).into())
    }

    /// What a try is launched as. One that is over is not launched any more.
    fn launcher(&self, ti_id: &Uuid) -> Launcher {
        let board = self.shared.board();
        let found = board.task_instance_by_id(ti_id);
        let task = found.and_then(|(active, row)| active.dag.tasks.get(&row.key.task_id));
        task.map_or(Launcher::Pod, Task::launcher)
    }

    /// The object that a row wants, or wanted when it was cleared.
    fn wanted(&self, ti_id: &Uuid) -> Option<Result<Value, String>> {
        let board = self.shared.board();
        let (active, row) = board.task_instance_by_id(ti_id)?;
        let has_wanted = matches!(row.state, Some(TaskState::Queued | TaskState::Restarting));
        has_wanted.then(|| self.build(active, row))
    }

    fn build(&self, active: &ActiveRun, row: &TaskInstance) -> Result<Value, String> {
        let task = active
            .dag
            .tasks
            .get(&row.key.task_id)
            .ok_or_else(|| format!("task {} is not in the DAG of its run", row.key))?;
        let results = active
            .tasks
            .iter()
            .filter_map(|(task_id, row)| Some((task_id.clone(), row.result.clone()?)))
            .collect();
        let input = BuildInput {
            run: &active.run,
            dag: &active.dag,
            task,
            task_instance: row,
            results: &results,
            config: &self.shared.pod_config,
        };
        let built = match &task.plugin {
            None => build::build_pod(&input),
            Some(_) if self.shared.launched.is_missing(Launcher::TaskAction) => {
                return Err(actions::NOT_INSTALLED.to_owned());
            }
            Some(plugin) => actions::build::build_action(&input, plugin),
        };
        built.map_err(|error| error.to_string())
    }
}

impl Controller for Launches {
    type Key = Uuid;
    type Observed = Observed;
    type Status = Never;
    type Effect = LaunchEffect;
    type Question = LogQuestion;
    type Error = LaunchError;

    fn name(&self) -> &'static str {
        "dags.pods"
    }

    async fn observe(
        &self,
        ti_id: &Uuid,
        now: Timestamp,
        answers: &Answers<LogQuestion>,
    ) -> Result<Observed, LaunchError> {
        let (launched, launcher) = (&self.shared.launched, self.launcher(ti_id));
        let mut pods = launched.of(ti_id, None);
        let mut task = self.task(ti_id, pods.present().is_some()).await?;
        if let (Seen::Present(task), true) = (&mut task, pods.is_absent()) {
            task.pod = self.wanted(ti_id);
            if let Some(Ok(pod)) = &task.pod {
                // The kit's live reads put it into the cache before the watch tells of it.
                pods = launched.of(ti_id, Some(name_of(launcher, pod)));
            }
        }
        let incarnation = incarnation_of(ti_id);
        let asked = answers.all(&incarnation);
        Ok(Observed {
            now,
            ti_id: *ti_id,
            task,
            launcher,
            pods,
            replay_done: launched.is_replayed(launcher),
            config: self.config,
            asked: asked
                .map(|(question, asked)| (question.about(), asked))
                .collect(),
            log_notes: launched.log_notes(ti_id),
        })
    }

    /// A try that has no objects has no logs.
    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        let pods = observed.pods.as_ref();
        pods.map(|_| incarnation_of(&observed.ti_id))
    }

    fn decide(&self, observed: &Observed) -> LaunchPlan {
        decide_launch(observed)
    }

    async fn persist(&self, _ti_id: &Uuid, status: &Never) -> Result<(), LaunchError> {
        match *status {}
    }

    async fn call(&self, ti_id: &Uuid, effect: &LaunchEffect) -> Result<(), LaunchError> {
        match effect {
            LaunchEffect::NoteLog { object, note } => {
                match &note.problem {
                    Some(problem) if note.is_kept => {
                        tracing::warn!(%object, problem, "the log is not whole");
                    }
                    Some(problem) => {
                        tracing::warn!(%object, problem, "the log is not stored; its pod stays");
                    }
                    None => {}
                }
                self.shared.launched.note_log(ti_id, object, note);
                Ok(())
            }
            LaunchEffect::ReportEnded => {
                self.shared.inbox.push(Fact::LaunchEnded { ti_id: *ti_id });
                Ok(())
            }
            LaunchEffect::ReportBuildFailure { launch, message } => {
                self.shared.inbox.push(Fact::LaunchBuildFailed {
                    ti_id: *ti_id,
                    launch: *launch,
                    message: message.clone(),
                });
                Ok(())
            }
        }
    }

    /// The answer is no part of the log, which goes to the archive as it comes.
    async fn ask(
        &self,
        _ti_id: &Uuid,
        question: &LogQuestion,
        _answer_bytes: usize,
    ) -> Result<LogAnswer, AskError> {
        self.log_keeper.keep(question).await
    }

    /// The API server will never take this object: that is how its launch ended.
    fn refused(&self, ti_id: &Uuid, _: &Seen<Incarnation>, refusal: &Refusal) {
        let create = refusal.create.as_ref();
        let launch = create.and_then(|create| {
            create.object["metadata"]["annotations"][ANNOTATION_LAUNCH]
                .as_str()?
                .parse()
                .ok()
        });
        if let Some(launch) = launch {
            self.shared.inbox.push(Fact::LaunchRefused {
                ti_id: *ti_id,
                launch,
                message: refusal.message.clone(),
            });
        }
    }
}

fn view(row: &TaskInstance) -> TaskView {
    TaskView {
        state: row.state,
        launch: row.launch,
        pod_uid: row.pod_uid.clone(),
        pod: None,
        deadline: None,
        log: LogPath::of(row),
    }
}

fn name_of(launcher: Launcher, object: &Value) -> Name {
    let text = |field: &str| {
        let text = object["metadata"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    Name {
        launcher,
        namespace: text("namespace"),
        name: text("name"),
    }
}
