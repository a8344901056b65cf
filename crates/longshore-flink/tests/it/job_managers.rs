//! JobManagers that play Flink: their jobs count, and their savepoints and checkpoints hold the number they have reached.
//!
//! A job that starts below the newest number that was saved has lost state; two that run at once have run twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use longshore_core::{AskError, NoAnswer};
use longshore_flink::rest::{HttpAnswer, HttpBody, HttpRequest, Transport};
use longshore_test::faults::{Injected, Process};
use serde_json::{Value, json};

/// How long a savepoint takes, and a cancellation.
const OPERATION: Duration = Duration::from_secs(3);

/// All JobManagers of a world, and what was ever saved.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobManagers {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By the id of the cluster.
    clusters: BTreeMap<String, Cluster>,
    /// The number that each savepoint and checkpoint holds.
    saved: BTreeMap<String, u64>,
    /// The newest number that was saved of each cluster or session job.
    newest: BTreeMap<String, u64>,
    starts: Vec<Start>,
    broken: Vec<String>,
}

/// A start of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) cluster: String,
    pub(crate) from: u64,
}

#[derive(Debug, Default)]
struct Cluster {
    jobs: BTreeMap<String, Job>,
    operations: BTreeMap<String, Operation>,
    n_jars: u32,
}

#[derive(Debug)]
struct Job {
    state: &'static str,
    /// What it is called in the record of starts.
    of: String,
    number: u64,
    n_snapshots: i64,
    completed: Option<(i64, String)>,
    savepoint: Option<(i64, String)>,
    restored: Option<String>,
}

#[derive(Clone, Debug)]
enum Operation {
    UnderWay,
    Savepoint(String),
    Checkpoint(i64),
    Failed,
}

/// Whether a job may start without state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It was asked for.
    Stateless,
    /// It must have what was saved last.
    Stateful,
}

