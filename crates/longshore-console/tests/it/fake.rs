//! A service in memory: two DAGs, a few runs, logs.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use longshore_console::{
    Checks, Control, ControlError, Feed, RunName, TaskName,
    control::{LogQuery, LogStream, Pause, RunPage, RunQuery, Until},
    objects::{
        Change, Check, Clear, Dag, DagTask, Failure, ImportError, Pool, Run, Task, Trigger, Try,
    },
};
use serde_json::json;

/// The service.
pub(crate) struct Fake {
    runs: Mutex<Vec<Run>>,
    paused: Mutex<BTreeMap<String, bool>>,
    pools: Mutex<BTreeMap<String, i64>>,
    /// What logs have got besides their first lines.
    written: Mutex<String>,
    logs_have_ended: AtomicBool,
    pub(crate) feed: Feed,
    pub(crate) is_broken: Mutex<bool>,
}

impl Default for Fake {
    fn default() -> Self {
        let run = |n: u32, state: &str| Run {
            dag_id: "etl".to_owned(),
            run_id: format!("r{n}"),
            run_type: "manual".to_owned(),
            state: state.to_owned(),
            queued_at: Some(format!("2026-11-21T10:0{n}:00Z").parse().unwrap()),
            params: json!({}),
            ..Run::default()
        };
        Self {
            runs: Mutex::new(vec![run(3, "running"), run(2, "failed"), run(1, "success")]),
            paused: Mutex::default(),
            pools: Mutex::new([("default_pool".to_owned(), 128)].into()),
            written: Mutex::default(),
            logs_have_ended: AtomicBool::new(false),
            feed: Feed::with_capacity(8),
            is_broken: Mutex::default(),
        }
    }
}

impl Fake {
    fn all(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap()
    }

    fn find(&self, name: &RunName) -> Result<Run, ControlError> {
        let is_it = |run: &&Run| run.dag_id == name.dag_id && run.run_id == name.run_id;
        let found = self.all().iter().find(is_it).cloned();
        found.ok_or_else(|| ControlError::UnknownRun(name.clone()))
    }

    /// Adds to all logs, for those who read them from now on.
    pub(crate) fn write(&self, text: &str) {
        self.written.lock().unwrap().push_str(text);
    }

    /// Logs that are read from now on have an end.
    pub(crate) fn end_logs(&self) {
        self.logs_have_ended.store(true, Ordering::Relaxed);
    }

    /// Moves a run, and tells.
    pub(crate) fn set_state(&self, run_id: &str, state: &str) {
        let mut from = None;
        for run in self.all().iter_mut().filter(|run| run.run_id == run_id) {
            from = Some(std::mem::replace(&mut run.state, state.to_owned()));
        }
        self.feed.publish(Change::RunChange {
            at: "2026-11-21T10:00:00Z".parse().unwrap(),
            dag_id: "etl".to_owned(),
            run_id: run_id.to_owned(),
            from,
            to: state.to_owned(),
            reason: None,
        });
    }
}

fn task(name: &TaskName) -> Task {
    Task {
        dag_id: name.run.dag_id.clone(),
        run_id: name.run.run_id.clone(),
        task_id: name.task_id.clone(),
        map_index: name.map_index,
        state: (name.task_id == "extract").then(|| "failed".to_owned()),
        try_number: 2,
        max_tries: 3,
        pool: "default_pool".to_owned(),
        ..Task::default()
    }
}

#[async_trait]
impl Checks for Fake {
    fn vital_signs(&self) -> Vec<Check> {
        let is_broken = *self.is_broken.lock().unwrap();
        vec![Check {
            name: "scheduler".to_owned(),
            problem: is_broken.then(|| "it hangs".to_owned()),
        }]
    }

    async fn checks(&self) -> Vec<Check> {
        let is_broken = *self.is_broken.lock().unwrap();
        vec![Check {
            name: "database".to_owned(),
            problem: is_broken.then(|| "connection to 10.0.0.1 refused".to_owned()),
        }]
    }
}

#[async_trait]
impl Control for Fake {
    async fn dags(&self) -> Result<Vec<Dag>, ControlError> {
        if *self.is_broken.lock().unwrap() {
            return Err(ControlError::Unavailable {
                what: "the database",
                source: "connection to 10.0.0.1 refused".into(),
            });
        }
        let listed = |dag| Dag { tasks: None, ..dag };
        let dags = [self.dag("etl").await?, self.dag("hourly").await?];
        Ok(dags.map(listed).into())
    }

    async fn import_errors(&self) -> Result<Vec<ImportError>, ControlError> {
        Ok(vec![ImportError {
            file: "team/broken.yaml".to_owned(),
            dag_id: None,
            message: "expected a DAG, found a list".to_owned(),
            parsed_at: "2026-11-21T10:00:00Z".parse().unwrap(),
        }])
    }

    async fn dag(&self, dag_id: &str) -> Result<Dag, ControlError> {
        match dag_id {
            "etl" | "hourly" => Ok(Dag {
                dag_id: dag_id.to_owned(),
                is_paused: self
                    .paused
                    .lock()
                    .unwrap()
                    .get(dag_id)
                    .copied()
                    .unwrap_or_default(),
                max_active_runs: 16,
                task_count: 1,
                tasks: Some(vec![DagTask {
                    task_id: "extract".to_owned(),
                    trigger_rule: "all_success".to_owned(),
                    ..DagTask::default()
                }]),
                ..Dag::default()
            }),
            "panic" => panic!("planted"),
            "stuck" => std::future::pending().await,
            _ => Err(ControlError::UnknownDag {
                dag_id: dag_id.to_owned(),
                nearest: (dag_id == "elt").then(|| "etl".to_owned()),
            }),
        }
    }

