use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    conf::FlinkConfig,
    spec::{
        DesiredState, FlinkConfiguration, FlinkDeploymentSpec, FlinkSessionJobSpec, JobSpec, Spec,
        UpgradeMode,
    },
};

mod transitions;

pub(super) fn application(change: impl FnOnce(&mut JobSpec)) -> FlinkDeploymentSpec {
    let mut job = JobSpec {
        parallelism: 2,
        upgrade_mode: UpgradeMode::LastState,
        ..JobSpec::default()
    };
    change(&mut job);
    FlinkDeploymentSpec {
        job: Some(job),
        image: Some("flink:1.20".to_owned()),
        ..FlinkDeploymentSpec::default()
    }
}

pub(super) fn text<S: Spec>(spec: &S, first_deployment: bool) -> String {
    let metadata = ReconciliationMetadata {
        first_deployment,
        ..ReconciliationMetadata::default()
    };
    ReconciledSpec {
        spec: spec.clone(),
        metadata: Some(metadata),
    }
    .to_text()
}

pub(super) fn reconciled(spec: &FlinkDeploymentSpec, state: ReconciliationState) -> CommonStatus {
    CommonStatus {
        reconciliation_status: ReconciliationStatus {
            last_reconciled_spec: Some(text(spec, false)),
            state,
            ..ReconciliationStatus::default()
        },
        ..CommonStatus::default()
    }
}

#[test]
fn every_field_of_the_statuses_is_known_and_survives() {
    fn one<T>(text: &str)
    where
        T: Serialize + serde::de::DeserializeOwned + Default + std::fmt::Debug,
    {
        let object: Value = serde_json::from_str(text).unwrap();
        let status: T = read_status("FlinkDeployment", Some(&object["status"])).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), object["status"]);
        let rest = format!("{status:?}").replace("other: {}", "");
        assert!(!rest.contains("other: {"), "{rest}");
        // Nor does a field get lost that a later version has.
        let mut later = object["status"].clone();
        later["newer"] = json!({"b": 1, "a": [null]});
        let status: T = read_status("FlinkDeployment", Some(&later)).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), later);
        assert!(serde_json::to_value(T::default()).unwrap().is_object());
    }
    one::<FlinkDeploymentStatus>(include_str!("../../testdata/full/flinkdeployments.json"));
    one::<FlinkSessionJobStatus>(include_str!("../../testdata/full/flinksessionjobs.json"));
    one::<FlinkStateSnapshotStatus>(include_str!("../../testdata/full/flinkstatesnapshots.json"));
    let blue_green = include_str!("../../testdata/full/flinkbluegreendeployments.json");
    one::<FlinkBlueGreenDeploymentStatus>(blue_green);
}

#[test]
fn a_new_object_has_upstreams_initial_status() {
    let status: FlinkDeploymentStatus = read_status("FlinkDeployment", None).unwrap();
    assert_eq!(
        status.job_manager_deployment_status,
        JobManagerStatus::Missing
    );
    assert_eq!(
        status.common.reconciliation_status.state,
        ReconciliationState::Upgrading
    );
    assert!(status.common.is_before_first_deployment());
    assert!(!status.common.is_stable());
    let null: FlinkDeploymentStatus = read_status("FlinkDeployment", Some(&Value::Null)).unwrap();
    assert_eq!(null, status);
}