impl JobManagers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn starts(&self) -> Vec<Start> {
        self.lock().starts.clone()
    }

    pub(crate) fn broken(&self) -> Vec<String> {
        self.lock().broken.clone()
    }

    pub(crate) fn n_running(&self) -> usize {
        let state = self.lock();
        let jobs = state.clusters.values().flat_map(|it| it.jobs.values());
        jobs.filter(|job| job.state == "RUNNING").count()
    }

    /// A JobManager serves; it has no jobs yet.
    pub(crate) fn serve(&self, cluster: &str) {
        let mut state = self.lock();
        state.clusters.entry(cluster.to_owned()).or_default();
    }

    /// A JobManager is gone, with all that it knew.
    pub(crate) fn end(&self, cluster: &str) {
        self.lock().clusters.remove(cluster);
    }

    /// A job starts. `path` is what it restores, `metadata` the number that metadata of high availability lead to.
    pub(crate) fn start(
        &self,
        cluster: &str,
        id: &str,
        of: &str,
        path: Option<&str>,
        metadata: Option<u64>,
    ) {
        let mut state = self.lock();
        let restored = path.filter(|it| it.starts_with("file:"));
        let from = metadata.or_else(|| restored.and_then(|it| state.saved.get(it).copied()));
        if path.is_some() && from.is_none() {
            state
                .broken
                .push(format!("{of} restores {path:?}, which is not there"));
        }
        let from = from.unwrap_or(0);
        let running = state.clusters.values().flat_map(|it| it.jobs.values());
        let is_twice = running
            .filter(|job| job.of == of)
            .any(|job| job.state == "RUNNING");
        if is_twice {
            state.broken.push(format!("{of} runs twice"));
        }
        let job = Job {
            state: "RUNNING",
            of: of.to_owned(),
            number: from + 1,
            n_snapshots: 0,
            completed: None,
            savepoint: None,
            restored: restored.map(str::to_owned),
        };
        state.starts.push(Start {
            cluster: of.to_owned(),
            from,
        });
        let jobs = state.clusters.entry(cluster.to_owned()).or_default();
        jobs.jobs.insert(id.to_owned(), job);
    }

    /// Whether the last start of a job had the newest state.
    pub(crate) fn judge(&self, of: &str, wanted: Asked) {
        let mut state = self.lock();
        let newest = state.newest.get(of).copied().unwrap_or(0);
        let last = state.starts.iter().rev().find(|it| it.cluster == of);
        let Some(last) = last.cloned() else {
            return;
        };
        if wanted == Asked::Stateful && last.from < newest {
            let from = last.from;
            state
                .broken
                .push(format!("{of} starts from {from}, and {newest} was saved"));
        }
    }

    /// What metadata of high availability of a job lead to.
    pub(crate) fn checkpoint(&self, cluster: &str) -> Option<(String, u64)> {
        let mut state = self.lock();
        let running = state.clusters.get(cluster)?.jobs.iter();
        let mut running = running.filter(|(_, job)| job.state == "RUNNING");
        let (id, _) = running.next()?;
        let id = id.clone();
        let (number, _) = state.save(cluster, &id, Kind::Checkpoint)?;
        Some((id, number))
    }

    fn answer(&self, cluster: &str, request: &HttpRequest) -> Option<(u16, Value, Option<Later>)> {
        let mut state = self.lock();
        state.clusters.get(cluster)?;
        let path = request.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let body = match &request.body {
            HttpBody::Json(body) => body.clone(),
            HttpBody::None | HttpBody::Jar(_) => Value::Null,
        };
        Some(state.route(cluster, &request.method, &parts, &body))
    }

    fn finish(&self, cluster: &str, later: &Later) {
        let mut state = self.lock();
        match later {
            Later::Cancelled { job } => {
                // What is retained of a job that is cancelled is a checkpoint.
                state.save(cluster, job, Kind::Checkpoint);
                if let Some(job) = state.job(cluster, job) {
                    job.state = "CANCELED";
                }
            }
            Later::Saved {
                job,
                trigger,
                kind,
                stops,
            } => {
                let saved = state.save(cluster, job, *kind);
                let outcome = match (saved, kind) {
                    // A job that is over takes no savepoint.
                    (None, _) => Operation::Failed,
                    (Some((_, path)), Kind::Savepoint) => Operation::Savepoint(path),
                    (Some(_), Kind::Checkpoint) => {
                        let id = state.job(cluster, job).map_or(0, |it| it.n_snapshots);
                        Operation::Checkpoint(id)
                    }
                };
                let is_saved = !matches!(outcome, Operation::Failed);
                if *stops
                    && is_saved
                    && let Some(job) = state.job(cluster, job)
                {
                    job.state = "FINISHED";
                }
                if let Some(cluster) = state.clusters.get_mut(cluster) {
                    cluster.operations.insert(trigger.clone(), outcome);
                }
            }
        }
    }

    /// The JobManagers forget operations that are over.
    pub(crate) fn forget(&self) {
        for cluster in self.lock().clusters.values_mut() {
            let operations = &mut cluster.operations;
            operations.retain(|_, it| matches!(it, Operation::UnderWay));
        }
    }

    /// The way to the JobManagers for one start of the operator.
    pub(crate) fn through(&self, process: &Process) -> Arc<dyn Transport> {
        Arc::new(Way {
            job_managers: self.clone(),
            process: process.clone(),
        })
    }
}

/// What happens a while after a request.
#[derive(Clone, Debug)]
enum Later {
    Cancelled {
        job: String,
    },
    Saved {
        job: String,
        trigger: String,
        kind: Kind,
        stops: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Savepoint,
    Checkpoint,
}

impl State {
    fn job(&mut self, cluster: &str, id: &str) -> Option<&mut Job> {
        self.clusters.get_mut(cluster)?.jobs.get_mut(id)
    }

    /// Saves the number of a job that runs.
    fn save(&mut self, cluster: &str, id: &str, kind: Kind) -> Option<(u64, String)> {
        let job = self.job(cluster, id)?;
        if !["RUNNING", "CANCELLING"].contains(&job.state) {
            return None;
        }
        job.number += 1;
        job.n_snapshots += 1;
        let (number, n, of) = (job.number, job.n_snapshots, job.of.clone());
        let path = match kind {
            Kind::Savepoint => format!("file:/sp/{of}/{number}"),
            Kind::Checkpoint => format!("file:/chk/{of}/{number}"),
        };
        let place = match kind {
            Kind::Savepoint => &mut job.savepoint,
            Kind::Checkpoint => &mut job.completed,
        };
        *place = Some((n, path.clone()));
        self.saved.insert(path.clone(), number);
        self.newest.insert(of, number);
        Some((number, path))
    }

