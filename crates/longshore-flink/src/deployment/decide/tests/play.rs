//! A FlinkDeployment and what is around it, in memory: plans are carried out as the kit does, and printed.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use longshore_api::flink::{ANNOTATION_ATTEMPT, LABEL_APP};
use longshore_core::{Action, Asked, Create, Next, QuestionId, Seen};
use longshore_flink_core::{conf::layers::OperatorConfig, status::JobState};
use serde_json::{Value, json};

use crate::{
    deployment::{Desired, HaConfigMap, JobManager, Observed, SnapshotResource, decide},
    rest::{
        Checkpoints, FailureCause, Heard, JobOverview, Operation, RestAnswer, Snapshot, Version,
    },
};

/// More rounds than any step takes.
const MANY: usize = 30;

pub(super) struct Play {
    resource: Value,
    job_manager: Option<Value>,
    config_maps: Vec<Value>,
    snapshots: Vec<Value>,
    /// Whether the API server serves FlinkStateSnapshots.
    pub(super) serves_snapshots: bool,
    heard: BTreeMap<QuestionId, Asked<RestAnswer>>,
    now: Timestamp,
    n_objects: u32,
    /// The configuration that the cluster was started with.
    config: Option<String>,
    pub(super) next: Next,
    pub(super) log: Vec<String>,
    /// What every round has observed.
    pub(super) seen: Vec<Observed>,
}

