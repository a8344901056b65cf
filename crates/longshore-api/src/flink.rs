//! The resources of `flink.apache.org`: kinds, finalizers, labels and annotations, word for word.
//!
//! Other operators and dashboards read these keys, and Flink's own JobManager writes some of them.

/// API group of all kinds of this module.
pub const GROUP: &str = "flink.apache.org";
/// The one served version of [`GROUP`].
pub const VERSION: &str = "v1beta1";
/// Group and version as objects and reconciled specs write them.
pub const API_VERSION: &str = "flink.apache.org/v1beta1";

/// The definition of [`KIND_DEPLOYMENT`]. Where it comes from is in `crds/SOURCE.md`.
pub const FLINK_DEPLOYMENT_CRD: &str =
    include_str!("../crds/flink.apache.org_flinkdeployments.json");
/// The definition of [`KIND_SESSION_JOB`].
pub const FLINK_SESSION_JOB_CRD: &str =
    include_str!("../crds/flink.apache.org_flinksessionjobs.json");
/// The definition of [`KIND_STATE_SNAPSHOT`].
pub const FLINK_STATE_SNAPSHOT_CRD: &str =
    include_str!("../crds/flink.apache.org_flinkstatesnapshots.json");

/// An application cluster (with a job) or a session cluster (without one).
pub const KIND_DEPLOYMENT: &str = "FlinkDeployment";
/// A job on a session cluster.
pub const KIND_SESSION_JOB: &str = "FlinkSessionJob";
/// One savepoint or checkpoint of a job.
pub const KIND_STATE_SNAPSHOT: &str = "FlinkStateSnapshot";
/// Two FlinkDeployments that replace each other.
pub const KIND_BLUE_GREEN_DEPLOYMENT: &str = "FlinkBlueGreenDeployment";

/// Finalizer of a [`KIND_DEPLOYMENT`].
pub const FINALIZER_DEPLOYMENT: &str = "flinkdeployments.flink.apache.org/finalizer";
/// Finalizer of a [`KIND_SESSION_JOB`].
pub const FINALIZER_SESSION_JOB: &str = "flinksessionjobs.flink.apache.org/finalizer";
/// Finalizer of a [`KIND_STATE_SNAPSHOT`].
pub const FINALIZER_STATE_SNAPSHOT: &str = "flinkstatesnapshots.flink.apache.org/finalizer";

/// Label of everything that a cluster consists of: the cluster id, which is the name of the FlinkDeployment.
pub const LABEL_APP: &str = "app";
/// Label: what an object of a cluster is, one of the `COMPONENT_` values.
pub const LABEL_COMPONENT: &str = "component";
/// Label: how a cluster was deployed, one of the `TYPE_` values.
pub const LABEL_TYPE: &str = "type";
/// Value of [`LABEL_COMPONENT`]: the JobManager.
pub const COMPONENT_JOB_MANAGER: &str = "jobmanager";
/// Value of [`LABEL_COMPONENT`]: a TaskManager.
pub const COMPONENT_TASK_MANAGER: &str = "taskmanager";
/// Value of [`LABEL_COMPONENT`]: the Ingress of a cluster.
pub const COMPONENT_INGRESS: &str = "ingress";
/// Value of [`LABEL_COMPONENT`]: the state of the autoscaler.
pub const COMPONENT_AUTOSCALER: &str = "autoscaler";
/// Value of [`LABEL_TYPE`]: Flink requests its TaskManagers from Kubernetes.
pub const TYPE_NATIVE: &str = "flink-native-kubernetes";
/// Value of [`LABEL_TYPE`]: the TaskManagers are a Deployment.
pub const TYPE_STANDALONE: &str = "flink-standalone-kubernetes";

/// Annotation of the JobManager's Deployment and its pod template: the generation of the FlinkDeployment that the
/// attempt deployed. It shows after a crash that a submit arrived.
pub const ANNOTATION_GENERATION: &str = "flinkdeployment.flink.apache.org/generation";
/// Label of a FlinkSessionJob: its `deploymentName`, set by the webhook.
pub const LABEL_TARGET_SESSION: &str = "target.session";
/// Label of a FlinkDeployment or FlinkSessionJob: with the value `true` it is never deployed, and shows that its operator
/// is alive.
pub const LABEL_CANARY: &str = "flink.apache.org/canary";
/// Label of the two FlinkDeployments of a FlinkBlueGreenDeployment: `BLUE` or `GREEN`.
pub const LABEL_BLUE_GREEN_TYPE: &str = "flink/blue-green-deployment-type";

