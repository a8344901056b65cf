//! What a status becomes around a deployment.

use super::*;

const NOW: i64 = 1_700_000_000_000;

fn target<S>(spec: &S, generation: i64) -> Target<'_, S> {
    Target {
        spec,
        generation,
        now_ms: NOW,
    }
}

fn last(status: &CommonStatus) -> ReconciledSpec<FlinkDeploymentSpec> {
    status.reconciled().unwrap().unwrap()
}

fn job(status: &CommonStatus) -> JobSpec {
    last(status).spec.job.unwrap()
}

#[test]
fn a_first_deployment_is_recorded_as_suspended_before_and_as_running_after() {
    let spec = application(|job| job.savepoint_trigger_nonce = Some(7));
    let new = CommonStatus {
        error: Some("x".to_owned()),
        ..CommonStatus::default()
    };
    let before = new.before_attempt(&target(&spec, 3)).unwrap();
    assert_eq!(before.error, None);
    assert_eq!(before.observed_generation, Some(3));
    assert_eq!(
        before.reconciliation_status.state,
        ReconciliationState::Upgrading
    );
    assert_eq!(before.reconciliation_status.reconciliation_timestamp, NOW);
    assert_eq!(before.reconciliation_status.last_stable_spec, None);
    let suspended = application(|job| {
        job.savepoint_trigger_nonce = Some(7);
        job.state = DesiredState::Suspended;
    });
    assert_eq!(
        before.reconciliation_status.last_reconciled_spec,
        Some(text(&suspended, true))
    );

    let after = before.after_deployment(&target(&spec, 3)).unwrap();
    assert_eq!(
        after.reconciliation_status.state,
        ReconciliationState::Deployed
    );
    assert_eq!(
        after.reconciliation_status.last_reconciled_spec,
        Some(text(&spec, true))
    );
    // It stays the first one while it is deployed, and is none any more once another one is attempted.
    let same = after.nothing_changed::<FlinkDeploymentSpec>(4).unwrap();
    assert_eq!(
        same.reconciliation_status.last_reconciled_spec,
        Some(text(&spec, true))
    );
    assert_eq!(same.observed_generation, Some(4));
    let next = same.before_attempt(&target(&spec, 5)).unwrap();
    assert_eq!(
        next.reconciliation_status.last_reconciled_spec,
        Some(text(&suspended, false))
    );
}

#[test]
fn a_first_deployment_that_did_not_arrive_starts_again() {
    let spec = application(|_| {});
    let before = CommonStatus::default()
        .before_attempt(&target(&spec, 1))
        .unwrap();
    let again = before
        .first_deployment_failed::<FlinkDeploymentSpec>()
        .unwrap();
    assert!(again.is_before_first_deployment());
    assert_eq!(
        again.reconciliation_status.state,
        ReconciliationState::Upgrading
    );
    // A later one keeps what it knows, and so does one of an old operator.
    let later = reconciled(&spec, ReconciliationState::Upgrading);
    assert_eq!(
        later
            .first_deployment_failed::<FlinkDeploymentSpec>()
            .unwrap(),
        later
    );
    let mut old = later;
    let text = include_str!("../../../testdata/specs/before-1.2.json").to_owned();
    old.reconciliation_status.last_reconciled_spec = Some(text);
    assert_eq!(
        old.first_deployment_failed::<FlinkDeploymentSpec>()
            .unwrap(),
        old
    );
}

