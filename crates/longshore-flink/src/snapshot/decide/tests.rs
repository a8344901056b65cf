use std::collections::BTreeMap;

use jiff::SignedDuration;
use longshore_core::{Asked, Next, NoAnswer, Question as _, QuestionId, UnknownCause};
use longshore_flink_core::{
    conf::{layers::OperatorConfig, operator::CheckpointType},
    spec::FlinkVersion,
    status::JobState,
};
use serde_json::Value;

use super::*;
use crate::rest::Heard;

struct Play {
    object: Value,
    job: Option<Job>,
    heard: BTreeMap<QuestionId, Asked<RestAnswer>>,
    now: Timestamp,
    next: Next,
}

impl Play {
    fn of(spec: Value) -> Self {
        Self {
            object: json!({
                "metadata": {
                    "name": "s", "namespace": "default", "uid": "u", "generation": 1,
                    "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": spec,
            }),
            job: Some(job(JobState::Running)),
            heard: BTreeMap::new(),
            now: Timestamp::constant(1_767_225_600, 0),
            next: Next::AwaitChange,
        }
    }

    fn savepoint() -> Self {
        Self::of(json!({
            "jobReference": {"kind": "FlinkDeployment", "name": "a"},
            "savepoint": {}, "backoffLimit": 1,
        }))
    }

    fn observed(&self) -> Observed {
        Observed {
            now: self.now,
            wanted: Seen::Present(Arc::new(Wanted::of(self.object.clone()))),
            job: self.job.clone().into(),
            heard: self.heard.clone().into_iter().collect::<Heard>(),
            operator: Arc::new(OperatorConfig::default()),
        }
    }

    fn round(&mut self) -> Vec<String> {
        let plan = decide(&self.observed());
        self.next = plan.next;
        plan.actions
            .into_iter()
            .map(|it| self.carry_out(it))
            .collect()
    }

    fn carry_out<E>(
        &mut self,
        action: Action<crate::Record, E, crate::rest::RestQuestion>,
    ) -> String {
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
            Action::Patch(patch) => {
                self.object["metadata"]["labels"] = patch.patch["metadata"]["labels"].clone();
                "labels".to_owned()
            }
            Action::Ask(question) => {
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
            Action::Create(_) | Action::Delete(_) | Action::Call(_) => "?".to_owned(),
        }
    }

    fn state(&self) -> String {
        self.object["status"]["state"].as_str().unwrap().to_owned()
    }

    fn path(&self) -> Option<&str> {
        self.object["status"]["path"].as_str()
    }

    fn answer(&mut self, kind: &str, answer: &RestAnswer) {
        for (id, asked) in &mut self.heard {
            if id.kind == kind {
                *asked = Asked::Answered {
                    at: self.now,
                    answer: answer.clone(),
                };
            }
        }
    }

    fn refuse(&mut self, kind: &str) {
        for (id, asked) in &mut self.heard {
            if id.kind == kind {
                *asked = Asked::Failed {
                    at: self.now,
                    why: NoAnswer::Refused,
                    message: "no".to_owned(),
                };
            }
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn delete(&mut self) {
        self.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    }
}

fn job(state: JobState) -> Job {
    Job {
        address: "a-rest.default:8081".to_owned(),
        id: Some("j".to_owned()),
        state: Some(state),
        version: Some(FlinkVersion::V1_20),
        savepoint_directory: Some("file:/sp".to_owned()),
        savepoint_format: SavepointFormatType::Canonical,
        checkpoint_type: CheckpointType::Full,
    }
}

fn saved(path: &str) -> RestAnswer {
    let path = path.to_owned();
    RestAnswer::Operation(Operation::Savepoint { path })
}

#[test]
fn a_savepoint_is_on_record_before_it_is_triggered() {
    let mut play = Play::savepoint();
    let expected = [
        "finalizer",
        "record IN_PROGRESS",
        "ask flink_trigger_savepoint",
        "labels",
    ];
    assert_eq!(play.round(), expected);
    assert!(play.round().is_empty(), "nothing is asked twice");
    play.answer("flink_trigger_savepoint", &RestAnswer::Accepted);
    assert_eq!(play.round(), ["ask flink_savepoint"]);
    play.answer("flink_savepoint", &saved("file:/sp/1"));
    let round = play.round();
    assert!(round.contains(&"record COMPLETED".to_owned()), "{round:?}");
    assert_eq!(play.path(), Some("file:/sp/1"));
    play.round();
    assert!(play.round().is_empty(), "at rest nothing is written");
}

#[test]
fn a_failure_is_tried_again_until_the_limit() {
    let mut play = Play::savepoint();
    play.round();
    let first = play.object["status"]["triggerId"].clone();
    play.refuse("flink_trigger_savepoint");
    let round = play.round();
    assert!(
        round.contains(&"event SavepointError".to_owned()),
        "{round:?}"
    );
    assert_eq!(play.state(), "TRIGGER_PENDING");
    play.pass(5);
    play.round();
    assert_eq!(play.state(), "TRIGGER_PENDING", "it waits for 10 s");
    play.pass(6);
    play.round();
    assert_eq!(play.state(), "IN_PROGRESS");
    assert_ne!(play.object["status"]["triggerId"], first);
    play.refuse("flink_trigger_savepoint");
    play.round();
    assert_eq!(play.state(), "FAILED");
    play.pass(3600);
    play.round();
    assert_eq!(play.state(), "FAILED", "that is final");
}

#[test]
fn a_snapshot_of_a_job_that_does_not_run_is_abandoned() {
    let mut play = Play::savepoint();
    play.job = Some(job(JobState::Restarting));
    let round = play.round();
    assert!(
        round.contains(&"event SnapshotAbandoned".to_owned()),
        "{round:?}"
    );
    assert_eq!(play.state(), "ABANDONED");
}

#[test]
fn a_savepoint_that_exists_is_complete_without_a_request() {
    let mut play = Play::of(json!({"savepoint": {"path": "file:/sp/0", "alreadyExists": true}}));
    play.job = None;
    let round = play.round();
    assert!(!round.iter().any(|it| it.starts_with("ask")), "{round:?}");
    assert_eq!(
        (play.state().as_str(), play.path()),
        ("COMPLETED", Some("file:/sp/0"))
    );
}

#[test]
fn a_checkpoint_completes_with_its_path_or_without_one() {
    for path in [Some("file:/chk/4"), None] {
        let mut play = Play::of(json!({
            "jobReference": {"kind": "FlinkDeployment", "name": "a"}, "checkpoint": {},
        }));
        play.round();
        play.answer("flink_trigger_checkpoint", &RestAnswer::Accepted);
        play.round();
        let done = RestAnswer::Operation(Operation::Checkpoint { id: 4 });
        play.answer("flink_checkpoint", &done);
        assert_eq!(play.round(), ["ask flink_checkpoint_path"]);
        let found = RestAnswer::CheckpointPath(path.map(str::to_owned));
        play.answer("flink_checkpoint_path", &found);
        let round = play.round();
        let is_told = round.contains(&"event CheckpointError".to_owned());
        assert_eq!(is_told, path.is_none(), "{round:?}");
        assert_eq!(play.state(), "COMPLETED");
        assert_eq!(play.path(), Some(path.unwrap_or_default()));
    }
}

#[test]
fn a_deleted_snapshot_disposes_of_its_files_where_its_job_can() {
    let complete = || {
        let mut play = Play::savepoint();
        play.round();
        play.answer("flink_trigger_savepoint", &RestAnswer::Accepted);
        play.round();
        play.answer("flink_savepoint", &saved("file:/sp/1"));
        play.round();
        play.delete();
        play
    };
    let mut play = complete();
    assert!(play.round().contains(&"ask flink_dispose".to_owned()));
    play.answer("flink_dispose", &RestAnswer::Accepted);
    assert!(play.round().contains(&"no finalizer".to_owned()));
    let mut play = complete();
    play.job = Some(job(JobState::Failed));
    let round = play.round();
    assert!(
        round.contains(&"event CleanupFailed".to_owned()),
        "{round:?}"
    );
    assert!(!round.contains(&"no finalizer".to_owned()), "{round:?}");
    let mut play = complete();
    play.job = None;
    assert!(
        play.round().contains(&"no finalizer".to_owned()),
        "deletion ends"
    );
}

#[test]
fn while_the_job_cannot_be_seen_nothing_is_done() {
    let play = Play::savepoint();
    let mut observed = play.observed();
    observed.job = Seen::unknown(UnknownCause::Unreachable, "");
    let plan = decide(&observed);
    assert!(plan.actions.is_empty() && plan.next != Next::AwaitChange);
}