#[test]
fn a_status_of_another_form_is_an_error_that_names_its_kind() {
    for broken in [
        json!({"jobStatus": {"state": "JUMPING"}}),
        json!({"jobManagerDeploymentStatus": "ready"}),
        json!({"reconciliationStatus": {"state": "STABLE"}}),
        json!({"jobStatus": []}),
        json!("text"),
    ] {
        let read = read_status::<FlinkDeploymentStatus>("FlinkDeployment", Some(&broken));
        let error = read.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("this FlinkDeployment cannot be read"),
            "{error}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn statuses_of_older_operators_are_read() {
    let old = json!({
        "clusterInfo": null,
        "error": "",
        "jobManagerDeploymentStatus": "READY",
        "jobStatus": {
            "jobId": "ffffffffffffffffffffffffffffffff",
            "savepointInfo": {"savepointHistory": null, "lastSavepoint": {"location": "s3://a", "timeStamp": 5}},
            "startTime": "1700000000000",
            "state": "RUNNING",
        },
        "reconciliationStatus": {
            "lastReconciledSpec": include_str!("../../testdata/specs/before-1.2.json"),
            "reconciliationTimestamp": 7,
            "state": "DEPLOYED",
            "success": true,
        },
    });
    let status: FlinkDeploymentStatus = read_status("FlinkDeployment", Some(&old)).unwrap();
    let job = &status.common.job_status;
    assert_eq!(job.last_savepoint(), Some("s3://a"));
    assert_eq!(job.started_at_ms(), Some(1_700_000_000_000));
    let savepoint = job.savepoint_info.last_savepoint.as_ref().unwrap();
    assert_eq!(savepoint.trigger_type, TriggerType::Unknown);
    let last = status
        .common
        .reconciled::<FlinkDeploymentSpec>()
        .unwrap()
        .unwrap();
    assert_eq!(last.metadata, None);
    assert_eq!(
        last.spec.flink_version,
        Some(crate::spec::FlinkVersion::V1_15)
    );
    let written = serde_json::to_value(&status).unwrap();
    assert_eq!(written["reconciliationStatus"]["success"], true);
}

#[test]
fn an_old_reconciled_spec_is_written_in_the_new_form_and_stays_then() {
    let old = include_str!("../../testdata/specs/before-1.2.json");
    let read = ReconciledSpec::<FlinkDeploymentSpec>::read("lastReconciledSpec", old).unwrap();
    assert!(read.spec.other.is_empty(), "{:?}", read.spec.other);
    let new = read.to_text();
    let expected = concat!(
        r#"{"spec":{"job":{"jarURI":"local:///opt/flink/examples/streaming/StateMachineExample.jar","parallelism":2,"#,
        r#""entryClass":null,"args":[],"state":"running","savepointTriggerNonce":null,"initialSavepointPath":null,"#,
        r#""checkpointTriggerNonce":null,"upgradeMode":"stateless","allowNonRestoredState":null,"#,
        r#""savepointRedeployNonce":null,"autoscalerResetNonce":null},"restartNonce":null,"#,
        r#""flinkConfiguration":{"taskmanager.numberOfTaskSlots":"2"},"image":"flink:1.15","imagePullPolicy":null,"#,
        r#""serviceAccount":"flink","flinkVersion":"v1_15","ingress":null,"podTemplate":null,"#,
        r#""jobManager":{"resource":{"cpu":1.0,"memory":"2048m","ephemeralStorage":null},"resources":null,"#,
        r#""replicas":1,"podTemplate":null},"taskManager":{"resource":{"cpu":1.0,"memory":"2048m","#,
        r#""ephemeralStorage":null},"resources":null,"replicas":null,"podTemplate":null},"logConfiguration":null,"#,
        r#""mode":null},"resource_metadata":{"apiVersion":"flink.apache.org/v1beta1","firstDeployment":false}}"#,
    );
    assert_eq!(new, expected);
    let again = ReconciledSpec::<FlinkDeploymentSpec>::read("lastReconciledSpec", &new).unwrap();
    assert_eq!(again.to_text(), new);
}

#[test]
fn a_reconciled_spec_of_another_operator_keeps_its_text() {
    for text in [
        // Keys that are not sorted, a configuration that is null, and fields of a later version.
        r#"{"spec":{"job":null,"restartNonce":5,"flinkConfiguration":{"z":"1","a":{"y":2,"b":1.0E10}},"image":null,"imagePullPolicy":null,"serviceAccount":null,"flinkVersion":null,"ingress":null,"podTemplate":{"spec":{"containers":[{"name":"c","image":"i"}]},"metadata":null},"jobManager":null,"taskManager":null,"logConfiguration":null,"mode":"standalone","newer":{"z":1,"a":"\u001B"}},"resource_metadata":{"apiVersion":"flink.apache.org/v1beta1","firstDeployment":true,"newer":1}}"#,
        r#"{"spec":{"job":null,"restartNonce":null,"flinkConfiguration":null,"image":null,"imagePullPolicy":null,"serviceAccount":null,"flinkVersion":null,"ingress":null,"podTemplate":null,"jobManager":null,"taskManager":null,"logConfiguration":null,"mode":null},"resource_metadata":{"apiVersion":"flink.apache.org/v1beta1","firstDeployment":false}}"#,
    ] {
        let read = ReconciledSpec::<FlinkDeploymentSpec>::read("lastStableSpec", text).unwrap();
        assert_eq!(read.to_text(), text);
    }
    // Metadata of the object were once kept there, and are dropped.
    let old = r#"{"spec":{"deploymentName":"s"},"resource_metadata":{"apiVersion":"x","metadata":{"generation":5},"firstDeployment":true}}"#;
    let read = ReconciledSpec::<FlinkSessionJobSpec>::read("lastReconciledSpec", old).unwrap();
    assert!(read.is_first_deployment());
    let expected = r#"{"spec":{"job":null,"restartNonce":null,"flinkConfiguration":{},"deploymentName":"s"},"resource_metadata":{"apiVersion":"x","firstDeployment":true}}"#;
    assert_eq!(read.to_text(), expected);
}

#[test]
fn a_text_that_is_no_spec_is_an_error() {
    for broken in [
        "",
        "[]",
        "{",
        r#"{"spec":null,"resource_metadata":{}}"#,
        r#"{"spec":{},"resource_metadata":5}"#,
        r#"{"spec":{"job":{"state":"paused"}},"resource_metadata":{}}"#,
        r#"{"job":{"upgradeMode":"none"}}"#,
    ] {
        let read = ReconciledSpec::<FlinkDeploymentSpec>::read("lastReconciledSpec", broken);
        let error = read.unwrap_err().to_string();
        let expected = "status.reconciliationStatus.lastReconciledSpec cannot be read: expected the JSON of a \
                        FlinkDeploymentSpec; without it nothing says what runs. Restore the field, or run the operator that \
                        wrote it";
        assert_eq!(error, expected, "{broken}");
    }
}

/// A status from words: what is reconciled, how far it is, the job, the JobManager, and the error.
fn status_of(
    wanted: DesiredState,
    state: ReconciliationState,
    job: Option<JobState>,
    job_manager_deployment_status: JobManagerStatus,
    error: &str,
) -> FlinkDeploymentStatus {
    let mut common = reconciled(&application(|job| job.state = wanted), state);
    common.job_status.state = job;
    common.error = (!error.is_empty()).then(|| error.to_owned());
    FlinkDeploymentStatus {
        common,
        job_manager_deployment_status,
        ..FlinkDeploymentStatus::default()
    }
}

#[test]
fn the_lifecycle_state_is_the_first_that_fits() {
    use DesiredState::{Running, Suspended};
    use JobManagerStatus::{Error, Missing, Ready};
    use LifecycleState as L;
    use ReconciliationState::{Deployed, RolledBack, RollingBack, Upgrading};
    let manual = "x Manual restore required. y";
    let failed = Some(JobState::Failed);
    for (wanted, state, job, job_manager, error, expected) in [
        (Running, Upgrading, failed, Missing, "", L::Upgrading),
        (Suspended, RollingBack, failed, Error, "", L::RollingBack),
        (Suspended, Deployed, failed, Error, "", L::Suspended),
        (Suspended, RolledBack, None, Missing, "", L::Suspended),
        (Running, Deployed, failed, Ready, "", L::Failed),
        (Running, RolledBack, failed, Ready, "", L::Failed),
        (Running, Deployed, None, Missing, manual, L::Failed),
        (Running, RolledBack, None, Error, manual, L::Failed),
        (Running, Deployed, None, Ready, manual, L::Deployed),
        (Running, Deployed, None, Missing, "x", L::Deployed),
        (Running, RolledBack, None, Ready, "", L::RolledBack),
    ] {
        let status = status_of(wanted, state, job, job_manager, error);
        assert_eq!(status.lifecycle_state().unwrap(), expected, "{status:?}");
    }
    for (state, expected) in [(RolledBack, L::RolledBack), (Deployed, L::Stable)] {
        let mut status = status_of(Running, state, None, Ready, "");
        status.common = status.common.marked_stable();
        assert_eq!(status.lifecycle_state().unwrap(), expected);
    }
}

#[test]
fn the_lifecycle_state_of_a_new_or_deleted_resource_needs_no_spec() {
    use LifecycleState as L;
    for (error, stored, expected) in [
        (None, None, L::Created),
        (Some(""), None, L::Created),
        (Some("x"), None, L::Failed),
        (None, Some(L::Deleting), L::Deleting),
        (None, Some(L::Deleted), L::Deleted),
        (None, Some(L::Stable), L::Created),
    ] {
        let mut status = FlinkDeploymentStatus::default();
        status.common.error = error.map(str::to_owned);
        status.common.lifecycle_state = stored;
        assert_eq!(status.lifecycle_state().unwrap(), expected, "{status:?}");
    }
}

#[test]
fn only_a_deployment_fails_because_its_cluster_is_gone() {
    for message in [
        MESSAGE_JOB_FINISHED_OR_DELETED,
        MESSAGE_HA_METADATA_NOT_AVAILABLE,
    ] {
        let (wanted, state) = (DesiredState::Running, ReconciliationState::Deployed);
        let missing = status_of(wanted, state, None, JobManagerStatus::Missing, message);
        assert_eq!(
            missing.lifecycle_state().unwrap(),
            LifecycleState::Failed,
            "{message}"
        );
        let job = FlinkSessionJobStatus {
            common: missing.common,
            ..FlinkSessionJobStatus::default()
        };
        assert_eq!(
            job.lifecycle_state().unwrap(),
            LifecycleState::Deployed,
            "{message}"
        );
    }
}

#[test]
fn the_condition_says_whether_the_job_or_the_session_cluster_runs() {
    let first: Timestamp = "2025-10-30T07:35:35.189752790Z".parse().unwrap();
    let later: Timestamp = "2025-10-30T08:00:00Z".parse().unwrap();
    let mut status = FlinkDeploymentStatus::default();
    assert_eq!(running_condition(&status, first).unwrap(), None);
    let check = |status: &mut FlinkDeploymentStatus, now, expected: [&str; 4]| {
        let it = running_condition(status, now).unwrap().unwrap();
        let time = it.last_transition_time.as_deref().unwrap();
        assert_eq!(
            [it.status.as_str(), &it.reason, &it.message, time],
            expected
        );
        assert_eq!(it.r#type, "Running");
        status.conditions = vec![it];
    };
    let (one, two) = ("2025-10-30T07:35:35Z", "2025-10-30T08:00:00Z");
    status.common = reconciled(&application(|_| {}), ReconciliationState::Deployed);
    check(
        &mut status,
        first,
        ["False", "Reconciling", "Job status RECONCILING", one],
    );
    status.common.job_status.state = Some(JobState::Failed);
    check(
        &mut status,
        later,
        ["False", "Failed", "Job status FAILED", one],
    );
    status.common.job_status.state = Some(JobState::Running);
    check(
        &mut status,
        later,
        ["True", "Running", "Job status RUNNING", two],
    );
    check(
        &mut status,
        first,
        ["True", "Running", "Job status RUNNING", two],
    );
    status.common = reconciled(
        &FlinkDeploymentSpec::default(),
        ReconciliationState::Deployed,
    );
    status.conditions.clear();
    for (job_manager, status_text) in JobManagerStatus::ALL.map(|it| {
        (
            it,
            if it == JobManagerStatus::Ready {
                "True"
            } else {
                "False"
            },
        )
    }) {
        status.conditions.clear();
        status.job_manager_deployment_status = job_manager;
        let expected = [
            status_text,
            job_manager.reason(),
            job_manager.message(),
            two,
        ];
        check(&mut status, later, expected);
    }
}

#[test]
fn errors_are_reported_as_upstream_reports_them() {
    let labels = LabelMapper::new([("not found|gone", "missing"), ("^dis.*", "disk")]).unwrap();
    let mut error = Cause::new(ErrorType::DeploymentFailed, "it is gone: äöü");
    error.reason = Some("CrashLoopBackOff".to_owned());
    error.stack_trace = Some("at a.b".to_owned());
    let cause = |message: &str| Cause {
        class: "java.io.IOException".to_owned(),
        message: Some(message.to_owned()),
        http_response_code: Some(404),
        ..Cause::default()
    };
    let causes = [cause("disk full"), cause("x"), cause("not found")];
    let limits = ErrorLimits {
        field: 12,
        ..ErrorLimits::default()
    };
    let expected = concat!(
        r#"{"type":"org.apache.f","message":"it is gone: ","additionalMetadata":{"reason":"CrashLoopBac","#,
        r#""labels":["missing","disk"]},"throwableList":[{"type":"java.io.IOEx","message":"disk full","#,
        r#""additionalMetadata":{"httpResponseCode":404,"labels":["missing","disk"]}},{"type":"java.io.IOEx","#,
        r#""message":"x","additionalMetadata":{"httpResponseCode":404,"labels":["missing"]}}]}"#,
    );
    assert_eq!(error_report(&error, &causes, limits, &labels), expected);
    let plain = Cause::new(ErrorType::Validation, "😀😀");
    let limits = ErrorLimits {
        field: 3,
        stack_trace: Some(2),
        n_causes: 0,
    };
    let expected = r#"{"type":"org","message":"😀","additionalMetadata":{},"throwableList":[]}"#;
    assert_eq!(
        error_report(&plain, &causes, limits, &LabelMapper::default()),
        expected
    );
    let limits = ErrorLimits {
        stack_trace: Some(2),
        ..ErrorLimits::default()
    };
    let report = error_report(&error, &[], limits, &LabelMapper::default());
    assert!(report.contains(r#""stackTrace":"at","#), "{report}");
    let invalid = LabelMapper::new([("(", "x")]).unwrap_err().to_string();
    let expected =
        "kubernetes.operator.exception.label.mapper: expected a regular expression, found \"(\"";
    assert_eq!(invalid, expected);
}

#[test]
fn the_operators_configuration_limits_errors_and_labels_them() {
    let config = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<FlinkConfig>();
    assert_eq!(
        ErrorLimits::of(&config(&[])).unwrap(),
        ErrorLimits::default()
    );
    let key = |name: &str| format!("kubernetes.operator.exception.{name}");
    let mut all = FlinkConfig::new();
    for (name, value) in [
        ("stacktrace.enabled", "true"),
        ("stacktrace.max.length", "5"),
        ("field.max.length", "-1"),
        ("throwable.list.max.count", "7"),
        ("label.mapper", "Job has already:duplicated,gone$:missing"),
    ] {
        all.set_text(key(name), value);
    }
    let expected = ErrorLimits {
        field: 0,
        stack_trace: Some(5),
        n_causes: 7,
    };
    assert_eq!(ErrorLimits::of(&all).unwrap(), expected);
    let labels = LabelMapper::of(&all).unwrap();
    let error = Cause::new(ErrorType::Reconciliation, "it is gone");
    let report = error_report(&error, &[], ErrorLimits::default(), &labels);
    assert!(report.contains(r#""labels":["missing"]"#), "{report}");
    for broken in ["(:x", "a"] {
        let config = config(&[(key("label.mapper").as_str(), broken)]);
        assert!(LabelMapper::of(&config).is_err(), "{broken}");
    }
    assert!(ErrorLimits::of(&config(&[(key("field.max.length").as_str(), "x")])).is_err());
}

#[test]
fn the_subresource_scale_selects_the_task_managers_of_a_running_job() {
    for (parallelism, slots, expected) in [
        (1, 1, 1),
        (5, 2, 3),
        (4, 2, 2),
        (0, 4, 0),
        (3, 0, 3),
        (i32::MAX, 1, i32::MAX),
    ] {
        assert_eq!(
            n_task_managers(parallelism, slots),
            expected,
            "{parallelism} {slots}"
        );
    }
    let info = TaskManagerInfo::of("a", DesiredState::Running, 3);
    assert_eq!(info.label_selector, "component=taskmanager,app=a");
    assert_eq!(info.replicas, 3);
    let suspended = TaskManagerInfo::of("a", DesiredState::Suspended, 3);
    assert_eq!(suspended, TaskManagerInfo::default());
}

#[test]
fn a_job_is_cancellable_where_its_state_is_known_and_not_final() {
    let cancellable: Vec<&str> = JobState::ALL
        .into_iter()
        .filter(|it| it.is_cancellable())
        .map(JobState::as_str)
        .collect();
    let expected = [
        "CREATED",
        "INITIALIZING",
        "RUNNING",
        "FAILING",
        "CANCELLING",
        "RESTARTING",
        "SUSPENDED",
    ];
    assert_eq!(cancellable, expected);
    let mut status = FlinkDeploymentStatus::default();
    assert!(!status.is_job_cancellable());
    status.common.job_status.state = Some(JobState::Running);
    assert!(!status.is_job_cancellable());
    status.job_manager_deployment_status = JobManagerStatus::Ready;
    assert!(status.is_job_cancellable());
    for state in JobState::ALL {
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
}

#[test]
fn the_configuration_of_a_session_job_is_in_its_text() {
    let spec = FlinkSessionJobSpec {
        flink_configuration: Some(FlinkConfiguration::from_iter([("b", "2"), ("a", "1")])),
        ..FlinkSessionJobSpec::default()
    };
    assert!(text(&spec, true).contains(r#""flinkConfiguration":{"b":"2","a":"1"}"#));
}
