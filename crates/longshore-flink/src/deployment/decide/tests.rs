//! Whole stories, decision by decision: each plan is carried out on objects in memory, and printed.

mod laws;
mod play;
mod refusals;
mod rollback;
mod upgrades;

use longshore_core::Next;

use self::play::Play;

#[test]
fn a_first_deployment_takes_three_records() {
    let mut play = Play::of("stateless");
    assert_eq!(
        play.round(),
        [
            "finalizer",
            "event Submit",
            "record UPGRADING suspended by stateless, MISSING, RECONCILING",
            "create Deployment a",
        ]
    );
    assert_eq!(play.next, Next::After(std::time::Duration::ZERO));
    assert_eq!(
        play.round(),
        [
            "create Service a",
            "create Service a-rest",
            "create ConfigMap flink-config-a",
            "record DEPLOYED running by stateless, DEPLOYING, RECONCILING",
        ]
    );
    assert!(play.round().is_empty(), "it starts");
    play.serve();
    assert_eq!(play.round(), ["ask flink_version", "ask flink_jobs"]);
    play.answer_version();
    assert!(play.round().is_empty(), "both are recorded at once");
    play.answer_jobs("RUNNING");
    assert_eq!(
        play.round(),
        [
            "event JobStatusChanged",
            "record DEPLOYED running by stateless, READY, RUNNING, stable",
        ]
    );
    assert_eq!(play.round(), ["used flink_version"]);
    assert!(play.round().is_empty(), "at rest nothing is written");
    assert!(
        matches!(play.next, Next::After(_)),
        "the job is looked at again"
    );
}

#[test]
fn a_first_deployment_that_is_suspended_waits() {
    let mut play = Play::of("stateless");
    play.change("/spec/job/state", "suspended".into());
    let round = play.round();
    assert!(
        !round.iter().any(|it| it.starts_with("create")),
        "{round:?}"
    );
    assert!(play.round().is_empty());
    play.change("/spec/job/state", "running".into());
    assert!(play.round().contains(&"create Deployment a".to_owned()));
}

/// Whatever is lost between two steps, the next round goes on with what is on record, under the same names.
#[test]
fn a_create_that_was_lost_is_repeated_as_the_same_attempt() {
    let mut play = Play::of("stateless");
    play.round();
    let (attempt, job) = (play.attempt(), play.job_id());
    play.lose_job_manager();
    assert_eq!(play.round(), ["create Deployment a"]);
    assert_eq!((play.attempt(), play.job_id()), (attempt, job));
}

#[test]
fn a_user_who_suspends_and_resumes_keeps_the_state() {
    let mut play = Play::running("savepoint");
    play.change("/spec/job/state", "suspended".into());
    play.stop_with("file:/sp/1");
    assert_eq!(
        play.record(),
        "DEPLOYED suspended by savepoint, READY, FINISHED, stable"
    );
    assert!(
        play.has_job_manager(),
        "the web page of the ended job stays"
    );
    play.change("/spec/job/state", "running".into());
    play.until_created();
    assert_eq!(play.started_from().as_deref(), Some("file:/sp/1"));
}

#[test]
fn a_lost_deployment_of_a_stateless_job_is_made_again() {
    let mut play = Play::running("stateless");
    play.lose_job_manager();
    let round = play.round();
    assert!(round.contains(&"event Missing".to_owned()), "{round:?}");
    assert!(
        round.contains(&"event RecoverDeployment".to_owned()),
        "{round:?}"
    );
    play.until_created();
    assert_eq!(play.started_from(), None);
}

#[test]
fn a_lost_deployment_of_a_stateful_job_is_made_again_from_its_metadata_only() {
    let mut play = Play::running("last-state");
    play.lose_job_manager();
    let round = play.round();
    assert!(
        round.contains(&"event UpgradeFailed".to_owned()),
        "{round:?}"
    );
    assert!(!play.has_job_manager());

    let mut play = Play::highly_available();
    let job = play.job_id();
    play.lose_job_manager();
    play.until_created();
    assert_eq!(
        play.started_from().as_deref(),
        Some("KUBERNETES_OPERATOR_LAST_STATE")
    );
    assert_eq!(play.job_id(), job, "the metadata are of a job");
    let patched = "patch ConfigMap a-cluster-config-map".to_owned();
    assert!(play.log.contains(&patched), "{:?}", play.log);
}

#[test]
fn a_deleted_resource_takes_its_cluster_along() {
    let mut play = Play::running("stateless");
    play.delete();
    let round = play.round();
    assert!(round.contains(&"event Cleanup".to_owned()), "{round:?}");
    assert!(round.contains(&"ask flink_cancel".to_owned()), "{round:?}");
    play.answer_accepted("flink_cancel");
    let round = play.round();
    assert!(
        round.contains(&"delete Deployment a".to_owned()),
        "{round:?}"
    );
    let round = play.round();
    assert!(round.contains(&"no finalizer".to_owned()), "{round:?}");
}

#[test]
fn a_resource_that_was_never_deployed_goes_at_once() {
    let mut play = Play::of("stateless");
    play.change("/spec/job/state", "suspended".into());
    play.round();
    play.delete();
    assert!(play.round().contains(&"no finalizer".to_owned()));
}

#[test]
fn a_job_that_failed_starts_again_from_the_newest_state_it_left() {
    let mut play = Play::running("savepoint");
    play.configure("kubernetes.operator.job.restart.failed", "true");
    play.look_again();
    play.answer_jobs("FAILED");
    let asked = ["ask flink_checkpoints", "ask flink_failure"];
    assert_eq!(play.round(), asked);
    play.answer_checkpoints(Some("file:/chk/9"));
    assert!(play.round().is_empty(), "nothing is recorded by halves");
    play.answer_failure();
    play.until_created();
    assert_eq!(play.started_from().as_deref(), Some("file:/chk/9"));
}
