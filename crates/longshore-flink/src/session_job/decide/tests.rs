use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use longshore_core::{Asked, NoAnswer, Question as _, QuestionId};
use longshore_flink_core::{conf::layers::OperatorConfig, status::JobState};
use serde_json::{Value, json};

use super::*;
use crate::{
    deployment,
    rest::{
        Checkpoints, Heard, JobOverview, Operation, RestAnswer, RestCall, RestQuestion, Snapshot,
    },
};

/// More rounds than any step takes.
const MANY: usize = 30;

struct Play {
    object: Value,
    cluster: Option<Value>,
    heard: BTreeMap<QuestionId, Asked<RestAnswer>>,
    submissions: Vec<Value>,
    now: Timestamp,
    log: Vec<String>,
}

impl Play {
    fn of(mode: &str) -> Self {
        Self {
            object: json!({
                "metadata": {
                    "name": "j", "namespace": "default", "uid": "u", "generation": 1,
                    "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {
                    "deploymentName": "a",
                    "job": {
                        "jarURI": "https://example.test/job.jar", "parallelism": 1,
                        "upgradeMode": mode, "state": "running",
                    },
                },
            }),
            cluster: Some(cluster()),
            heard: BTreeMap::new(),
            submissions: Vec::new(),
            now: Timestamp::constant(1_767_225_600, 0),
            log: Vec::new(),
        }
    }

    fn running(mode: &str) -> Self {
        let mut play = Self::of(mode);
        play.until_state("RUNNING");
        play
    }

    fn round(&mut self) -> Vec<String> {
        let cluster = self
            .cluster
            .clone()
            .map(deployment::Desired::of)
            .map(Arc::new);
        let observed = Observed {
            now: self.now,
            desired: Seen::Present(Arc::new(Desired::of(self.object.clone()))),
            cluster: cluster.into(),
            snapshots: Seen::Present(Vec::new()),
            heard: self.heard.clone().into_iter().collect::<Heard>(),
            operator: Arc::new(OperatorConfig::default()),
        };
        let plan = decide(&observed);
        let lines: Vec<String> = plan
            .actions
            .into_iter()
            .map(|it| self.carry_out(it))
            .collect();
        self.log.extend(lines.iter().cloned());
        self.now += SignedDuration::from_millis(10);
        lines
    }

    fn carry_out<E>(&mut self, action: Action<crate::Record, E, RestQuestion>) -> String {
        match action {
            Action::Persist(record) => {
                self.object["status"] = record.status;
                format!("record {}", self.state())
            }
            Action::EnsureFinalizer { finalizer, .. } => {
                self.object["metadata"]["finalizers"] = json!([finalizer]);
                "finalizer".to_owned()
            }
            Action::RemoveFinalizer { .. } => "no finalizer".to_owned(),
            Action::Ask(question) => {
                if let RestCall::Submit(submission) = &question.call {
                    self.submissions.push(submission.body.clone());
                }
                let line = format!("ask {}", question.kind());
                let asked = Asked::UnderWay { since: self.now };
                self.heard.insert(question.id(), asked);
                line
            }
            Action::Used(id) => {
                self.heard.remove(&id);
                format!("used {}", id.kind)
            }
            Action::Announce(announcement) => format!("event {}", announcement.reason),
            Action::Create(create) => format!("create {}", create.resource.kind),
            Action::Patch(_) | Action::Delete(_) | Action::Call(_) => "?".to_owned(),
        }
    }

    fn state(&self) -> String {
        let state = &self.object["status"]["jobStatus"]["state"];
        state.as_str().unwrap_or("none").to_owned()
    }

    fn job_id(&self) -> String {
        let id = &self.object["status"]["jobStatus"]["jobId"];
        id.as_str().unwrap_or_default().to_owned()
    }

    fn is_asked(&self, kind: &str) -> bool {
        let mut asked = self.heard.iter();
        asked.any(|(id, asked)| id.kind == kind && matches!(asked, Asked::UnderWay { .. }))
    }

