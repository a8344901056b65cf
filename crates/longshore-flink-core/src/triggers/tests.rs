use super::*;

const SAVEPOINTS: &str = "kubernetes.operator.periodic.savepoint.interval";
const CHECKPOINTS: &str = "kubernetes.operator.periodic.checkpoint.interval";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

struct World {
    status: JobStatus,
    wanted: JobSpec,
    reconciled: JobSpec,
    config: FlinkConfig,
    version: Option<FlinkVersion>,
    last: Timestamp,
    now: Timestamp,
}

/// A running job of Flink 1.20 whose last snapshots were half an hour ago.
fn world(pairs: &[(&str, &str)]) -> World {
    World {
        status: JobStatus {
            state: Some(JobState::Running),
            ..JobStatus::default()
        },
        wanted: JobSpec::default(),
        reconciled: JobSpec::default(),
        config: pairs.iter().copied().collect(),
        version: Some(FlinkVersion::V1_20),
        last: at("2024-05-01T10:00:00Z"),
        now: at("2024-05-01T10:30:00Z"),
    }
}

impl World {
    fn due(&self, kind: SnapshotKind) -> Result<Option<TriggerType>, TriggerError> {
        due(
            kind,
            &Facts {
                status: &self.status,
                wanted: &self.wanted,
                reconciled: &self.reconciled,
                config: &self.config,
                version: self.version,
                last_periodic_at: self.last,
                now: self.now,
            },
        )
    }
}

#[test]
fn a_schedule_is_an_interval_or_a_cron_expression() {
    for (text, is_due) in [
        ("", false),
        ("  ", false),
        ("0", false),
        ("0 s", false),
        ("PT-1M", false),
        ("10m", true),
        ("29 min", true),
        // Not at the instant itself.
        ("30 min", false),
        ("31 min", false),
        ("PT10M", true),
        ("1000", true),
        ("0 */10 * * * ?", true),
        ("0 29 10 * * ?", true),
        ("0 30 10 * * ?", false),
        ("0 0 10 * * ?", false),
        ("0 0 0 1 1 ? 1999", false),
    ] {
        for (key, kind) in [
            (SAVEPOINTS, SnapshotKind::Savepoint),
            (CHECKPOINTS, SnapshotKind::Checkpoint),
        ] {
            let found = world(&[(key, text)]).due(kind);
            assert_eq!(
                found,
                Ok(is_due.then_some(TriggerType::Periodic)),
                "{key}: {text:?}"
            );
        }
        // Each kind has a schedule of its own.
        let found = world(&[(SAVEPOINTS, text)]).due(SnapshotKind::Checkpoint);
        assert_eq!(found, Ok(None), "{text:?}");
    }
}

