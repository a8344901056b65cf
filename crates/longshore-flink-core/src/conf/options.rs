//! The options of Flink that the operator reads or sets, with Flink's defaults (1.20; spec 12.2, 13).

use std::collections::BTreeMap;

use super::{Defaulted, FlinkConfig, InvalidOption, Key};

type Map = BTreeMap<String, String>;
type Maps = Vec<BTreeMap<String, String>>;
type List = Vec<String>;

/// Version of Flink, as the spec names it.
pub const FLINK_VERSION: Key<String> = Key::new("$internal.flink.version");
/// Main class of the job.
pub const MAIN_CLASS: Key<String> = Key::new("$internal.application.main");
/// Arguments of the job.
pub const PROGRAM_ARGS: Key<List> = Key::new("$internal.application.program-args");
/// Id of the job: 32 hexadecimal digits.
pub const JOB_ID: Key<String> = Key::new("$internal.pipeline.job-id");
/// Directory of the configuration on the machine of the client.
pub const CONFIG_DIR: Key<String> = Key::new("$internal.deployment.config-dir");

/// Jars of the job.
pub const JARS: Key<List> = Key::new("pipeline.jars");
/// Class path of the job, in standalone mode.
pub const CLASSPATHS: Key<List> = Key::new("pipeline.classpaths");
/// Name of the job.
pub const JOB_NAME: Key<String> = Key::new("pipeline.name");
/// Parallelism of single vertices.
pub const PARALLELISM_OVERRIDES: Key<Map> = Key::new("pipeline.jobvertex-parallelism-overrides");
/// Parallelism of the job.
pub const PARALLELISM: Defaulted<i32> = Key::new("parallelism.default").or("1");
/// Slots of a TaskManager.
pub const SLOTS: Defaulted<i32> = Key::new("taskmanager.numberOfTaskSlots").or("1");

/// How the client deploys.
pub const TARGET: Key<String> = Key::new("execution.target");
/// Whether the JobManager ends with the job.
pub const SHUTDOWN_ON_FINISH: Key<bool> = Key::new("execution.shutdown-on-application-finish");
/// Whether a job whose `main` fails is shown as a failed job.
pub const SUBMIT_FAILED_JOB: Key<bool> =
    Key::new("execution.submit-failed-job-on-application-error");
/// Whether state that no operator of the job claims is ignored.
pub const IGNORE_UNCLAIMED_STATE: Key<bool> = Key::with_older(
    "execution.savepoint.ignore-unclaimed-state",
    &["execution.state-recovery.ignore-unclaimed-state"],
);
/// Savepoint that the job starts from.
pub const SAVEPOINT_PATH: Key<String> = Key::with_older(
    "execution.savepoint.path",
    &["execution.state-recovery.path"],
);
/// Time between checkpoints.
pub const CHECKPOINT_INTERVAL: Key<jiff::SignedDuration> =
    Key::new("execution.checkpointing.interval");
/// Whether checkpoints outlive their job.
pub const CHECKPOINT_RETENTION: Key<String> =
    Key::new("execution.checkpointing.externalized-checkpoint-retention");
/// Where checkpoints are.
pub const CHECKPOINT_DIR: Key<String> =
    Key::with_older("execution.checkpointing.dir", &["state.checkpoints.dir"]);
/// Where savepoints are.
pub const SAVEPOINT_DIR: Key<String> = Key::with_older(
    "execution.checkpointing.savepoint-dir",
    &["state.savepoints.dir", "savepoints.state.backend.fs.dir"],
);

/// Whether the web page can cancel jobs.
pub const WEB_CANCEL: Key<bool> = Key::new("web.cancel.enable");

/// Services of high availability: `NONE`, `kubernetes`, `zookeeper` or a class.
pub const HA_TYPE: Defaulted<String> =
    Key::with_older("high-availability.type", &["high-availability"]).or("NONE");
/// Name of the cluster in its high-availability data.
pub const HA_CLUSTER_ID: Key<String> = Key::new("high-availability.cluster-id");
/// Where high-availability data are.
pub const HA_STORAGE_DIR: Key<String> = Key::new("high-availability.storageDir");
/// Port or ports of the JobManager under high availability.
pub const HA_JOB_MANAGER_PORT: Defaulted<String> =
    Key::new("high-availability.jobmanager.port").or("0");