    async fn set_pause(&self, dag_id: &str, pause: Pause) -> Result<Dag, ControlError> {
        let is_paused = pause == Pause::Paused;
        self.paused
            .lock()
            .unwrap()
            .insert(dag_id.to_owned(), is_paused);
        self.dag(dag_id).await
    }

    async fn trigger(&self, dag_id: &str, trigger: Trigger) -> Result<Run, ControlError> {
        self.dag(dag_id).await?;
        let name = RunName {
            dag_id: dag_id.to_owned(),
            run_id: trigger.run_id.unwrap_or("manual__1".to_owned()),
        };
        if self.find(&name).is_ok() {
            return Err(ControlError::RunExists(name));
        }
        if let Some(param) = trigger.params.keys().find(|param| *param != "day") {
            return Err(ControlError::UnknownParam {
                dag_id: dag_id.to_owned(),
                name: param.clone(),
            });
        }
        let run = Run {
            dag_id: name.dag_id,
            run_id: name.run_id,
            run_type: "manual".to_owned(),
            state: "queued".to_owned(),
            params: trigger.params.into(),
            ..Run::default()
        };
        self.all().insert(0, run.clone());
        Ok(run)
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunPage, ControlError> {
        let all = self.all();
        let from = query.after.as_ref().and_then(|after| {
            all.iter()
                .position(|run| run.dag_id == after.dag_id && run.run_id == after.run_id)
        });
        let mut runs: Vec<Run> = all[from.map_or(0, |at| at + 1)..]
            .iter()
            .filter(|run| query.dag_id.as_ref().is_none_or(|id| *id == run.dag_id))
            .filter(|run| query.states.is_empty() || query.states.contains(&run.state))
            .cloned()
            .collect();
        let has_more = runs.len() > query.limit;
        runs.truncate(query.limit);
        Ok(RunPage { runs, has_more })
    }

    async fn run(&self, run: &RunName) -> Result<Run, ControlError> {
        self.find(run)
    }

    async fn cancel(&self, run: &RunName) -> Result<Run, ControlError> {
        let found = self.find(run)?;
        if found.is_finished() {
            return Err(ControlError::WrongState {
                what: format!("run {run}"),
                state: found.state,
                expected: "only a run that is not over can be cancelled",
            });
        }
        Ok(found)
    }

    async fn retry(&self, run: &RunName) -> Result<Vec<Task>, ControlError> {
        self.find(run)?;
        Err(ControlError::NotYet("retrying a run"))
    }

    async fn tasks(&self, run: &RunName) -> Result<Vec<Task>, ControlError> {
        self.find(run)?;
        let name = |task_id: &str| TaskName {
            run: run.clone(),
            task_id: task_id.to_owned(),
            map_index: -1,
        };
        Ok(vec![task(&name("extract")), task(&name("load"))])
    }

    async fn task(&self, name: &TaskName) -> Result<Task, ControlError> {
        self.find(&name.run)?;
        if name.task_id != "extract" {
            return Err(ControlError::UnknownTask(name.clone()));
        }
        let failure = Failure {
            message: "container base ended with exit code 1".to_owned(),
            exit_code: Some(1),
            ..Failure::default()
        };
        let earlier = Try {
            try_number: 1,
            state: Some("failed".to_owned()),
            failure: Some(failure.clone()),
            ..Try::default()
        };
        let state = if self.find(&name.run)?.state == "running" {
            "running"
        } else {
            "failed"
        };
        Ok(Task {
            state: Some(state.to_owned()),
            failure: Some(failure),
            earlier_tries: vec![earlier],
            ..task(name)
        })
    }

    async fn clear(&self, name: &TaskName, clear: Clear) -> Result<Vec<Task>, ControlError> {
        let cleared = self.task(name).await?;
        let downstream = clear.downstream.then(|| task(name));
        Ok(std::iter::once(cleared).chain(downstream).collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, ControlError> {
        let pools = self.pools.lock().unwrap();
        let pool = |(name, slots): (&String, &i64)| Pool {
            name: name.clone(),
            slots: *slots,
            file: None,
        };
        Ok(pools.iter().map(pool).collect())
    }

    async fn set_pool(&self, pool: Pool) -> Result<Pool, ControlError> {
        let mut pools = self.pools.lock().unwrap();
        pools.insert(pool.name.clone(), pool.slots);
        Ok(pool)
    }

    async fn delete_pool(&self, name: &str) -> Result<Pool, ControlError> {
        let slots = self.pools.lock().unwrap().remove(name);
        let slots = slots.ok_or_else(|| ControlError::UnknownPool(name.to_owned()))?;
        Ok(Pool {
            name: name.to_owned(),
            slots,
            file: None,
        })
    }

    async fn logs(&self, name: &TaskName, query: LogQuery) -> Result<LogStream, ControlError> {
        self.task(name).await?;
        if query.attempt.is_some_and(|n| n > 2) {
            return Err(ControlError::NoLog {
                task: name.clone(),
                why: "there is no such try".to_owned(),
            });
        }
        let line = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let written = self.written.lock().unwrap().clone();
        let written = (!written.is_empty()).then(|| Ok(Bytes::from(written)));
        let lines: Vec<_> = [line("one\n"), line("two\x1b[2J\n")]
            .into_iter()
            .skip(query.tail.map_or(0, |n| 2_usize.saturating_sub(n)))
            .chain(written)
            .collect();
        let lines = stream::iter(lines);
        let has_end = query.until == Until::Now || self.logs_have_ended.load(Ordering::Relaxed);
        Ok(if has_end {
            lines.boxed()
        } else {
            lines.chain(stream::pending()).boxed()
        })
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }
}
