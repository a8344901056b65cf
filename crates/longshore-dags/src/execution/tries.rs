//! The task instance of the token.

use longshore_airflow::api::{
    ApiError, UtcDateTime,
    task_instance::{
        EnterRunning, HeartbeatInfo, PreviousSuccessfulRun, RunContext, SkipDownstream, StateUpdate,
    },
};
use longshore_airflow_api::{Change, Standing, StateError, StateResult};
use longshore_store::{FromTry, Heartbeat, RunState, TaskState, WorkerProcess};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Execution, Found, not_taken, unavailable, word};
use crate::{
    scheduler::{Started, WorkerAnswer},
    workers,
};

impl Execution {
    pub(super) async fn standing_of(&self, id: Uuid) -> StateResult<Standing> {
        Ok(match self.find(id).await? {
            None => Standing::Unknown,
            Some(Found::Stored(known)) if known.is_archived => Standing::Archived,
            Some(Found::Stored(_) | Found::OnBoard { .. }) => Standing::Present,
        })
    }

    /// The worker of a queued try counts as heard before a round sees that it runs. Another process that begins the same
    /// try is not heard.
    pub(super) async fn begin(&self, id: Uuid, start: EnterRunning) -> StateResult<RunContext> {
        let found = self.find(id).await?;
        if found.is_some_and(|found| found.state() == Some(TaskState::Queued)) {
            self.hear(id);
        }
        let answer = self.dags.report(id, workers::started(start)).await;
        if matches!(answer, Ok(WorkerAnswer::Started(_))) {
            self.hear(id);
        }
        match answer.map_err(not_taken)? {
            WorkerAnswer::Started(started) => self.run_context(&started).await,
            WorkerAnswer::Refused(state) => Err(ApiError::cannot_start(word(state)).into()),
            WorkerAnswer::Changed | WorkerAnswer::Already => Err(unexpected()),
        }
    }

    async fn run_context(&self, started: &Started) -> StateResult<RunContext> {
        let row = &started.task_instance;
        let goes_on = row
            .airflow
            .as_ref()
            .is_some_and(|it| it.next_method.is_some());
        let (mut next_kwargs, mut xcom_keys) = (None, Vec::new());
        if goes_on {
            let deferral = self.store.catalog.deferral(row.id).await;
            next_kwargs = deferral.map_err(unavailable)?.map(|it| it.next_kwargs);
        } else {
            let keys = self.store.told.xcom_keys(&row.key).await;
            xcom_keys = keys.map_err(unavailable)?;
        }
        Ok(workers::run_context(started, next_kwargs, xcom_keys))
    }

    /// The name of a mapped task instance is stored before its state: after it, another try may have followed.
    pub(super) async fn end(&self, id: Uuid, update: StateUpdate) -> StateResult<Change> {
        if let Some(name) = name_of(&update).filter(|name| !name.is_empty()) {
            self.tell(id, FromTry::MapIndexLabel(name.to_owned()))
                .await?;
        }
        let report = workers::report(update, self.now());
        match self.dags.report(id, report).await.map_err(not_taken)? {
            WorkerAnswer::Changed => Ok(Change::Done),
            WorkerAnswer::Already => Ok(Change::Already),
            WorkerAnswer::Refused(state) => Err(ApiError::cannot_change(word(state)).into()),
            WorkerAnswer::Started(_) => Err(unexpected()),
        }
    }

    /// Nothing is left to skip in a run that is over.
    pub(super) async fn skip(&self, id: Uuid, skip: &SkipDownstream) -> StateResult<()> {
        let answer = self.dags.report(id, workers::skips(skip)).await;
        answer.map(drop).map_err(not_taken)
    }

    /// The order of the questions is upstream's: first whose try it is, then whether it runs.
    pub(super) async fn beat(&self, id: Uuid, worker: HeartbeatInfo) -> StateResult<()> {
        let found = self.present(id).await?;
        let process = match &found {
            Found::OnBoard { row, .. } => row.airflow.as_ref().and_then(|it| it.process.as_ref()),
            Found::Stored(known) => known.process.as_ref(),
        };
        let is_it = |process: &WorkerProcess| {
            process.hostname == worker.hostname && process.pid == worker.pid
        };
        if !process.is_some_and(is_it) {
            let hostname = process.map(|it| it.hostname.as_str());
            let pid = process.map(|it| it.pid);
            return Err(ApiError::running_elsewhere(hostname, pid).into());
        }
        if found.state() != Some(TaskState::Running) {
            return Err(ApiError::not_running(word(found.state())).into());
        }
        self.hear(id);
        Ok(())
    }

    fn hear(&self, id: Uuid) {
        let at = self.now();
        let heartbeat = Heartbeat { id, at };
        self.dags
            .shared
            .change_heartbeats(|heard| heard.hear(heartbeat));
    }

    pub(super) async fn keep_rendered(
        &self,
        id: Uuid,
        fields: Map<String, Value>,
    ) -> StateResult<()> {
        let fields = Value::Object(fields).to_string();
        self.tell(id, FromTry::RenderedFields(fields.into())).await
    }

    pub(super) async fn last_success(&self, id: Uuid) -> StateResult<PreviousSuccessfulRun> {
        let found = self.present(id).await?;
        let date = match &found {
            Found::OnBoard { run, .. } => run.logical_date,
            Found::Stored(known) => {
                let run = self.store.asked.run_row(&known.key.run).await;
                run.map_err(unavailable)?.and_then(|run| run.logical_date)
            }
        };
        let Some(date) = date else {
            return Ok(PreviousSuccessfulRun::default());
        };
        let dag_id = &found.run().dag_id;
        let success = Some(RunState::Success);
        let previous = self.store.asked.previous_run(dag_id, date, success).await;
        let previous = previous.map_err(unavailable)?;
        Ok(previous.map_or_else(PreviousSuccessfulRun::default, |run| {
            let run = workers::dag_run(&run);
            PreviousSuccessfulRun {
                data_interval_start: run.data_interval_start,
                data_interval_end: run.data_interval_end,
                start_date: run.start_date,
                end_date: run.end_date,
            }
        }))
    }

    pub(super) async fn first_look(&self, id: Uuid) -> StateResult<Option<UtcDateTime>> {
        let looks = self.store.catalog.reschedules(id).await;
        let looks = looks.map_err(unavailable)?;
        Ok(looks.first().map(|look| UtcDateTime(look.start_date)))
    }
}

fn name_of(update: &StateUpdate) -> Option<&str> {
    match update {
        StateUpdate::Terminal(update) => update.rendered_map_index.as_deref(),
        StateUpdate::Success(update) => update.rendered_map_index.as_deref(),
        StateUpdate::Deferred(update) => update.rendered_map_index.as_deref(),
        StateUpdate::Retry(update) => update.rendered_map_index.as_deref(),
        StateUpdate::AwaitingInput(update) => update.rendered_map_index.as_deref(),
        StateUpdate::Reschedule(_) | StateUpdate::Target(_) => None,
    }
}

fn unexpected() -> StateError {
    StateError::unavailable("the scheduler answered another report than this one")
}