    fn answer(&mut self, kind: &str, answer: &RestAnswer) {
        for (id, asked) in &mut self.heard {
            if id.kind == kind && matches!(asked, Asked::UnderWay { .. }) {
                *asked = Asked::Answered {
                    at: self.now,
                    answer: answer.clone(),
                };
            }
        }
    }

    fn answer_jobs(&mut self, state: &str) {
        let job = JobOverview {
            id: self.job_id(),
            name: "job".to_owned(),
            state: serde_json::from_value::<JobState>(json!(state)).unwrap(),
            start_time_ms: 1_767_225_600_000,
        };
        self.answer("flink_jobs", &RestAnswer::Jobs(Arc::new(vec![job])));
    }

    fn answer_checkpoints(&mut self, path: Option<&str>) {
        let completed = path.map(|path| Snapshot {
            id: 3,
            path: Some(path.to_owned()),
            at_ms: 1,
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

    /// A JobManager whose jobs are in this state.
    fn answer_as(&mut self, state: &str) {
        for kind in ["flink_submit", "flink_cancel", "flink_stop"] {
            self.answer(kind, &RestAnswer::Accepted);
        }
        let path = "file:/sp/1".to_owned();
        let saved = RestAnswer::Operation(Operation::Savepoint { path });
        self.answer("flink_savepoint", &saved);
        self.answer_jobs(state);
    }

    fn until_state(&mut self, state: &str) {
        for _ in 0..MANY {
            if self.round().is_empty() && self.state() == state {
                return;
            }
            self.answer_as("RUNNING");
            self.now += SignedDuration::from_secs(1);
        }
        panic!("the job is never {state}: {:#?}", self.log);
    }

    /// Goes on until another job is submitted than before; the old one is in this state.
    fn until_submitted(&mut self, state: &str) {
        let n_before = self.submissions.len();
        for _ in 0..MANY {
            self.round();
            if self.submissions.len() > n_before {
                return;
            }
            self.answer_as(state);
            self.answer_checkpoints(Some("file:/chk/3"));
            self.now += SignedDuration::from_secs(1);
        }
        panic!("no job is submitted: {:#?}", self.log);
    }

    fn change(&mut self, pointer: &str, value: Value) {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.object.pointer_mut(parent).unwrap()[field] = value;
        let generation = self.object["metadata"]["generation"].as_i64().unwrap();
        self.object["metadata"]["generation"] = json!(generation + 1);
    }

    fn delete(&mut self) {
        self.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    }
}

/// A session cluster that serves.
fn cluster() -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "c", "generation": 1,
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "image": "flink:1.20", "flinkVersion": "v1_20", "serviceAccount": "flink",
            "flinkConfiguration": {
                "execution.checkpointing.dir": "file:/chk",
                "execution.checkpointing.savepoint-dir": "file:/sp",
            },
            "jobManager": {"resource": {"memory": "1024m", "cpu": 1}},
            "taskManager": {"resource": {"memory": "1024m", "cpu": 1}},
        },
        "status": {"jobManagerDeploymentStatus": "READY"},
    })
}

#[test]
fn a_job_is_submitted_under_the_id_on_record() {
    let mut play = Play::of("stateless");
    let expected = [
        "finalizer",
        "event Submit",
        "record RECONCILING",
        "ask flink_submit",
    ];
    assert_eq!(play.round(), expected);
    assert_eq!(play.submissions[0]["jobId"], play.job_id());
    assert!(play.submissions[0].get("savepointPath").is_none());
    // The process ends before the answer: the next one submits the same.
    play.heard.clear();
    assert_eq!(play.round(), ["ask flink_submit"]);
    assert_eq!(play.submissions[0], play.submissions[1]);
    play.until_state("RUNNING");
    assert_eq!(play.object["status"]["lifecycleState"], "STABLE");
}