    fn route(
        &mut self,
        cluster: &str,
        method: &Method,
        parts: &[&str],
        body: &Value,
    ) -> (u16, Value, Option<Later>) {
        let plain = |value: Value| (200, value, None);
        match (method.as_str(), parts) {
            ("GET", ["config"]) => plain(json!({"flink-version": "1.20.3", "flink-revision": "x"})),
            ("GET", ["jobs", "overview"]) => plain(self.overview(cluster)),
            ("GET", ["jobs", id, "checkpoints"]) => match self.job(cluster, id) {
                Some(job) => plain(checkpoints(job)),
                None => (404, json!({"errors": ["no job"]}), None),
            },
            ("GET", ["jobs", _, "checkpoints", "details", n]) => {
                let n: i64 = n.parse().unwrap();
                plain(json!({"id": n, "external_path": format!("file:/chk/{n}")}))
            }
            ("GET", ["jobs", _, "savepoints" | "checkpoints", trigger]) => {
                let operations = &self.clusters[cluster].operations;
                match operations.get(*trigger) {
                    Some(operation) => plain(progress(operation)),
                    None => (404, json!({"errors": ["unknown operation"]}), None),
                }
            }
            ("PATCH", ["jobs", id]) => self.cancel(cluster, id),
            ("POST", ["jobs", id, "stop"]) => {
                self.trigger(cluster, id, body, Kind::Savepoint, true)
            }
            ("POST", ["jobs", id, "savepoints"]) => {
                self.trigger(cluster, id, body, Kind::Savepoint, false)
            }
            ("POST", ["jobs", id, "checkpoints"]) => {
                self.trigger(cluster, id, body, Kind::Checkpoint, false)
            }
            ("POST", ["savepoint-disposal"]) => (202, json!({"request-id": "d"}), None),
            ("POST", ["jars", "upload"]) => {
                let jars = self.clusters.get_mut(cluster).unwrap();
                jars.n_jars += 1;
                let name = format!("/tmp/upload/{}_job.jar", jars.n_jars);
                plain(json!({"filename": name, "status": "success"}))
            }
            ("DELETE", ["jars", _]) => plain(json!({})),
            _ => (404, json!({"errors": ["no such path"]}), None),
        }
    }

    fn overview(&self, cluster: &str) -> Value {
        let jobs = self.clusters[cluster].jobs.iter();
        let jobs: Vec<Value> = jobs
            .map(|(id, job)| {
                json!({
                    "jid": id, "name": job.of, "start-time": 1, "state": job.state,
                    "tasks": {"total": 2, "running": 2},
                })
            })
            .collect();
        json!({"jobs": jobs})
    }

    fn cancel(&mut self, cluster: &str, id: &str) -> (u16, Value, Option<Later>) {
        let Some(job) = self.job(cluster, id) else {
            return (404, json!({"errors": ["no job"]}), None);
        };
        match job.state {
            "RUNNING" => {
                job.state = "CANCELLING";
                let job = id.to_owned();
                (202, json!({}), Some(Later::Cancelled { job }))
            }
            "CANCELLING" => (202, json!({}), None),
            _ => (409, json!({"errors": ["already over"]}), None),
        }
    }

