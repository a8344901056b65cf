//! What is not decided, and what is said about it.

use longshore_core::{Next, Seen, UnknownCause};
use serde_json::json;

use super::play::Play;
use crate::deployment::decide;

#[test]
fn while_something_cannot_be_seen_nothing_is_done() {
    let play = Play::running("stateless");
    let cause = UnknownCause::Unreachable;
    for unseen in 0..6 {
        let mut observed = play.observed();
        match unseen {
            0 => observed.desired = Seen::unknown(cause, ""),
            1 => observed.job_manager = Seen::unknown(cause, ""),
            2 => observed.pods = Seen::unknown(cause, ""),
            3 => observed.config_maps = Seen::unknown(cause, ""),
            4 => observed.session_jobs = Seen::unknown(cause, ""),
            _ => observed.snapshots = Seen::unknown(cause, ""),
        }
        let plan = decide(&observed);
        assert!(plan.actions.is_empty(), "{unseen}");
        assert!(matches!(plan.next, Next::After(_)), "{unseen}");
    }
}

#[test]
fn the_last_good_spec_keeps_running_beside_one_that_is_not_valid() {
    let mut play = Play::running("stateless");
    play.change("/spec/job/parallelism", 0.into());
    let round = play.round();
    assert!(
        round.contains(&"event ValidationError".to_owned()),
        "{round:?}"
    );
    let error = play.error();
    assert!(
        error.contains("Job parallelism must be larger than 0"),
        "{error}"
    );
    play.lose_job_manager();
    play.until_created();
    play.change("/spec/job/parallelism", 2.into());
    play.until_running();
    assert_eq!(play.error(), "");
}

#[test]
fn a_spec_that_is_not_valid_from_the_start_deploys_nothing() {
    let mut play = Play::of("stateless");
    play.change("/spec/serviceAccount", json!(null));
    let round = play.round();
    assert!(
        round.contains(&"event ValidationError".to_owned()),
        "{round:?}"
    );
    let is_create = |it: &String| it.starts_with("create");
    assert!(!round.iter().any(is_create), "{round:?}");
    assert!(play.round().is_empty(), "it is said once");
}

#[test]
fn what_this_operator_does_not_do_is_said() {
    let mut play = Play::of("stateless");
    play.change("/spec/mode", "standalone".into());
    let round = play.round();
    assert!(round.contains(&"event Unsupported".to_owned()), "{round:?}");
    assert!(!play.has_job_manager());
    assert!(play.round().is_empty(), "it is said once");
}

#[test]
fn a_deployment_of_somebody_else_is_left_alone() {
    let mut play = Play::of("stateless");
    play.put_foreign_job_manager();
    let round = play.round();
    assert!(round.contains(&"event Error".to_owned()), "{round:?}");
    assert!(play.has_job_manager());
}

/// A create of an attempt that was given up may arrive late.
#[test]
fn a_deployment_of_an_older_attempt_is_deleted() {
    let mut play = Play::running("stateless");
    play.date_back_job_manager();
    let round = play.round();
    assert!(
        round.contains(&"delete Deployment a".to_owned()),
        "{round:?}"
    );
}

#[test]
fn a_status_that_cannot_be_read_is_not_decided_upon() {
    let mut play = Play::running("stateless");
    play.set(
        "/status/reconciliationStatus/lastReconciledSpec",
        "{".into(),
    );
    let plan = decide(&play.observed());
    let text = format!("{:?}", plan.actions);
    assert!(
        !text.contains("Delete") && !text.contains("Create"),
        "{text}"
    );
}