#[test]
fn a_job_waits_for_its_session_cluster() {
    let mut play = Play::of("stateless");
    play.cluster = None;
    play.round();
    assert!(play.submissions.is_empty());
    let mut starting = cluster();
    starting["status"]["jobManagerDeploymentStatus"] = json!("DEPLOYING");
    play.cluster = Some(starting);
    play.round();
    assert!(play.submissions.is_empty());
    play.cluster = Some(cluster());
    play.round();
    assert_eq!(play.submissions.len(), 1);
}

#[test]
fn an_upgrade_with_a_savepoint_restores_it() {
    let mut play = Play::running("savepoint");
    let first = play.job_id();
    play.change("/spec/job/args", json!(["--new"]));
    play.until_submitted("RUNNING");
    assert_eq!(play.submissions[1]["savepointPath"], "file:/sp/1");
    assert_eq!(play.submissions[1]["claimMode"], "NO_CLAIM");
    assert_eq!(play.submissions[1]["programArgsList"], json!(["--new"]));
    assert_ne!(play.job_id(), first);
    assert!(play.log.contains(&"create FlinkStateSnapshot".to_owned()));
}

#[test]
fn an_upgrade_from_the_last_state_restores_the_newest_checkpoint() {
    let mut play = Play::running("last-state");
    play.change("/spec/job/args", json!(["--new"]));
    for _ in 0..MANY {
        play.round();
        if play.is_asked("flink_cancel") {
            break;
        }
        play.answer_as("RUNNING");
    }
    assert_eq!(play.state(), "CANCELLING");
    play.until_submitted("CANCELED");
    assert_eq!(play.submissions[1]["savepointPath"], "file:/chk/3");
}

#[test]
fn an_upgrade_without_state_starts_empty() {
    let mut play = Play::running("stateless");
    play.change("/spec/job/args", json!(["--new"]));
    for _ in 0..MANY {
        play.round();
        if play.is_asked("flink_cancel") {
            break;
        }
        play.answer_as("RUNNING");
    }
    play.until_submitted("CANCELED");
    assert!(play.submissions[1].get("savepointPath").is_none());
}

#[test]
fn a_deleted_job_is_cancelled_first() {
    let mut play = Play::running("stateless");
    play.delete();
    for _ in 0..MANY {
        let round = play.round();
        if round.contains(&"no finalizer".to_owned()) {
            assert!(play.log.contains(&"ask flink_cancel".to_owned()));
            return;
        }
        let state = if play.state() == "CANCELLING" {
            "CANCELED"
        } else {
            "RUNNING"
        };
        play.answer_as(state);
        play.answer_checkpoints(None);
        play.now += SignedDuration::from_secs(10);
    }
    panic!("it never goes: {:#?}", play.log);
}

#[test]
fn a_job_whose_session_cluster_is_gone_is_deleted_at_once() {
    let mut play = Play::running("stateless");
    play.cluster = None;
    play.delete();
    assert!(play.round().contains(&"no finalizer".to_owned()));
}

#[test]
fn a_submission_that_is_refused_is_told() {
    let mut play = Play::of("stateless");
    play.round();
    for asked in play.heard.values_mut() {
        *asked = Asked::Failed {
            at: play.now,
            why: NoAnswer::Refused,
            message: "ProgramInvocationException".to_owned(),
        };
    }
    let round = play.round();
    assert!(round.contains(&"event Error".to_owned()), "{round:?}");
    let error = play.object["status"]["error"].as_str().unwrap();
    assert!(error.contains("ProgramInvocationException"), "{error}");
}

#[test]
fn a_jar_that_may_not_be_fetched_is_refused() {
    let mut play = Play::of("stateless");
    play.change("/spec/job/jarURI", "file:///etc/passwd".into());
    let round = play.round();
    assert!(
        round.contains(&"event ValidationError".to_owned()),
        "{round:?}"
    );
    assert!(play.submissions.is_empty());
}