    fn trigger(
        &mut self,
        cluster: &str,
        id: &str,
        body: &Value,
        kind: Kind,
        stops: bool,
    ) -> (u16, Value, Option<Later>) {
        let trigger = body["triggerId"].as_str().unwrap().to_owned();
        let answer = json!({"request-id": trigger});
        let operations = &mut self.clusters.get_mut(cluster).unwrap().operations;
        if operations.contains_key(&trigger) {
            return (202, answer, None);
        }
        operations.insert(trigger.clone(), Operation::UnderWay);
        let job = id.to_owned();
        let later = Later::Saved {
            job,
            trigger,
            kind,
            stops,
        };
        (202, answer, Some(later))
    }
}

fn checkpoints(job: &Job) -> Value {
    let shown = |it: &Option<(i64, String)>| {
        it.as_ref().map_or(Value::Null, |(id, path)| {
            json!({"id": id, "external_path": path, "trigger_timestamp": 4_000_000_000_000_i64})
        })
    };
    let restored = job
        .restored
        .as_ref()
        .map_or(Value::Null, |path| json!({"id": 0, "external_path": path}));
    json!({
        "counts": {"completed": job.n_snapshots},
        "latest": {
            "completed": shown(&job.completed),
            "savepoint": shown(&job.savepoint),
            "restored": restored,
        },
        "history": [],
    })
}

fn progress(operation: &Operation) -> Value {
    match operation {
        Operation::UnderWay => json!({"status": {"id": "IN_PROGRESS"}}),
        Operation::Savepoint(path) => {
            json!({"status": {"id": "COMPLETED"}, "operation": {"location": path}})
        }
        Operation::Failed => json!({
            "status": {"id": "COMPLETED"},
            "operation": {"failure-cause": {"class": "X", "stack-trace": "X: no job"}},
        }),
        Operation::Checkpoint(id) => {
            json!({"status": {"id": "COMPLETED"}, "operation": {"checkpointId": id}})
        }
    }
}

/// The way of one start of the operator.
#[derive(Debug)]
struct Way {
    job_managers: JobManagers,
    process: Process,
}

#[async_trait]
impl Transport for Way {
    async fn exchange(
        &self,
        address: &str,
        kind: &'static str,
        request: &HttpRequest,
    ) -> Result<HttpAnswer, AskError> {
        let cluster = address
            .split("-rest.")
            .next()
            .unwrap_or_default()
            .to_owned();
        let is_read = request.method == Method::GET;
        let verb = if is_read { "get" } else { "ask" };
        let (job_managers, request) = (self.job_managers.clone(), request.clone());
        let served = async move { job_managers.serve_request(&cluster, &request).await };
        let point = format!("{verb} {kind}");
        let answered = self.process.request(&point, served).await;
        answered.unwrap_or_else(|injected| {
            let why = match injected {
                Injected::Refused(_) => NoAnswer::Unreachable,
                Injected::Lost => NoAnswer::TimedOut,
            };
            Err(AskError::new(why, injected.to_string()))
        })
    }

    async fn fetch(&self, _: &str) -> Result<Bytes, AskError> {
        Ok(Bytes::from_static(b"jar"))
    }
}

impl JobManagers {
    async fn serve_request(
        &self,
        cluster: &str,
        request: &HttpRequest,
    ) -> Result<HttpAnswer, AskError> {
        if let ["jars", _, "run"] = request
            .path
            .trim_start_matches('/')
            .split('/')
            .collect::<Vec<_>>()[..]
        {
            return self.run(cluster, request);
        }
        let Some((status, body, later)) = self.answer(cluster, request) else {
            return Err(AskError::new(NoAnswer::Unreachable, "nobody listens"));
        };
        if let Some(later) = later {
            let (job_managers, cluster) = (self.clone(), cluster.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(OPERATION).await;
                job_managers.finish(&cluster, &later);
            });
        }
        let body = body.to_string().into();
        Ok(HttpAnswer { status, body })
    }

    /// Runs a jar on a session cluster.
    fn run(&self, cluster: &str, request: &HttpRequest) -> Result<HttpAnswer, AskError> {
        let HttpBody::Json(body) = &request.body else {
            return Err(AskError::new(NoAnswer::Refused, "no body"));
        };
        let id = body["jobId"].as_str().unwrap();
        let known: BTreeSet<String> = match self.lock().clusters.get(cluster) {
            Some(cluster) => cluster.jobs.keys().cloned().collect(),
            None => return Err(AskError::new(NoAnswer::Unreachable, "nobody listens")),
        };
        if known.contains(id) {
            let body = r#"{"errors":["DuplicateJobSubmissionException: Job has already been submitted."]}"#;
            return Ok(HttpAnswer {
                status: 400,
                body: body.into(),
            });
        }
        let path = body["savepointPath"].as_str();
        self.start(cluster, id, "session job", path, None);
        self.judge("session job", Asked::Stateful);
        let body = json!({"jobid": id}).to_string().into();
        Ok(HttpAnswer { status: 200, body })
    }
}
