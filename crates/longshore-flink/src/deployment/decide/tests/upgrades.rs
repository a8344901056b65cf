//! Upgrades, each in the way that its mode names.

use super::play::Play;

#[test]
fn a_savepoint_is_on_record_before_anything_is_deleted() {
    let mut play = Play::running("savepoint");
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_stop");
    let trigger = play.trigger_id();
    assert!(trigger.is_some(), "the intent is on record");
    play.answer_accepted("flink_stop");
    assert_eq!(play.round(), ["ask flink_savepoint", "used flink_jobs"]);
    assert_eq!(
        play.trigger_id(),
        trigger,
        "the operation is the recorded one"
    );
    play.answer_savepoint("file:/sp/1");
    let round = play.round();
    let recorded = round.iter().position(|it| it.starts_with("record"));
    let deleted = round.iter().position(|it| it.starts_with("delete"));
    assert!(recorded.is_some(), "{round:?}");
    assert!(
        deleted.is_none_or(|deleted| recorded < Some(deleted)),
        "{round:?}"
    );
    assert_eq!(play.path().as_deref(), Some("file:/sp/1"));
    play.until_created();
    assert_eq!(play.started_from().as_deref(), Some("file:/sp/1"));
    let n_stops = play.log.iter().filter(|it| *it == "ask flink_stop").count();
    assert_eq!(n_stops, 1);
}

#[test]
fn a_savepoint_that_failed_keeps_the_job_running_and_is_tried_again() {
    let mut play = Play::running("savepoint");
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_stop");
    let first = play.trigger_id();
    play.answer_accepted("flink_stop");
    play.round();
    play.answer_savepoint_failure();
    let round = play.round();
    assert!(
        round.contains(&"event SavepointError".to_owned()),
        "{round:?}"
    );
    assert!(play.has_job_manager());
    play.pass(60);
    play.until_asked("flink_stop");
    assert_ne!(
        play.trigger_id(),
        first,
        "another attempt is another operation"
    );
}

#[test]
fn a_last_state_upgrade_keeps_the_metadata_and_the_job() {
    let mut play = Play::highly_available();
    let job = play.job_id();
    play.change("/spec/image", "flink:new".into());
    play.until_created();
    assert!(play.log.contains(&"delete Deployment a".to_owned()));
    let is_metadata = |it: &String| it.starts_with("delete ConfigMap");
    assert!(!play.log.iter().any(is_metadata), "{:?}", play.log);
    assert_eq!(
        play.started_from().as_deref(),
        Some("KUBERNETES_OPERATOR_LAST_STATE")
    );
    assert_eq!(play.job_id(), job);
}

#[test]
fn a_last_state_upgrade_without_metadata_cancels_and_restores_the_newest_checkpoint() {
    let mut play = Play::running("last-state");
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_cancel");
    assert_eq!(
        play.record(),
        "UPGRADING running by savepoint, READY, CANCELLING"
    );
    play.answer_accepted("flink_cancel");
    play.cancel();
    play.answer_checkpoints(Some("file:/chk/3"));
    play.until_created();
    assert_eq!(play.started_from().as_deref(), Some("file:/chk/3"));
}

#[test]
fn a_job_that_provably_has_no_state_starts_empty() {
    let mut play = Play::running("last-state");
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_cancel");
    play.answer_accepted("flink_cancel");
    play.cancel();
    play.answer_checkpoints(None);
    play.until_created();
    assert_eq!(play.started_from(), None);
}

#[test]
fn a_stateless_upgrade_cancels_deletes_and_starts_empty() {
    let mut play = Play::running("stateless");
    let job = play.job_id();
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_cancel");
    assert_eq!(
        play.record(),
        "UPGRADING suspended by stateless, READY, RUNNING"
    );
    play.answer_accepted("flink_cancel");
    play.until_created();
    assert!(play.log.contains(&"delete Deployment a".to_owned()));
    assert_eq!(play.started_from(), None);
    assert_ne!(play.job_id(), job);
}

#[test]
fn a_redeploy_nonce_starts_from_the_path_of_the_user() {
    let mut play = Play::running("stateless");
    play.change("/spec/job/initialSavepointPath", "file:/sp/user".into());
    play.change("/spec/job/savepointRedeployNonce", 1.into());
    play.until_created();
    assert_eq!(play.started_from().as_deref(), Some("file:/sp/user"));
}

#[test]
fn an_edit_while_the_old_cluster_goes_is_what_is_deployed() {
    let mut play = Play::running("stateless");
    play.change("/spec/image", "flink:new".into());
    play.until_asked("flink_cancel");
    play.change("/spec/image", "flink:newer".into());
    play.answer_accepted("flink_cancel");
    play.until_created();
    assert_eq!(play.image(), "flink:newer");
    let created = play.log.iter().filter(|it| *it == "create Deployment a");
    assert_eq!(created.count(), 2, "the first one, and one for both edits");
}

#[test]
fn a_restart_nonce_restarts_and_its_removal_does_not() {
    let mut play = Play::running("stateless");
    play.change("/spec/restartNonce", 1.into());
    play.until_created();
    play.until_running();
    let before = play.log.len();
    play.change("/spec/restartNonce", serde_json::Value::Null);
    for _ in 0..3 {
        play.round();
        play.answer_jobs("RUNNING");
    }
    let is_deletion = |it: &String| it.starts_with("delete");
    assert!(
        !play.log[before..].iter().any(is_deletion),
        "{:?}",
        play.log
    );
}

#[test]
fn a_manual_nonce_makes_one_snapshot() {
    let mut play = Play::running("savepoint");
    play.change("/spec/job/savepointTriggerNonce", 7.into());
    let mut log = Vec::new();
    for _ in 0..4 {
        log.extend(play.round());
        play.answer_jobs("RUNNING");
    }
    let name = "create FlinkStateSnapshot a-savepoint-manual-u-7";
    assert_eq!(log.iter().filter(|it| *it == name).count(), 1, "{log:?}");
}

#[test]
fn where_snapshots_are_not_served_a_condition_says_so_and_upgrades_go_on() {
    let mut play = Play::running("savepoint");
    play.serves_snapshots = false;
    play.change("/spec/job/savepointTriggerNonce", 7.into());
    for _ in 0..4 {
        play.round();
        play.answer_jobs("RUNNING");
    }
    let untriggered = |play: &Play| {
        let observed = play.observed();
        let desired = observed.desired.present().cloned().unwrap();
        let conditions = desired.status.clone().unwrap().conditions;
        let mut conditions = conditions.into_iter();
        let found = conditions.find(|it| it.r#type == "SnapshotsUnavailable");
        found.map(|it| it.message)
    };
    let message = untriggered(&play).unwrap_or_default();
    let expected = "does not serve flinkstatesnapshots.flink.apache.org";
    assert!(message.contains(expected), "{message}");
    play.change("/spec/image", "flink:new".into());
    play.stop_with("file:/sp/1");
    play.until_running();
    assert_eq!(play.started_from().as_deref(), Some("file:/sp/1"));
    let is_snapshot = |it: &String| it.starts_with("create FlinkStateSnapshot");
    assert!(!play.log.iter().any(is_snapshot), "{:?}", play.log);

    play.serves_snapshots = true;
    for _ in 0..4 {
        play.round();
        play.answer_jobs("RUNNING");
    }
    assert_eq!(untriggered(&play), None);
}
