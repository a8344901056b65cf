use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    Decision::{Fail, Upgrade, Wait},
    HaMetadata::{Absent, Off},
    JobManagerStatus::{Deploying, Error, Missing},
    JobState as J,
    LastSnapshot::{LastState, ProvenEmpty, Unknown},
    Runner::SessionCluster,
    UpgradeMode::{LastState as L, Savepoint as S, Stateless},
    *,
};

mod laws;

fn ready() -> Runner {
    application(JobManagerStatus::Ready)
}

fn application(job_manager: JobManagerStatus) -> Runner {
    Runner::Application {
        job_manager,
        pod: PodStart::Started,
        reconciled: UpgradeMode::Savepoint,
    }
}

/// A running application with high availability, and no change of the version.
fn facts(requested: UpgradeMode, job: JobState) -> Facts {
    Facts {
        requested,
        runner: ready(),
        job: Some(job),
        version: VersionChange::Same,
        ha_observed: HaMetadata::Present,
        ha_wanted: HaMetadata::Present,
        last_snapshot: LastSnapshot::Path,
        checkpoint_age: CheckpointAge::Young,
        options: Options::default(),
    }
}

impl Facts {
    fn on(self, runner: Runner) -> Self {
        Self { runner, ..self }
    }

    fn other_version(self) -> Self {
        let version = VersionChange::Changed;
        Self { version, ..self }
    }

    fn ha(self, both: HaMetadata) -> Self {
        let (ha_observed, ha_wanted) = (both, both);
        Self {
            ha_observed,
            ha_wanted,
            ..self
        }
    }

    fn snapshot(self, last_snapshot: LastSnapshot) -> Self {
        Self {
            last_snapshot,
            ..self
        }
    }

    fn age(self, checkpoint_age: CheckpointAge) -> Self {
        Self {
            checkpoint_age,
            ..self
        }
    }

    fn without_fallback(mut self) -> Self {
        self.options.fallback = Switch::Off;
        self
    }

    fn without_directory(mut self) -> Self {
        self.options.savepoint_directory = Switch::Off;
        self
    }

    fn with_job_cancel(mut self) -> Self {
        self.options.job_cancel = Switch::On;
        self
    }

    fn never_started(self, job_manager: JobManagerStatus, reconciled: UpgradeMode) -> Self {
        self.on(Runner::Application {
            job_manager,
            pod: PodStart::Never,
            reconciled,
        })
    }
}