/// Port of the REST Service.
pub const REST_PORT: Defaulted<i32> = Key::with_older("rest.port", &["web.port"]).or("8081");
/// Port or ports of the REST server.
pub const REST_BIND_PORT: Defaulted<String> =
    Key::with_older("rest.bind-port", &["rest.port", "web.port"]).or("8081");
/// Address of the JobManager.
pub const JOB_MANAGER_ADDRESS: Key<String> = Key::new("jobmanager.rpc.address");
/// RPC port of the JobManager.
pub const JOB_MANAGER_PORT: Defaulted<i32> = Key::new("jobmanager.rpc.port").or("6123");
/// Port or ports of the blob server.
pub const BLOB_PORT: Defaulted<String> = Key::new("blob.server.port").or("0");
/// RPC port or ports of the TaskManagers.
pub const TASK_MANAGER_PORT: Defaulted<String> = Key::new("taskmanager.rpc.port").or("0");

/// Options that mean the machine of the client, and are left out of the file in the pods (spec 13.3).
pub const CLIENT_ONLY: [&str; 9] = [
    "$internal.deployment.config-dir",
    "jobmanager.bind-host",
    "jobmanager.web.address",
    "kubernetes.config.file",
    "rest.bind-address",
    "taskmanager.bind-host",
    "taskmanager.host",
    "taskmanager.hostname",
    "web.address",
];

/// Namespace of the cluster.
pub const NAMESPACE: Key<String> = Key::new("kubernetes.namespace");
/// Name of the cluster.
pub const CLUSTER_ID: Key<String> = Key::new("kubernetes.cluster-id");
/// Image of all containers of Flink.
pub const IMAGE: Key<String> = Key::with_older(
    "kubernetes.container.image.ref",
    &["kubernetes.container.image"],
);
/// When the image is pulled.
pub const IMAGE_PULL_POLICY: Defaulted<String> =
    Key::new("kubernetes.container.image.pull-policy").or("IfNotPresent");
/// Secrets for the registry.
pub const IMAGE_PULL_SECRETS: Defaulted<List> =
    Key::new("kubernetes.container.image.pull-secrets").or("");
/// Service account of JobManager and TaskManagers.
pub const SERVICE_ACCOUNT: Key<String> = Key::new("kubernetes.service-account");
/// Service account of the JobManager.
pub const JOB_MANAGER_SERVICE_ACCOUNT: Defaulted<String> = Key::with_older(
    "kubernetes.jobmanager.service-account",
    &["kubernetes.service-account"],
)
.or("default");
/// Kind of the REST Service.
pub const REST_EXPOSED_TYPE: Defaulted<String> =
    Key::new("kubernetes.rest-service.exposed.type").or("ClusterIP");
/// Annotations of the REST Service.
pub const REST_SERVICE_ANNOTATIONS: Key<Map> = Key::new("kubernetes.rest-service.annotations");
/// Annotations of the Service that TaskManagers find the JobManager by.
pub const INTERNAL_SERVICE_ANNOTATIONS: Key<Map> =
    Key::new("kubernetes.internal-service.annotations");
/// Whether pods use the network of their node.
pub const HOST_NETWORK: Defaulted<bool> = Key::new("kubernetes.hostnetwork.enabled").or("false");
/// Secrets that are mounted: name and path.
pub const SECRETS: Key<Map> = Key::new("kubernetes.secrets");
/// Environment variables out of Secrets: `env`, `secret`, `key`.
pub const SECRET_ENV: Defaulted<Maps> = Key::new("kubernetes.env.secretKeyRef").or("");
/// Entry point of the image.
pub const ENTRY_PATH: Defaulted<String> =
    Key::new("kubernetes.entry.path").or("/docker-entrypoint.sh");
/// Directory of the configuration in pods.
pub const CONF_DIR: Defaulted<String> = Key::new("kubernetes.flink.conf.dir").or("/opt/flink/conf");
/// Directory of logs in pods.
pub const LOG_DIR: Key<String> = Key::new("kubernetes.flink.log.dir");
/// Directory of fetched artifacts in pods.
pub const ARTIFACTS_DIR: Defaulted<String> =
    Key::new("user.artifacts.base-dir").or("/opt/flink/artifacts");