#[test]
fn nonces_of_snapshots_survive_an_upgrade_and_are_used_once() {
    let old = application(|job| {
        job.savepoint_trigger_nonce = Some(1);
        job.checkpoint_trigger_nonce = None;
    });
    let new = application(|job| {
        job.savepoint_trigger_nonce = Some(2);
        job.checkpoint_trigger_nonce = Some(5);
        job.parallelism = 4;
    });
    let status = reconciled(&old, ReconciliationState::Deployed);
    for next in [
        status.before_attempt(&target(&new, 2)).unwrap(),
        status.after_deployment(&target(&new, 2)).unwrap(),
    ] {
        assert_eq!(job(&next).savepoint_trigger_nonce, Some(1));
        assert_eq!(job(&next).checkpoint_trigger_nonce, None);
        assert_eq!(job(&next).parallelism, 4);
    }
    let used = status
        .nonce_used(SnapshotKind::Savepoint, &target(&new, 2))
        .unwrap();
    assert_eq!(job(&used).savepoint_trigger_nonce, Some(2));
    assert_eq!(job(&used).checkpoint_trigger_nonce, None);
    assert_eq!(job(&used).parallelism, 2);
    assert_eq!(used.observed_generation, Some(2));
    assert_eq!(used.reconciliation_status.reconciliation_timestamp, NOW);
    let used = used
        .nonce_used(SnapshotKind::Checkpoint, &target(&new, 2))
        .unwrap();
    assert_eq!(job(&used).checkpoint_trigger_nonce, Some(5));
}

#[test]
fn a_job_that_a_user_suspends_is_stable_at_once() {
    let spec = application(|job| job.state = DesiredState::Suspended);
    let status = reconciled(&application(|_| {}), ReconciliationState::Deployed);
    assert!(
        status
            .after_deployment(&target(&spec, 2))
            .unwrap()
            .is_stable()
    );
    assert!(
        status
            .before_attempt(&target(&spec, 2))
            .unwrap()
            .is_stable()
    );
    let running = application(|_| {});
    assert!(
        !status
            .after_deployment(&target(&running, 2))
            .unwrap()
            .is_stable()
    );
}

#[test]
fn a_session_cluster_is_recorded_as_it_is() {
    let spec = FlinkDeploymentSpec::default();
    let before = CommonStatus::default()
        .before_attempt(&target(&spec, 1))
        .unwrap();
    assert_eq!(
        before.reconciliation_status.last_reconciled_spec,
        Some(text(&spec, true))
    );
    assert!(!before.is_stable());
    let arrived = before.already_upgraded::<FlinkDeploymentSpec>().unwrap();
    assert_eq!(arrived.job_status.state, None);
    assert_eq!(
        arrived.reconciliation_status.state,
        ReconciliationState::Deployed
    );
    assert_eq!(
        arrived.reconciliation_status.last_reconciled_spec,
        Some(text(&spec, true))
    );
}

#[test]
fn a_rollback_changes_nothing_of_the_failed_spec_but_its_mode() {
    let stable = application(|job| job.parallelism = 1);
    let failed = application(|job| {
        job.parallelism = 9;
        job.upgrade_mode = UpgradeMode::Savepoint;
    });
    let mut status = reconciled(&failed, ReconciliationState::RollingBack);
    status.observed_generation = Some(4);
    status.reconciliation_status.last_stable_spec = Some(text(&stable, false));
    let before = status.before_attempt(&target(&stable, 5)).unwrap();
    assert_eq!(
        before.reconciliation_status.state,
        ReconciliationState::RollingBack
    );
    let after = before.after_deployment(&target(&stable, 5)).unwrap();
    assert_eq!(
        after.reconciliation_status.state,
        ReconciliationState::RolledBack
    );
    assert_eq!(after.observed_generation, Some(4));
    assert_eq!(job(&after).parallelism, 9);
    assert_eq!(job(&after).state, DesiredState::Running);
    assert_eq!(job(&after).upgrade_mode, UpgradeMode::LastState);
    assert_eq!(
        after
            .deployed::<FlinkDeploymentSpec>()
            .unwrap()
            .unwrap()
            .spec,
        stable
    );
    assert_eq!(
        before.deployed::<FlinkDeploymentSpec>().unwrap(),
        Some(last(&before))
    );
}