/// The number of a row of spec 9.4, facts that it decides, and the decision.
type Row = (&'static str, Facts, Decision);

#[rustfmt::skip]
fn rows_1_to_6() -> Vec<Row> {
    vec![
        ("1", facts(Stateless, J::Running), Upgrade(Way::Stateless)),
        ("1", facts(Stateless, J::Reconciling).on(application(Missing)), Upgrade(Way::Stateless)),
        ("1", facts(Stateless, J::Failed).snapshot(Unknown), Upgrade(Way::StatelessEnded)),
        ("2", facts(L, J::Canceled).on(application(Missing)), Upgrade(Way::Ended)),
        ("2", facts(S, J::Failed).on(application(Missing)).ha(Absent), Upgrade(Way::Ended)),
        ("2", facts(S, J::Finished).on(application(Missing)).ha(Off), Upgrade(Way::Ended)),
        ("2", facts(L, J::Finished), Upgrade(Way::Ended)),
        ("2", facts(L, J::Failed).on(SessionCluster), Upgrade(Way::Ended)),
        ("2", facts(L, J::Failed).other_version(), Upgrade(Way::Ended)),
        ("2", facts(L, J::Failed).snapshot(ProvenEmpty), Upgrade(Way::Ended)),
        ("2", facts(L, J::Failed).snapshot(LastState), Fail(Failure::LastSnapshotUnknown)),
        ("2", facts(L, J::Failed).snapshot(Unknown), Fail(Failure::LastSnapshotUnknown)),
        ("2, then 12", facts(L, J::Failed).on(application(Missing)), Upgrade(Way::HaMetadata)),
        ("2, then 9", facts(L, J::Failed).on(application(Missing)).other_version(), Wait(Waiting::Stoppable)),
        ("3", facts(S, J::Cancelling), Wait(Waiting::Cancellation)),
        ("3", facts(L, J::Cancelling).on(SessionCluster), Wait(Waiting::Cancellation)),
        ("3, then 14", facts(L, J::Cancelling).on(application(Missing)).ha(Absent), Fail(Failure::NoJobManager)),
        ("4", facts(S, J::Running), Upgrade(Way::Savepoint)),
        ("4", facts(S, J::Running).on(SessionCluster).other_version(), Upgrade(Way::Savepoint)),
        ("5", facts(S, J::Restarting).without_fallback(), Wait(Waiting::Running)),
        ("5, without 12", facts(S, J::Reconciling).on(application(Missing)).without_fallback(), Wait(Waiting::Running)),
        (
            "5, then 14",
            facts(S, J::Reconciling).on(application(Missing)).without_fallback().ha(Absent),
            Fail(Failure::NoJobManager),
        ),
        (
            "5, then 13",
            facts(S, J::Reconciling).never_started(Deploying, S).without_fallback().ha(Absent),
            Upgrade(Way::Unstarted),
        ),
        ("6, then 8", facts(S, J::Restarting).without_fallback().other_version(), Upgrade(Way::Cancel)),
        ("6, then 12", facts(S, J::Restarting), Upgrade(Way::HaMetadata)),
        ("6, then 11", facts(S, J::Failing).on(SessionCluster), Upgrade(Way::Cancel)),
    ]
}

#[rustfmt::skip]
fn rows_7_to_11() -> Vec<Row> {
    vec![
        ("7", facts(L, J::Running).other_version(), Upgrade(Way::Savepoint)),
        ("8", facts(L, J::Running).other_version().without_directory(), Upgrade(Way::Cancel)),
        ("8", facts(L, J::Restarting).other_version(), Upgrade(Way::Cancel)),
        ("9", facts(L, J::Reconciling).other_version(), Wait(Waiting::Stoppable)),
        ("9", facts(S, J::Restarting).other_version().on(application(Deploying)), Wait(Waiting::Stoppable)),
        ("9, then 13", facts(L, J::Reconciling).other_version().never_started(Error, S).ha(Absent), Upgrade(Way::Unstarted)),
        ("9, then 14", facts(L, J::Reconciling).other_version().on(application(Error)).ha(Off), Fail(Failure::NoJobManager)),
        ("10", facts(L, J::Running), Upgrade(Way::HaMetadata)),
        ("10", facts(L, J::Running).with_job_cancel(), Upgrade(Way::Cancel)),
        ("10", facts(L, J::Running).ha(Absent), Upgrade(Way::Cancel)),
        ("10", facts(L, J::Running).on(SessionCluster), Upgrade(Way::Cancel)),
        ("10", facts(L, J::Running).age(CheckpointAge::Pending), Wait(Waiting::Checkpoint)),
        ("10", facts(L, J::Running).age(CheckpointAge::Old), Upgrade(Way::Savepoint)),
        ("10", Facts { ha_wanted: Off, ..facts(L, J::Running) }, Upgrade(Way::Cancel)),
        ("10, then 14", facts(L, J::Running).on(application(Missing)).ha(Off), Fail(Failure::NoJobManager)),
        ("11", facts(L, J::Restarting).with_job_cancel(), Upgrade(Way::Cancel)),
        ("11", facts(L, J::Created).ha(Off), Upgrade(Way::Cancel)),
    ]
}

#[rustfmt::skip]
fn rows_12_to_15() -> Vec<Row> {
    vec![
        ("12", facts(L, J::Restarting), Upgrade(Way::HaMetadata)),
        ("12", facts(L, J::Reconciling).on(application(Missing)), Upgrade(Way::HaMetadata)),
        ("12", Facts { job: None, ..facts(L, J::Running) }, Upgrade(Way::HaMetadata)),
        ("13", facts(L, J::Reconciling).ha(Absent).never_started(Deploying, S), Upgrade(Way::Unstarted)),
        // A first deployment whose image was wrong.
        ("13", facts(S, J::Reconciling).ha(Off).never_started(Error, Stateless).snapshot(Unknown), Upgrade(Way::Unstarted)),
        ("13", facts(S, J::Reconciling).ha(Off).never_started(Error, S).snapshot(LastState), Fail(Failure::LastSnapshotUnknown)),
        ("13, not", facts(S, J::Reconciling).never_started(Error, S).without_fallback(), Wait(Waiting::Running)),
        ("13, not", facts(L, J::Reconciling).ha(Absent).never_started(Deploying, L), Wait(Waiting::Upgradeable)),
        ("13, not", facts(L, J::Reconciling).ha(Absent).never_started(Missing, S), Fail(Failure::NoJobManager)),
        ("14", facts(L, J::Reconciling).ha(Absent).on(application(Error)), Fail(Failure::NoJobManager)),
        ("14", Facts { ha_wanted: Off, ..facts(L, J::Reconciling) }.on(application(Missing)), Fail(Failure::NoJobManager)),
        ("15", facts(L, J::Reconciling).ha(Absent).on(application(Deploying)), Wait(Waiting::Upgradeable)),
        ("15", facts(L, J::Reconciling).on(SessionCluster), Wait(Waiting::Upgradeable)),
    ]
}

#[test]
fn each_row_of_the_specification_holds() {
    let rows = rows_1_to_6()
        .into_iter()
        .chain(rows_7_to_11())
        .chain(rows_12_to_15());
    for (row, facts, expected) in rows {
        assert_eq!(decide(&facts), expected, "row {row}: {facts:?}");
    }
}

/// The whole function with the default options, young checkpoints and started pods: a line for each mode, change of the
/// version, metadata of high availability and runner; in it, which states of the job lead to which decision.
#[test]
fn the_table_is_complete() {
    let mut table = String::new();
    for requested in [
        UpgradeMode::Stateless,
        UpgradeMode::Savepoint,
        UpgradeMode::LastState,
    ] {
        for version in [VersionChange::Same, VersionChange::Changed] {
            for ha in [HaMetadata::Off, HaMetadata::Absent, HaMetadata::Present] {
                writeln!(table, "{requested:?}, version {version:?}, HA {ha:?}").unwrap();
                for (name, runner) in runners() {
                    let base = Facts {
                        version,
                        ..facts(requested, JobState::Running)
                    };
                    writeln!(table, "  {name}: {}", line(&base.ha(ha).on(runner))).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!("table", table);
}

fn runners() -> Vec<(String, Runner)> {
    let applications = JobManagerStatus::ALL.map(|it| (format!("{it:?}"), application(it)));
    let mut runners = applications.to_vec();
    runners.push(("session job".to_owned(), Runner::SessionCluster));
    runners
}

fn line(base: &Facts) -> String {
    let mut states: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for job in JobState::ALL.into_iter().map(Some).chain([None]) {
        let name = job.map_or("none", JobState::as_str);
        let by_snapshot = laws::SNAPSHOTS.map(|it| {
            (
                it,
                format!("{:?}", decide(&Facts { job, ..*base }.snapshot(it))),
            )
        });
        let first = &by_snapshot[0].1;
        if by_snapshot.iter().all(|(_, decision)| decision == first) {
            states
                .entry(first.clone())
                .or_default()
                .push(name.to_owned());
        } else {
            for (snapshot, decision) in by_snapshot {
                let name = format!("{name}/{snapshot:?}");
                states.entry(decision).or_default().push(name);
            }
        }
    }
    let groups = states.into_iter().map(|(decision, names)| {
        let names = names.join(" ");
        format!("{decision} <- {names}")
    });
    groups.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_messages_are_upstreams() {
    let expected = "Job is in terminal state but last checkpoint is unknown, possibly due to an unrecoverable restore error. \
                    Manual restore required.";
    assert_eq!(Failure::LastSnapshotUnknown.message(), expected);
    let expected = "JobManager deployment is missing and HA metadata is not available to make stateful upgrades. It is \
                    possible that the job has finished or terminally failed, or the configmaps have been deleted.Manual \
                    restore required.";
    assert_eq!(Failure::NoJobManager.message(), expected);
    let waits = [
        Waiting::Cancellation,
        Waiting::Running,
        Waiting::Stoppable,
        Waiting::Checkpoint,
        Waiting::Upgradeable,
    ];
    for waiting in waits {
        assert!(
            waiting.message().starts_with("waiting until"),
            "{waiting:?}"
        );
        let is_cancellation = waiting == Waiting::Cancellation;
        assert_eq!(
            waiting.allows_other_changes(),
            !is_cancellation,
            "{waiting:?}"
        );
    }
}

#[test]
fn a_checkpoint_is_young_until_it_is_as_old_as_the_limit() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let limit = Some(SignedDuration::from_secs(60));
    let now = at(1000);
    for (started, completed, pending, limit, expected) in [
        (0, None, None, None, CheckpointAge::Young),
        (941, None, None, limit, CheckpointAge::Young),
        (940, None, None, limit, CheckpointAge::Old),
        (0, Some(941), None, limit, CheckpointAge::Young),
        (0, Some(940), None, limit, CheckpointAge::Old),
        (0, Some(940), Some(941), limit, CheckpointAge::Pending),
        (0, Some(940), Some(940), limit, CheckpointAge::Old),
        (0, Some(999), Some(940), limit, CheckpointAge::Young),
        (0, None, Some(999), limit, CheckpointAge::Pending),
    ] {
        let times = CheckpointTimes {
            started_at: at(started),
            completed_at: completed.map(at),
            pending_at: pending.map(at),
        };
        assert_eq!(CheckpointAge::of(&times, limit, now), expected, "{times:?}");
    }
}

#[test]
fn the_last_snapshot_is_what_the_status_says() {
    let status = |path: Option<&str>| JobStatus {
        upgrade_savepoint_path: path.map(str::to_owned),
        ..JobStatus::default()
    };
    for (path, is_proven_empty, expected) in [
        (Some("s3://a"), false, LastSnapshot::Path),
        (Some("s3://a"), true, LastSnapshot::Path),
        (
            Some("KUBERNETES_OPERATOR_LAST_STATE"),
            true,
            LastSnapshot::LastState,
        ),
        (None, true, LastSnapshot::ProvenEmpty),
        (None, false, LastSnapshot::Unknown),
    ] {
        assert_eq!(
            LastSnapshot::of(&status(path), is_proven_empty),
            expected,
            "{path:?}"
        );
    }
}