impl Play {
    /// A new FlinkDeployment of this upgrade mode.
    pub(super) fn of(mode: &str) -> Self {
        Self {
            resource: resource(mode),
            job_manager: None,
            config_maps: Vec::new(),
            snapshots: Vec::new(),
            serves_snapshots: true,
            heard: BTreeMap::new(),
            now: Timestamp::constant(1_767_225_600, 0),
            n_objects: 0,
            config: None,
            next: Next::AwaitChange,
            log: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// One whose job runs.
    pub(super) fn running(mode: &str) -> Self {
        let mut play = Self::of(mode);
        play.until_running();
        play
    }

    /// One whose job runs with high availability, and has a checkpoint.
    pub(super) fn highly_available() -> Self {
        let mut play = Self::of("last-state");
        play.configure("high-availability.type", "kubernetes");
        play.configure("high-availability.storageDir", "file:/ha");
        play.until_running();
        let job = play.job_id().unwrap();
        let of_cluster = json!({format!("jobGraph-{job}"): "graph"});
        play.put_metadata("a-cluster-config-map", of_cluster);
        let of_job = json!({"checkpointID-0001": "pointer", "counter": "2"});
        play.put_metadata(&format!("a-{job}-config-map"), of_job);
        play
    }

    fn put_metadata(&mut self, name: &str, data: Value) {
        self.config_maps.push(json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name,
                "labels": {LABEL_APP: "a", "type": "flink-native-kubernetes"},
            },
            "data": data,
        }));
    }

    pub(super) fn observed(&self) -> Observed {
        let desired = Desired::of(self.resource.clone());
        let config_maps = self.config_maps.iter().map(HaConfigMap::of).map(Arc::new);
        let snapshots = self
            .snapshots
            .iter()
            .map(SnapshotResource::of)
            .map(Arc::new);
        let job_manager = self.job_manager.as_ref().map(JobManager::of).map(Arc::new);
        let heard: Heard = self.heard.clone().into_iter().collect();
        Observed {
            now: self.now,
            desired: Seen::Present(Arc::new(desired)),
            job_manager: job_manager.into(),
            pods: Seen::Present(Vec::new()),
            config_maps: Seen::Present(config_maps.collect()),
            session_jobs: Seen::Present(Vec::new()),
            snapshots: self.serves_snapshots.then(|| snapshots.collect()).into(),
            heard,
            operator: Arc::new(OperatorConfig::default()),
        }
    }

    /// Decides, and does what the plan says. Returns it line by line.
    pub(super) fn round(&mut self) -> Vec<String> {
        let observed = self.observed();
        let plan = decide(&observed);
        self.seen.push(observed);
        self.next = plan.next;
        let lines: Vec<String> = plan
            .actions
            .into_iter()
            .map(|it| self.carry_out(it))
            .collect();
        self.log.extend(lines.iter().cloned());
        self.now += SignedDuration::from_millis(10);
        lines
    }

    fn carry_out<E>(
        &mut self,
        action: Action<crate::Record, E, crate::rest::RestQuestion>,
    ) -> String {
        match action {
            Action::Persist(record) => {
                self.resource["status"] = record.status;
                format!("record {}", self.record())
            }
            Action::EnsureFinalizer { finalizer, .. } => {
                self.resource["metadata"]["finalizers"] = json!([finalizer]);
                "finalizer".to_owned()
            }
            Action::RemoveFinalizer { .. } => {
                self.resource["metadata"]["finalizers"] = json!([]);
                "no finalizer".to_owned()
            }
            Action::Create(create) => self.create(create),
            Action::Patch(patch) => {
                let removed: Vec<String> = patch.patch["data"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(key, _)| key.clone())
                    .collect();
                let name = &patch.target.name;
                let is_it = |it: &&mut Value| it["metadata"]["name"] == **name;
                for object in self.config_maps.iter_mut().filter(is_it) {
                    let data = object["data"].as_object_mut().unwrap();
                    data.retain(|key, _| !removed.contains(key));
                }
                format!("patch {} {name}", patch.target.resource.kind)
            }
            Action::Delete(delete) => {
                let target = delete.target;
                let is_other = |it: &Value| it["metadata"]["name"] != *target.name;
                match target.resource.kind {
                    "Deployment" => self.lose_job_manager(),
                    "ConfigMap" => self.config_maps.retain(is_other),
                    _ => self.snapshots.retain(is_other),
                }
                format!("delete {} {}", target.resource.kind, target.name)
            }
            Action::Ask(question) => {
                let id = longshore_core::Question::id(&question);
                let line = format!("ask {}", id.kind);
                self.heard.insert(id, Asked::UnderWay { since: self.now });
                line
            }
            Action::Used(id) => {
                self.heard.remove(&id);
                format!("used {}", id.kind)
            }
            Action::Announce(announcement) => format!("event {}", announcement.reason),
            Action::Call(_) => "call".to_owned(),
        }
    }

    fn create(&mut self, create: Create) -> String {
        let mut object = create.object;
        assert!(create.identity.is_of(&object), "{object}");
        self.n_objects += 1;
        object["metadata"]["uid"] = json!(format!("o{}", self.n_objects));
        object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "Deployment" => {
                assert!(self.job_manager.is_none(), "there is one");
                self.job_manager = Some(object);
                self.config = None;
            }
            "ConfigMap" if name == "flink-config-a" => {
                let text = object["data"]["flink-conf.yaml"].as_str();
                self.config = text.map(str::to_owned);
            }
            "FlinkStateSnapshot" => self.snapshots.push(object),
            _ => {}
        }
        format!("create {kind} {name}")
    }

    /// What is on record, in short.
    pub(super) fn record(&self) -> String {
        let status = &self.resource["status"];
        let reconciliation = &status["reconciliationStatus"];
        let reconciled = reconciliation["lastReconciledSpec"].as_str();
        let reconciled: Value =
            serde_json::from_str(reconciled.unwrap_or("null")).unwrap_or_default();
        let job = &reconciled["spec"]["job"];
        let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
        let stable = &reconciliation["lastStableSpec"];
        let is_stable = stable.is_string() && *stable == reconciliation["lastReconciledSpec"];
        format!(
            "{} {} by {}, {}, {}{}",
            text(&reconciliation["state"]),
            text(&job["state"]),
            text(&job["upgradeMode"]),
            text(&status["jobManagerDeploymentStatus"]),
            text(&status["jobStatus"]["state"]),
            if is_stable { ", stable" } else { "" },
        )
    }

    /// A user changes a field of the spec.
    pub(super) fn change(&mut self, pointer: &str, value: Value) {
        self.set(pointer, value);
        let generation = self.resource["metadata"]["generation"].as_i64().unwrap();
        self.resource["metadata"]["generation"] = json!(generation + 1);
    }

    /// Sets a field of the object.
    pub(super) fn set(&mut self, pointer: &str, value: Value) {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.resource.pointer_mut(parent).unwrap()[field] = value;
    }

    /// A user sets an option.
    pub(super) fn configure(&mut self, key: &str, value: &str) {
        self.resource["spec"]["flinkConfiguration"][key] = json!(value);
        let generation = self.resource["metadata"]["generation"].as_i64().unwrap();
        self.resource["metadata"]["generation"] = json!(generation + 1);
    }

    pub(super) fn delete(&mut self) {
        self.resource["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The pod of the JobManager is ready.
    pub(super) fn serve(&mut self) {
        if let Some(job_manager) = &mut self.job_manager {
            job_manager["status"]["availableReplicas"] = json!(1);
        }
    }

    pub(super) fn lose_job_manager(&mut self) {
        self.job_manager = None;
        self.heard.clear();
    }

    pub(super) fn has_job_manager(&self) -> bool {
        self.job_manager.is_some()
    }

    pub(super) fn put_foreign_job_manager(&mut self) {
        self.job_manager = Some(json!({"metadata": {
            "name": "a", "namespace": "default", "uid": "foreign",
            "ownerReferences": [{"uid": "somebody"}],
        }}));
    }

    pub(super) fn date_back_job_manager(&mut self) {
        let job_manager = self.job_manager.as_mut().unwrap();
        job_manager["metadata"]["annotations"][ANNOTATION_ATTEMPT] = json!("older");
    }

    pub(super) fn job_id(&self) -> Option<String> {
        text(&self.resource["status"]["jobStatus"]["jobId"])
    }

    pub(super) fn attempt(&self) -> Option<String> {
        text(&self.resource["status"]["clusterInfo"]["longshore-attempt"])
    }

    pub(super) fn path(&self) -> Option<String> {
        text(&self.resource["status"]["jobStatus"]["upgradeSavepointPath"])
    }

    pub(super) fn trigger_id(&self) -> Option<String> {
        text(&self.resource["status"]["jobStatus"]["savepointInfo"]["triggerId"])
    }

    pub(super) fn error(&self) -> String {
        text(&self.resource["status"]["error"]).unwrap_or_default()
    }

    pub(super) fn image(&self) -> String {
        let job_manager = self.job_manager.as_ref().unwrap();
        let container = &job_manager["spec"]["template"]["spec"]["containers"][0];
        text(&container["image"]).unwrap_or_default()
    }

    /// The path in the configuration of the cluster that was created last.
    pub(super) fn started_from(&mut self) -> Option<String> {
        for _ in 0..MANY {
            if self.config.is_some() {
                break;
            }
            self.round();
        }
        let config = self.config.clone().unwrap_or_default();
        assert!(
            !config.is_empty(),
            "no cluster is configured: {:#?}",
            self.log
        );
        let mut lines = config.lines();
        let path = lines.find_map(|it| it.strip_prefix("execution.savepoint.path: "));
        path.map(str::to_owned)
    }

    fn is_asked(&self, kind: &str) -> bool {
        let is_it = |(id, asked): (&QuestionId, &Asked<RestAnswer>)| {
            id.kind == kind && matches!(asked, Asked::UnderWay { .. })
        };
        self.heard.iter().any(is_it)
    }

    /// Answers the question of this kind, where one is under way.
    fn answer(&mut self, kind: &str, answer: &RestAnswer) {
        for (id, asked) in &mut self.heard {
            if id.kind == kind && matches!(asked, Asked::UnderWay { .. }) {
                let answer = answer.clone();
                *asked = Asked::Answered {
                    at: self.now,
                    answer,
                };
            }
        }
    }

    pub(super) fn answer_version(&mut self) {
        let version = Version {
            version: "1.20.3".to_owned(),
            revision: "01e3a6d".to_owned(),
        };
        self.answer("flink_version", &RestAnswer::Version(version));
    }

    pub(super) fn answer_jobs(&mut self, state: &str) {
        let state: JobState = serde_json::from_value(json!(state)).unwrap();
        let job = JobOverview {
            id: self.job_id().unwrap_or_default(),
            name: "job".to_owned(),
            state,
            start_time_ms: 1_767_225_600_000,
        };
        self.answer("flink_jobs", &RestAnswer::Jobs(Arc::new(vec![job])));
    }

    pub(super) fn answer_accepted(&mut self, kind: &str) {
        assert!(self.is_asked(kind), "{kind} is not asked: {:?}", self.log);
        self.answer(kind, &RestAnswer::Accepted);
    }

    pub(super) fn answer_savepoint(&mut self, path: &str) {
        let path = path.to_owned();
        let operation = Operation::Savepoint { path };
        self.answer("flink_savepoint", &RestAnswer::Operation(operation));
    }

    pub(super) fn answer_savepoint_failure(&mut self) {
        let operation = Operation::Failed(cause());
        self.answer("flink_savepoint", &RestAnswer::Operation(operation));
    }

    pub(super) fn answer_failure(&mut self) {
        let answer = RestAnswer::FailureCause(Some(cause()));
        self.answer("flink_failure", &answer);
    }

    pub(super) fn answer_checkpoints(&mut self, path: Option<&str>) {
        let completed = path.map(|path| Snapshot {
            id: 9,
            path: Some(path.to_owned()),
            at_ms: self.now.as_millisecond(),
        });
        let found = Checkpoints {
            n_completed: i64::from(completed.is_some()),
            completed,
            ..Checkpoints::default()
        };
        self.answer(
            "flink_checkpoints",
            &RestAnswer::Checkpoints(Arc::new(found)),
        );
    }

    fn answer_usual(&mut self) {
        self.serve();
        self.answer_version();
        self.answer_jobs("RUNNING");
    }

    /// Goes on until this is asked.
    pub(super) fn until_asked(&mut self, kind: &str) {
        for _ in 0..MANY {
            self.round();
            if self.is_asked(kind) {
                return;
            }
            self.answer_usual();
            self.pass(1);
        }
        panic!("{kind} is never asked: {:#?}", self.log);
    }

    /// Goes on until a Deployment is created.
    pub(super) fn until_created(&mut self) {
        for _ in 0..MANY {
            let lines = self.round();
            if lines.iter().any(|it| it == "create Deployment a") {
                return;
            }
            self.answer_usual();
            if self.is_asked("flink_cancel") {
                self.answer_accepted("flink_cancel");
            }
            self.pass(1);
        }
        panic!("no Deployment is created: {:#?}", self.log);
    }

    /// Goes on until the job runs, and nothing else is done.
    pub(super) fn until_running(&mut self) {
        for _ in 0..MANY {
            let lines = self.round();
            if lines.is_empty() && self.record().contains("READY, RUNNING") {
                return;
            }
            self.answer_usual();
            self.pass(1);
        }
        panic!("the job never runs: {:#?}", self.log);
    }

    /// The job stops with this savepoint.
    pub(super) fn stop_with(&mut self, path: &str) {
        self.until_asked("flink_stop");
        self.answer_accepted("flink_stop");
        self.round();
        self.answer_savepoint(path);
        self.round();
        self.round();
    }

    /// The job is looked at again.
    pub(super) fn look_again(&mut self) {
        self.pass(61);
        self.until_asked("flink_jobs");
    }

    /// The job is seen to be cancelled, and what it left is asked for.
    pub(super) fn cancel(&mut self) {
        for _ in 0..MANY {
            self.round();
            if self.is_asked("flink_checkpoints") {
                return;
            }
            self.answer_jobs("CANCELED");
            self.pass(5);
        }
        panic!("nobody asks what the job left: {:#?}", self.log);
    }
}

fn cause() -> FailureCause {
    FailureCause {
        class: "java.lang.RuntimeException".to_owned(),
        stack_trace: "java.lang.RuntimeException: broken\n\tat a.B".to_owned(),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn resource(mode: &str) -> Value {
    json!({
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {
            "name": "a", "namespace": "default", "uid": "u", "generation": 1,
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "image": "flink:1.20",
            "flinkVersion": "v1_20",
            "serviceAccount": "flink",
            "flinkConfiguration": {
                "execution.checkpointing.dir": "file:/chk",
                "execution.checkpointing.savepoint-dir": "file:/sp",
            },
            "jobManager": {"resource": {"memory": "1024m", "cpu": 1}},
            "taskManager": {"resource": {"memory": "1024m", "cpu": 1}},
            "job": {
                "jarURI": "local:///opt/flink/usrlib/job.jar",
                "parallelism": 2,
                "upgradeMode": mode,
                "state": "running",
            },
        },
    })
}