/// Labels of the JobManager.
pub const JOB_MANAGER_LABELS: Key<Map> = Key::new("kubernetes.jobmanager.labels");
/// Annotations of the JobManager.
pub const JOB_MANAGER_ANNOTATIONS: Key<Map> = Key::new("kubernetes.jobmanager.annotations");
/// Node selector of the JobManager.
pub const JOB_MANAGER_NODE_SELECTOR: Key<Map> = Key::new("kubernetes.jobmanager.node-selector");
/// Tolerations of the JobManager.
pub const JOB_MANAGER_TOLERATIONS: Defaulted<Maps> =
    Key::new("kubernetes.jobmanager.tolerations").or("");
/// Owners of the JobManager's Deployment.
pub const JOB_MANAGER_OWNERS: Defaulted<Maps> =
    Key::new("kubernetes.jobmanager.owner.reference").or("");
/// How many JobManagers.
pub const JOB_MANAGER_REPLICAS: Defaulted<i32> = Key::new("kubernetes.jobmanager.replicas").or("1");
/// More arguments of the JobManager's script.
pub const JOB_MANAGER_ARGS: Defaulted<String> =
    Key::new("kubernetes.jobmanager.entrypoint.args").or("");
/// Cores of the JobManager.
pub const JOB_MANAGER_CPU: Defaulted<f64> = Key::with_older(
    "kubernetes.jobmanager.cpu.amount",
    &["kubernetes.jobmanager.cpu"],
)
.or("1.0");
/// Limit of the JobManager's cores, as a multiple of the request.
pub const JOB_MANAGER_CPU_LIMIT: Defaulted<f64> =
    Key::new("kubernetes.jobmanager.cpu.limit-factor").or("1.0");
/// Limit of the JobManager's memory, as a multiple of the request.
pub const JOB_MANAGER_MEMORY_LIMIT: Defaulted<f64> =
    Key::new("kubernetes.jobmanager.memory.limit-factor").or("1.0");
/// Class that the JobManager's pod runs.
pub const ENTRY_POINT_CLASS: Key<String> =
    Key::new("kubernetes.internal.jobmanager.entrypoint.class");
/// Whether the JobManager ends with its client.
pub const EXECUTION_MODE: Key<String> = Key::new("internal.cluster.execution-mode");
/// Prefix of environment variables of the JobManager.
pub const JOB_MANAGER_ENV_PREFIX: &str = "containerized.master.env.";

/// Cores of a TaskManager; −1: one for each slot.
pub const TASK_MANAGER_CPU: Defaulted<f64> = Key::with_older(
    "kubernetes.taskmanager.cpu.amount",
    &["kubernetes.taskmanager.cpu"],
)
.or("-1.0");
/// Limit of a TaskManager's cores, as a multiple of the request.
pub const TASK_MANAGER_CPU_LIMIT: Defaulted<f64> =
    Key::new("kubernetes.taskmanager.cpu.limit-factor").or("1.0");
/// Limit of a TaskManager's memory, as a multiple of the request.
pub const TASK_MANAGER_MEMORY_LIMIT: Defaulted<f64> =
    Key::new("kubernetes.taskmanager.memory.limit-factor").or("1.0");
/// How many TaskManagers, in standalone mode.
pub const TASK_MANAGER_REPLICAS: Key<i32> = Key::new("kubernetes.internal.taskmanager.replicas");
/// `SESSION` or `APPLICATION`, in standalone mode.
pub const CLUSTER_MODE: Key<String> = Key::new("kubernetes.internal.cluster-mode");

/// Whether the Hadoop configuration of the client is mounted.
pub const HADOOP_MOUNT: Defaulted<bool> =
    Key::new("kubernetes.decorator.hadoop-conf-mount.enabled").or("true");
/// Whether the Kerberos configuration of the client is mounted.
pub const KERBEROS_MOUNT: Defaulted<bool> =
    Key::new("kubernetes.decorator.kerberos-mount.enabled").or("true");

/// Whether another JobManager may take over from a lost one (upstream: `isHighAvailabilityModeActivated`).
///
/// # Errors
/// Never: every text is a value of this option.
pub fn is_highly_available(config: &FlinkConfig) -> Result<bool, InvalidOption> {
    let services = config.get(&HA_TYPE)?;
    Ok(!services.eq_ignore_ascii_case("none"))
}