#[test]
fn a_schedule_that_is_neither_is_an_error() {
    for text in ["-1", "soon", "10 years", "* * * * *"] {
        let error = world(&[(SAVEPOINTS, text)])
            .due(SnapshotKind::Savepoint)
            .unwrap_err();
        let expected = format!(
            "expected an interval such as `10 min`, or a cron expression, found {text:?}; correct `{SAVEPOINTS}` in \
             flinkConfiguration"
        );
        assert_eq!(error.to_string(), expected);
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn another_nonce_than_the_reconciled_one_triggers_at_once() {
    let kind = SnapshotKind::Savepoint;
    for (wanted, reconciled, expected) in [
        (None, None, None),
        (Some(1), None, Some(TriggerType::Manual)),
        (Some(2), Some(1), Some(TriggerType::Manual)),
        (Some(1), Some(1), None),
        (None, Some(1), None),
    ] {
        let mut world = world(&[]);
        world.wanted.savepoint_trigger_nonce = wanted;
        world.reconciled.savepoint_trigger_nonce = reconciled;
        assert_eq!(world.due(kind), Ok(expected), "{wanted:?} {reconciled:?}");
        assert_eq!(world.due(SnapshotKind::Checkpoint), Ok(None));
    }
    // Even where the schedule is broken, and before one that is due.
    for text in ["soon", "10m"] {
        let mut world = world(&[(SAVEPOINTS, text)]);
        world.wanted.savepoint_trigger_nonce = Some(5);
        assert_eq!(world.due(kind), Ok(Some(TriggerType::Manual)));
    }
    let mut world = world(&[]);
    world.wanted.checkpoint_trigger_nonce = Some(5);
    assert_eq!(
        world.due(SnapshotKind::Checkpoint),
        Ok(Some(TriggerType::Manual))
    );
}

#[test]
fn only_a_running_job_without_a_pending_snapshot_is_triggered() {
    for state in JobState::ALL.into_iter().map(Some).chain([None]) {
        let mut world = world(&[(SAVEPOINTS, "10m")]);
        world.status.state = state;
        let expected = (state == Some(JobState::Running)).then_some(TriggerType::Periodic);
        assert_eq!(
            world.due(SnapshotKind::Savepoint),
            Ok(expected),
            "{state:?}"
        );
    }
    for (id, expected) in [("", Some(TriggerType::Periodic)), ("abc", None)] {
        let mut world = world(&[(SAVEPOINTS, "10m"), (CHECKPOINTS, "10m")]);
        world.status.savepoint_info.trigger_id = Some(id.to_owned());
        assert_eq!(world.due(SnapshotKind::Savepoint), Ok(expected), "{id}");
        assert_eq!(
            world.due(SnapshotKind::Checkpoint),
            Ok(Some(TriggerType::Periodic))
        );
        world.status.checkpoint_info.trigger_id = Some(id.to_owned());
        assert_eq!(world.due(SnapshotKind::Checkpoint), Ok(expected), "{id}");
    }
}

#[test]
fn checkpoints_need_flink_1_17() {
    for version in FlinkVersion::ALL.into_iter().map(Some).chain([None]) {
        let mut world = world(&[(CHECKPOINTS, "10m"), (SAVEPOINTS, "10m")]);
        world.version = version;
        let expected = if version >= Some(FlinkVersion::V1_17) {
            Ok(Some(TriggerType::Periodic))
        } else {
            Err(TriggerError::CheckpointsUnsupported(version))
        };
        assert_eq!(world.due(SnapshotKind::Checkpoint), expected);
        assert_eq!(
            world.due(SnapshotKind::Savepoint),
            Ok(Some(TriggerType::Periodic))
        );
        // Nothing is wrong while nothing is due.
        world.now = world.last;
        assert_eq!(world.due(SnapshotKind::Checkpoint), Ok(None));
    }
    let error = TriggerError::CheckpointsUnsupported(Some(FlinkVersion::V1_16)).to_string();
    assert_eq!(
        error,
        "checkpoints can be triggered from Flink 1.17 on, found v1_16; use savepoints"
    );
}

#[test]
fn the_last_periodic_snapshot_is_what_is_known_best() {
    let (one, two, three) = (
        at("2024-01-01T00:00:00Z"),
        at("2024-01-02T00:00:00Z"),
        at("2024-01-03T00:00:00Z"),
    );
    let mut status = JobStatus::default();
    let known = |remembered, newest_resource, created| LastPeriodic {
        remembered,
        newest_resource,
        created,
    };
    let kind = SnapshotKind::Savepoint;
    for (known, expected) in [
        (known(Some(one), Some(two), three), one),
        (known(None, Some(two), three), two),
        (known(None, None, three), three),
    ] {
        assert_eq!(last_periodic(kind, &status, &known), expected, "{known:?}");
    }
    status.savepoint_info.last_periodic_savepoint_timestamp = two.as_millisecond();
    assert_eq!(last_periodic(kind, &status, &known(None, None, one)), two);
    assert_eq!(
        last_periodic(kind, &status, &known(None, None, three)),
        three
    );
    let kind = SnapshotKind::Checkpoint;
    assert_eq!(last_periodic(kind, &status, &known(None, None, one)), one);
    status.checkpoint_info.last_periodic_checkpoint_timestamp = two.as_millisecond();
    assert_eq!(last_periodic(kind, &status, &known(None, None, one)), two);
}

#[test]
fn the_next_instant_can_be_waited_for() {
    let last = at("2024-05-01T10:00:00Z");
    for (text, expected) in [
        ("10m", Some("2024-05-01T10:10:00Z")),
        ("0 15 * * * ?", Some("2024-05-01T10:15:00Z")),
        ("0 0 0 1 1 ? 1999", None),
    ] {
        let config: FlinkConfig = [(SAVEPOINTS, text)].into_iter().collect();
        let schedule = Schedule::of(SnapshotKind::Savepoint, &config)
            .unwrap()
            .unwrap();
        assert_eq!(schedule.next_at(last), expected.map(at), "{text}");
    }
}

#[test]
fn a_manual_snapshot_has_one_name_for_each_nonce_of_each_resource() {
    let savepoint = SnapshotKind::Savepoint;
    let name = |uid, nonce| SnapshotName::Manual { uid, nonce }.of(savepoint, "job");
    assert_eq!(name("1-2", 5), "job-savepoint-manual-1-2-5");
    assert_eq!(name("1-2", 5), name("1-2", 5));
    assert_ne!(name("1-2", 5), name("1-2", 6));
    assert_ne!(name("1-2", 5), name("1-3", 5));
    let now = at("2024-05-01T10:00:00.5Z");
    let periodic = SnapshotName::Periodic(now).of(SnapshotKind::Checkpoint, "job");
    assert_eq!(periodic, "job-checkpoint-periodic-1714557600500");
    let upgrade = SnapshotName::Upgrade(now).of(savepoint, "job");
    assert_eq!(upgrade, "job-savepoint-upgrade-1714557600500");
    let long = format!("{}-{}", "a".repeat(219), "b".repeat(32));
    let cut = SnapshotName::Periodic(now).of(savepoint, &long);
    assert_eq!(cut.len(), 252, "{cut}");
    assert!(cut.starts_with(&long[..215]) && cut.ends_with("-savepoint-periodic-1714557600500"));
}
