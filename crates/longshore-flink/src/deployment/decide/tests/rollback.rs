//! A spec that does not get ready gives way to the one before.

use super::play::Play;

fn deployed_badly() -> Play {
    let mut play = Play::highly_available();
    play.configure("kubernetes.operator.deployment.rollback.enabled", "true");
    play.until_running();
    play.change("/spec/image", "flink:bad".into());
    play.until_created();
    play.round();
    play
}

#[test]
fn a_spec_that_does_not_get_ready_in_time_is_rolled_back() {
    let mut play = deployed_badly();
    assert_eq!(play.image(), "flink:bad");
    play.pass(290);
    play.round();
    assert!(!play.log.contains(&"event Rollback".to_owned()));
    play.pass(20);
    let round = play.round();
    assert!(round.contains(&"event Rollback".to_owned()), "{round:?}");
    play.until_created();
    assert_eq!(play.image(), "flink:1.20");
    play.round();
    let record = play.record();
    assert!(
        record.starts_with("ROLLED_BACK running by last-state"),
        "{record}"
    );
    play.until_running();
    let before = play.log.len();
    play.pass(3600);
    play.round();
    play.answer_jobs("RUNNING");
    play.round();
    let is_deletion = |it: &String| it.starts_with("delete");
    assert!(
        !play.log[before..].iter().any(is_deletion),
        "{:?}",
        play.log
    );
}

#[test]
fn a_new_spec_ends_the_rollback() {
    let mut play = deployed_badly();
    play.pass(310);
    play.round();
    play.change("/spec/image", "flink:good".into());
    play.until_created();
    play.until_running();
    assert_eq!(play.image(), "flink:good");
    let record = play.record();
    assert!(record.starts_with("DEPLOYED running"), "{record}");
}