#[test]
fn a_deployment_that_arrived_before_its_status_is_deployed() {
    let spec = application(|_| {});
    let before = CommonStatus::default()
        .before_attempt(&target(&spec, 1))
        .unwrap();
    let arrived = before.already_upgraded::<FlinkDeploymentSpec>().unwrap();
    assert_eq!(
        arrived.reconciliation_status.last_reconciled_spec,
        Some(text(&spec, true))
    );
    assert_eq!(arrived.job_status.state, Some(JobState::Reconciling));
}

#[test]
fn a_cancellation_keeps_how_the_job_restores() {
    let spec = application(|_| {});
    let mut status = reconciled(&spec, ReconciliationState::Deployed);
    status.reconciliation_status.last_reconciled_spec = Some(text(&spec, true));
    let cancelling = status
        .cancelling::<FlinkDeploymentSpec>(UpgradeMode::Savepoint)
        .unwrap();
    assert_eq!(
        cancelling.reconciliation_status.state,
        ReconciliationState::Upgrading
    );
    assert_eq!(job(&cancelling).upgrade_mode, UpgradeMode::Savepoint);
    assert_eq!(job(&cancelling).state, DesiredState::Running);
    assert!(!last(&cancelling).is_first_deployment());
    let cancelled = cancelling.job_suspended::<FlinkDeploymentSpec>().unwrap();
    assert_eq!(job(&cancelled).state, DesiredState::Suspended);
    assert_eq!(job(&cancelled).upgrade_mode, UpgradeMode::Savepoint);
    assert_eq!(
        cancelled.reconciliation_status.state,
        ReconciliationState::Upgrading
    );
}

#[test]
fn a_deployed_job_is_stable_once_it_runs_or_has_ended_by_itself() {
    let running = application(|_| {});
    let suspended = application(|job| job.state = DesiredState::Suspended);
    for spec in [&running, &suspended] {
        for state in JobState::ALL.into_iter().map(Some).chain([None]) {
            for reconciliation in [
                ReconciliationState::Deployed,
                ReconciliationState::Upgrading,
                ReconciliationState::RollingBack,
                ReconciliationState::RolledBack,
            ] {
                let mut status = reconciled(spec, reconciliation);
                status.job_status.state = state;
                let next = status.after_job_observed::<FlinkDeploymentSpec>().unwrap();
                let has_run = state == Some(JobState::Running)
                    || state == Some(JobState::Finished) && spec == &running;
                let expected = has_run && reconciliation == ReconciliationState::Deployed;
                assert_eq!(next.is_stable(), expected, "{state:?} {reconciliation:?}");
            }
        }
    }
}

#[test]
fn no_transition_starts_from_a_spec_that_cannot_be_read() {
    let spec = application(|_| {});
    let mut status = reconciled(&spec, ReconciliationState::Deployed);
    status.job_status.state = Some(JobState::Finished);
    status.reconciliation_status.last_reconciled_spec = Some("{".to_owned());
    let target = target(&spec, 1);
    assert!(status.before_attempt(&target).is_err());
    assert!(status.after_deployment(&target).is_err());
    assert!(status.already_upgraded::<FlinkDeploymentSpec>().is_err());
    assert!(
        status
            .first_deployment_failed::<FlinkDeploymentSpec>()
            .is_err()
    );
    assert!(status.after_job_observed::<FlinkDeploymentSpec>().is_err());
    assert!(status.job_suspended::<FlinkDeploymentSpec>().is_err());
    assert!(
        status
            .cancelling::<FlinkDeploymentSpec>(UpgradeMode::Savepoint)
            .is_err()
    );
    assert!(status.nothing_changed::<FlinkDeploymentSpec>(1).is_err());
    assert!(status.nonce_used(SnapshotKind::Savepoint, &target).is_err());
    let status = FlinkDeploymentStatus {
        common: status,
        ..FlinkDeploymentStatus::default()
    };
    assert!(status.lifecycle_state().is_err());
    assert!(running_condition(&status, Timestamp::UNIX_EPOCH).is_err());
}