/// Label of a FlinkStateSnapshot: `SAVEPOINT` or `CHECKPOINT`.
pub const LABEL_SNAPSHOT_TYPE: &str = "snapshot.type";
/// Label of a FlinkStateSnapshot: what triggered it, as `PERIODIC`.
pub const LABEL_SNAPSHOT_TRIGGER_TYPE: &str = "snapshot.trigger-type";
/// Label of a FlinkStateSnapshot: the state in its status.
pub const LABEL_SNAPSHOT_STATE: &str = "snapshot.state";
/// Label of a FlinkStateSnapshot: the kind of the resource that runs its job.
pub const LABEL_JOB_REFERENCE_KIND: &str = "job-reference.kind";
/// Label of a FlinkStateSnapshot: the name of the resource that runs its job.
pub const LABEL_JOB_REFERENCE_NAME: &str = "job-reference.name";

/// Annotation of the JobManager's Deployment: which attempt to start the cluster made it. The status of the FlinkDeployment
/// names the attempt that counts; a Deployment of another one is deleted.
pub const ANNOTATION_ATTEMPT: &str = "longshore.dev/flink-attempt";
/// Annotation of a FlinkStateSnapshot that the operator made: what it was made for. Its creation, when it is repeated, knows
/// it again.
pub const ANNOTATION_SNAPSHOT_OCCASION: &str = "longshore.dev/flink-snapshot";

/// Condition of a FlinkDeployment, the only one that upstream has: whether its job, or its session cluster, runs.
pub const CONDITION_RUNNING: &str = "Running";
/// Condition of a FlinkDeployment, while it is true: the wanted spec is not deployed yet, and the message says what it
/// waits for.
pub const CONDITION_UPGRADE_BLOCKED: &str = "UpgradeBlocked";
/// Condition of a FlinkDeployment, while it is true: snapshots are wanted that cannot be triggered.
pub const CONDITION_SNAPSHOTS_UNAVAILABLE: &str = "SnapshotsUnavailable";
/// Condition of a FlinkDeployment, while it is true: the spec asks for something that this operator does not do yet.
pub const CONDITION_UNSUPPORTED: &str = "Unsupported";

/// Reason of the Event of a snapshot that was given up, because its job does not run.
pub const REASON_SNAPSHOT_ABANDONED: &str = "SnapshotAbandoned";
/// Reason of the Event of a checkpoint that failed.
pub const REASON_CHECKPOINT_ERROR: &str = "CheckpointError";
/// Reason of the Event of a job that is over and whose newest checkpoint has no address.
pub const REASON_CHECKPOINT_NOT_FOUND: &str = "CheckpointNotFound";
/// Reason of the Event of a deletion that begins.
pub const REASON_CLEANUP: &str = "Cleanup";
/// Reason of the Event of a deletion that waits for something.
pub const REASON_CLEANUP_FAILED: &str = "CleanupFailed";
/// Reason of the Event of an option that has no effect.
pub const REASON_CONFIGURATION: &str = "Configuration";
/// Reason of the Event of an error without a reason of its own.
pub const REASON_ERROR: &str = "Error";
/// Reason of the Event of an Ingress that is wanted and not managed.
pub const REASON_INGRESS_MANAGEMENT: &str = "IngressManagement";
/// Reason of the Event of a job that has another state.
pub const REASON_JOB_STATUS_CHANGED: &str = "JobStatusChanged";
/// Reason of the Event of a JobManager, or a job, that is gone.
pub const REASON_MISSING: &str = "Missing";
/// Reason of the Event of a JobManager whose Deployment is lost and made again.
pub const REASON_RECOVER_DEPLOYMENT: &str = "RecoverDeployment";
/// Reason of the Event of a job that is not healthy and is started again.
pub const REASON_RESTART_UNHEALTHY_JOB: &str = "RestartUnhealthyJob";
/// Reason of the Event of a job whose state is not where it is expected.
pub const REASON_RESTORE_FAILED: &str = "RestoreFailed";
/// Reason of the Event of a spec that does not run, and gives way to the one before.
pub const REASON_ROLLBACK: &str = "Rollback";
/// Reason of the Event of a savepoint that failed.
pub const REASON_SAVEPOINT_ERROR: &str = "SavepointError";
/// Reason of the Event of a snapshot that could not be triggered.
pub const REASON_SNAPSHOT_ERROR: &str = "SnapshotError";
/// Reason of the Event of a spec that differs from what runs.
pub const REASON_SPEC_CHANGED: &str = "SpecChanged";
/// Reason of the Event of a cluster, or a job, that is about to be started.
pub const REASON_SUBMIT: &str = "Submit";
/// Reason of the Event of a job that is about to stop.
pub const REASON_SUSPENDED: &str = "Suspended";
/// Reason of the Event of a spec that asks for something that this operator does not do yet.
pub const REASON_UNSUPPORTED: &str = "Unsupported";
/// Reason of the Event of a version of Flink that the operator does not know.
pub const REASON_UNSUPPORTED_VERSION: &str = "UnsupportedFlinkVersion";
/// Reason of the Event of a stateful upgrade for which no state to restore is known.
pub const REASON_UPGRADE_FAILED: &str = "UpgradeFailed";
/// Reason of the Event of a spec that is not valid.
pub const REASON_VALIDATION_ERROR: &str = "ValidationError";
