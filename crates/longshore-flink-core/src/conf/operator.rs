//! The options of the operator itself (spec 12.4; upstream: `KubernetesOperatorConfigOptions`).
//!
//! Each is a constant with its type, and a row of [`ALL`] for people and for checks.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::{Defaulted, FlinkConfig, FromConf, InvalidOption, InvalidValue, Key};

/// Prefix of every key of the operator.
pub const PREFIX: &str = "kubernetes.operator.";
/// Prefix of the keys of the autoscaler.
pub const AUTOSCALER_PREFIX: &str = "job.autoscaler.";

/// Prefix of what the operator's file says for single namespaces and versions.
pub const DEFAULTS_PREFIX: &str = "kubernetes.operator.default-configuration.";

/// Keys below these prefixes are not in the table: they have names of users in them, or belong to other parts.
const OPEN_PREFIXES: [&str; 5] = [
    DEFAULTS_PREFIX,
    "kubernetes.operator.bluegreen.",
    "kubernetes.operator.job.autoscaler.",
    "kubernetes.operator.metrics.",
    "kubernetes.operator.plugins.listeners.",
];

/// Who may set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// The operator's own configuration, for the whole operator.
    Operator,
    /// Also `flinkConfiguration`, for one resource.
    Resource,
}

/// An option, for people and for checks.
#[derive(Clone, Copy, Debug)]
pub struct OperatorOption {
    /// The key.
    pub name: &'static str,
    /// Deprecated keys.
    pub older: &'static [&'static str],
    /// Name of the type of its values.
    pub kind: &'static str,
    /// Its value where nothing is configured.
    pub default: Option<&'static str>,
    /// Who may set it.
    pub setter: Setter,
    /// What it does.
    pub what: &'static str,
    check: fn(&FlinkConfig) -> Result<(), InvalidOption>,
}

impl OperatorOption {
    /// Whether a configuration has no value of another type for this option.
    ///
    /// # Errors
    /// [`InvalidOption`] for a value of another type.
    pub fn check(&self, config: &FlinkConfig) -> Result<(), InvalidOption> {
        (self.check)(config)
    }
}

/// Format of savepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavepointFormatType {
    /// The same for all state backends.
    Canonical,
    /// That of the state backend.
    Native,
}

/// Kind of manual and periodic checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointType {
    /// As the job is configured.
    Configured,
    /// Everything.
    Full,
    /// What has changed.
    Incremental,
}

/// How Deployments are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPropagation {
    /// After everything that they own.
    Foreground,
    /// Before everything that they own.
    Background,
    /// Without what they own.
    Orphan,
}

/// Schemes of URIs, in lower case. They may be separated by `;`, as Flink's lists are, or by `,`, as upstream
/// documents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schemes(pub Vec<String>);

impl FromConf for Schemes {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        let parts = Vec::<String>::from_conf(text)?;
        let schemes = parts.iter().flat_map(|part| part.split(','));
        Ok(Self(
            schemes
                .map(|scheme| scheme.trim().to_ascii_lowercase())
                .filter(|scheme| !scheme.is_empty())
                .collect(),
        ))
    }
}

impl FromConf for SavepointFormatType {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        match text.to_ascii_uppercase().as_str() {
            "CANONICAL" | "DEFAULT" => Ok(Self::Canonical),
            "NATIVE" => Ok(Self::Native),
            _ => Err(InvalidValue::new("`CANONICAL` or `NATIVE`", text)),
        }
    }
}

impl FromConf for CheckpointType {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        match text.to_ascii_uppercase().as_str() {
            "CONFIGURED" => Ok(Self::Configured),
            "FULL" => Ok(Self::Full),
            "INCREMENTAL" => Ok(Self::Incremental),
            _ => Err(InvalidValue::new(
                "`FULL`, `INCREMENTAL` or `CONFIGURED`",
                text,
            )),
        }
    }
}

impl FromConf for DeletionPropagation {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        match text.to_ascii_uppercase().as_str() {
            "FOREGROUND" => Ok(Self::Foreground),
            "BACKGROUND" => Ok(Self::Background),
            "ORPHAN" => Ok(Self::Orphan),
            _ => Err(InvalidValue::new(
                "`Foreground`, `Background` or `Orphan`",
                text,
            )),
        }
    }
}

/// Declares options: a constant each, and the table of all.
macro_rules! operator_options {
    (@constant $(#[doc = $what:literal])+ $name:ident $kind:ty, $key:expr, $older:expr, $default:literal) => {
        $(#[doc = $what])+
        pub const $name: Defaulted<$kind> = Key::with_older($key, $older).or($default);
    };
    (@constant $(#[doc = $what:literal])+ $name:ident $kind:ty, $key:expr, $older:expr,) => {
        $(#[doc = $what])+
        pub const $name: Key<$kind> = Key::with_older($key, $older);
    };
    (@default $default:literal) => { Some($default) };
    (@default) => { None };
    ($(
        $(#[doc = $what:literal])+
        $name:ident: $kind:ty = $key:literal $(| $older:literal)* $(, $default:literal)?; $setter:ident
    )+) => {
        $(
            operator_options!(@constant $(#[doc = $what])+ $name $kind,
                concat!("kubernetes.operator.", $key),
                &[$(concat!("kubernetes.operator.", $older)),*],
                $($default)?
            );
        )+

        /// All options, in the order of the documentation.
        pub const ALL: &[OperatorOption] = &[$(OperatorOption {
            name: concat!("kubernetes.operator.", $key),
            older: &[$(concat!("kubernetes.operator.", $older)),*],
            kind: stringify!($kind),
            default: operator_options!(@default $($default)?),
            setter: Setter::$setter,
            what: concat!($($what),+),
            check: |config| {
                const KEY: Key<$kind> = Key::with_older(
                    concat!("kubernetes.operator.", $key),
                    &[$(concat!("kubernetes.operator.", $older)),*],
                );
                config.find(&KEY).map(|_| ())
            },
        }),+];
    };
}

operator_options! {
    /// Time between two reconciliations of a resource at rest.
    RECONCILE_INTERVAL: SignedDuration = "reconcile.interval" | "reconciler.reschedule.interval", "1 min"; Operator
    /// How many resources are reconciled at once; −1 for no limit.
    RECONCILE_PARALLELISM: i32 = "reconcile.parallelism" | "reconciler.max.parallelism", "50"; Operator
    /// Time between two looks at something that is under way.
    PROGRESS_CHECK_INTERVAL: SignedDuration = "observer.progress-check.interval", "10 s"; Operator
    /// Time from a reachable REST port to a ready JobManager.
    REST_READY_DELAY: SignedDuration = "observer.rest-ready.delay", "10 s"; Operator
    /// Limit of a request to a JobManager.
    CLIENT_TIMEOUT: SignedDuration = "flink.client.timeout" | "observer.flink.client.timeout", "10 s"; Operator
    /// Limit of a cancellation.
    CANCEL_TIMEOUT: SignedDuration = "flink.client.cancel.timeout" | "reconciler.flink.cancel.job.timeout", "1 min"; Operator
    /// Limit of the deletion of a cluster.
    CLEANUP_TIMEOUT: SignedDuration = "resource.cleanup.timeout" | "reconciler.flink.cluster.shutdown.timeout", "5 min"; Operator
    /// How Deployments of clusters are deleted.
    DELETION_PROPAGATION: DeletionPropagation = "resource.deletion.propagation", "Foreground"; Operator
    /// Limit of the submission of a session job.
    SUBMISSION_TIMEOUT: SignedDuration = "job.submission.timeout", "10 min"; Operator
    /// Namespaces with resources, separated by commas.
    WATCHED_NAMESPACES: String = "watched.namespaces", "JOSDK_ALL_NAMESPACES"; Operator
    /// Whether the operator's configuration is read again while it runs.
    DYNAMIC_CONFIG: bool = "dynamic.config.enabled", "true"; Operator
    /// Time between two looks at the operator's configuration.
    DYNAMIC_CONFIG_INTERVAL: SignedDuration = "dynamic.config.check.interval", "5 min"; Operator
    /// Whether namespaces may change while the operator runs.
    DYNAMIC_NAMESPACES: bool = "dynamic.namespaces.enabled", "false"; Operator
    /// How long effective configurations are kept.
    CONFIG_CACHE_TIMEOUT: SignedDuration = "config.cache.timeout", "10 min"; Operator
    /// How many effective configurations are kept.
    CONFIG_CACHE_SIZE: i32 = "config.cache.size", "1000"; Operator
    /// Selector of the labels of resources.
    LABEL_SELECTOR: String = "label.selector"; Operator
    /// Time to the first retry of a failed reconciliation.
    RETRY_INITIAL_INTERVAL: SignedDuration = "retry.initial.interval", "5 s"; Operator
    /// Factor from one retry to the next.
    RETRY_MULTIPLIER: f64 = "retry.interval.multiplier", "1.5"; Operator
    /// How many retries.
    RETRY_ATTEMPTS: i32 = "retry.max.attempts", "15"; Operator
    /// Longest time between two retries.
    RETRY_MAX_INTERVAL: SignedDuration = "retry.max.interval"; Operator
    /// Period of the rate limit of a resource.
    RATE_LIMIT_PERIOD: SignedDuration = "rate-limiter.refresh-period", "15 s"; Operator
    /// Reconciliations of a resource in that period; 0 or less for no limit.
    RATE_LIMIT: i32 = "rate-limiter.limit", "5"; Operator
    /// Whether one of several operators leads.
    LEADER_ELECTION: bool = "leader-election.enabled", "false"; Operator
    /// Name of the Lease.
    LEASE_NAME: String = "leader-election.lease-name"; Operator
    /// How long the Lease holds.
    LEASE_DURATION: SignedDuration = "leader-election.lease-duration", "15 s"; Operator
    /// When a leader that could not renew gives up.
    LEASE_RENEW_DEADLINE: SignedDuration = "leader-election.renew-deadline", "10 s"; Operator
    /// Time between two tries to get the Lease.
    LEASE_RETRY_PERIOD: SignedDuration = "leader-election.retry-period", "2 s"; Operator
    /// Time that work has to end when the operator ends.
    TERMINATION_TIMEOUT: SignedDuration = "termination.timeout", "10 s"; Operator
    /// Whether the health of the operator is served.
    HEALTH_PROBE: bool = "health.probe.enabled", "true"; Operator
    /// Port of that service.
    HEALTH_PROBE_PORT: i32 = "health.probe.port", "8085"; Operator
    /// Time in which a canary must be seen.
    CANARY_TIMEOUT: SignedDuration = "health.canary.resource.timeout", "1 min"; Operator
    /// Whether the operator ends when a watch cannot be started.
    STOP_ON_INFORMER_ERROR: bool = "startup.stop-on-informer-error", "true"; Operator
    /// Whether Ingresses are created and deleted.
    MANAGE_INGRESS: bool = "ingress.manage", "true"; Operator
    /// Whether a pending savepoint does not delay an upgrade.
    IGNORE_PENDING_SAVEPOINT: bool = "job.upgrade.ignore-pending-savepoint", "false"; Resource
    /// Whether jobs are scaled without a restart where Flink can do that.
    INPLACE_SCALING: bool = "job.upgrade.inplace-scaling.enabled", "true"; Resource
    /// Whether a savepoint upgrade of a job that is not running uses its last state.
    LAST_STATE_FALLBACK: bool = "job.upgrade.last-state-fallback.enabled", "true"; Resource
    /// Whether a last-state upgrade cancels the job.
    LAST_STATE_CANCEL: bool = "job.upgrade.last-state.job-cancel.enabled", "false"; Resource
    /// Age of a checkpoint up to which a last-state upgrade of a running job uses it.
    LAST_STATE_MAX_AGE: SignedDuration = "job.upgrade.last-state.max.allowed.checkpoint.age"; Resource
    /// Whether failed jobs are started again.
    RESTART_FAILED: bool = "job.restart.failed", "false"; Resource
    /// Whether deletion takes a savepoint first.
    SAVEPOINT_ON_DELETION: bool = "job.savepoint-on-deletion", "false"; Resource
    /// Whether that savepoint drains the job.
    DRAIN_ON_DELETION: bool = "job.drain-on-savepoint-deletion", "false"; Resource
    /// Whether a lost JobManager Deployment is created again.
    JM_RECOVERY: bool = "jm-deployment-recovery.enabled" | "reconciler.jm-deployment-recovery.enabled", "true"; Resource
    /// How long the JobManager of an ended job stays.
    JM_SHUTDOWN_TTL: SignedDuration = "jm-deployment.shutdown-ttl", "1 d"; Resource
    /// Whether JobManagers have a startup probe.
    JM_STARTUP_PROBE: bool = "jm-deployment.startup.probe.enabled", "true"; Resource
    /// Whether arrays of pod templates are merged by the names of their elements.
    MERGE_BY_NAME: bool = "pod-template.merge-arrays-by-name", "false"; Resource
    /// Whether a deployment that does not get ready is rolled back.
    ROLLBACK: bool = "deployment.rollback.enabled", "false"; Resource
    /// Time that a deployment has to get ready.
    READINESS_TIMEOUT: SignedDuration = "deployment.readiness.timeout", "5 min"; Resource
    /// Whether unhealthy clusters are started again.
    HEALTH_CHECK: bool = "cluster.health-check.enabled", "false"; Resource
    /// Time in which restarts are counted.
    RESTARTS_WINDOW: SignedDuration = "cluster.health-check.restarts.window", "2 min"; Resource
    /// Restarts in that time from which on a cluster is unhealthy.
    RESTARTS_THRESHOLD: i32 = "cluster.health-check.restarts.threshold", "64"; Resource
    /// Whether a cluster without new checkpoints is unhealthy.
    CHECKPOINT_PROGRESS: bool = "cluster.health-check.checkpoint-progress.enabled", "true"; Resource
    /// Time in which a checkpoint must complete.
    CHECKPOINT_PROGRESS_WINDOW: SignedDuration = "cluster.health-check.checkpoint-progress.window"; Resource
    /// Time between two looks at the resources of the Kubernetes cluster; negative for never.
    RESOURCE_VIEW_INTERVAL: SignedDuration = "cluster.resource-view.refresh-interval", "PT-1M"; Operator
    /// Whether snapshots are resources of their own.
    SNAPSHOT_RESOURCES: bool = "snapshot.resource.enabled", "true"; Resource
    /// Whether a savepoint is disposed of with the resource that the operator made for it.
    DISPOSE_ON_DELETE: bool = "savepoint.dispose-on-delete", "false"; Resource
    /// Interval or cron expression of savepoints; empty for none.
    PERIODIC_SAVEPOINT: String = "periodic.savepoint.interval", ""; Resource
    /// Interval or cron expression of checkpoints; empty for none.
    PERIODIC_CHECKPOINT: String = "periodic.checkpoint.interval", ""; Resource
    /// Format of savepoints.
    SAVEPOINT_FORMAT: SavepointFormatType = "savepoint.format.type", "CANONICAL"; Resource
    /// Kind of checkpoints.
    CHECKPOINT_TYPE: CheckpointType = "checkpoint.type", "FULL"; Resource
    /// Time after which a savepoint that failed is not tried again.
    SAVEPOINT_GRACE_PERIOD: SignedDuration = "savepoint.trigger.grace-period" | "observer.savepoint.trigger.grace-period", "1 min"; Resource
    /// Time after which a checkpoint that failed is not tried again.
    CHECKPOINT_GRACE_PERIOD: SignedDuration = "checkpoint.trigger.grace-period", "1 min"; Resource
    /// Whether old snapshots are deleted.
    SNAPSHOT_CLEANUP: bool = "savepoint.cleanup.enabled", "true"; Resource
    /// How many savepoints are kept.
    HISTORY_COUNT: i32 = "savepoint.history.max.count", "10"; Resource
    /// The operator's limit of that.
    HISTORY_COUNT_THRESHOLD: i32 = "savepoint.history.max.count.threshold"; Operator
    /// How long savepoints are kept.
    HISTORY_AGE: SignedDuration = "savepoint.history.max.age", "1 d"; Resource
    /// The operator's limit of that.
    HISTORY_AGE_THRESHOLD: SignedDuration = "savepoint.history.max.age.threshold"; Operator
    /// Whether a session cluster with session jobs is not deleted.
    BLOCK_ON_SESSION_JOBS: bool = "session.deletion.block-on-session-jobs", "true"; Resource
    /// Whether a session cluster with other jobs is not deleted.
    BLOCK_ON_UNMANAGED_JOBS: bool = "session.deletion.block-on-unmanaged-jobs" | "session.block-on-unmanaged-jobs", "true"; Resource
    /// Where jars of session jobs are kept while they are submitted.
    ARTIFACTS_DIR: String = "user.artifacts.base.dir", "/opt/flink/artifacts"; Operator
    /// Headers of the requests for jars.
    ARTIFACTS_HEADERS: BTreeMap<String, String> = "user.artifacts.http.header"; Resource
    /// Schemes of URIs of jars.
    ARTIFACTS_SCHEMES: Schemes = "user.artifacts.allowed-schemes", "https"; Operator
    /// Whether jars are not fetched from addresses of this machine or its networks.
    ARTIFACTS_RESTRICT_HOSTS: bool = "user.artifacts.disallow-restricted-hosts", "true"; Operator
    /// Whether errors in a status have stack traces.
    ERROR_TRACES: bool = "exception.stacktrace.enabled", "false"; Operator
    /// Longest stack trace in a status, in characters.
    ERROR_TRACE_LENGTH: i32 = "exception.stacktrace.max.length", "2048"; Operator
    /// Longest field of an error in a status, in characters.
    ERROR_FIELD_LENGTH: i32 = "exception.field.max.length", "2048"; Operator
    /// How many causes of an error a status has.
    ERROR_CAUSES: i32 = "exception.throwable.list.max.count", "2"; Operator
    /// Labels of errors by regular expressions.
    ERROR_LABELS: BTreeMap<String, String> = "exception.label.mapper", ""; Resource
    /// How many exceptions of a job become Events in one reconciliation.
    EXCEPTION_EVENTS: i32 = "events.exceptions.limit-per-reconciliation", "10"; Operator
    /// How many lines of an exception such an Event has.
    EXCEPTION_EVENT_LINES: i32 = "events.exceptions.stacktrace-lines", "5"; Operator
}

/// Keys below the operator's prefix that no version of the operator reads.
pub fn unknown_keys(config: &FlinkConfig) -> Vec<&str> {
    let is_known = |key: &str| {
        let is_open = OPEN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        is_open
            || ALL
                .iter()
                .any(|option| option.name == key || option.older.contains(&key))
    };
    config
        .iter()
        .map(|(key, _)| key)
        .filter(|key| key.starts_with(PREFIX) && !is_known(key))
        .collect()
}

/// Keys of a resource's own configuration that only the operator's configuration can set: they have no effect there.
pub fn without_effect(resource: &FlinkConfig) -> Vec<&str> {
    let options = ALL
        .iter()
        .filter(|option| option.setter == Setter::Operator);
    let names: Vec<&str> = options
        .flat_map(|option| option.older.iter().copied().chain([option.name]))
        .collect();
    let is_layer = |key: &str| key.starts_with(DEFAULTS_PREFIX);
    resource
        .iter()
        .map(|(key, _)| key)
        .filter(|key| names.contains(key) || is_layer(key))
        .collect()
}

/// Removes what belongs to the operator and not to Flink: what a cluster is submitted with (spec 9.5, 13.3).
#[must_use]
pub fn without_operator_keys(config: &FlinkConfig) -> FlinkConfig {
    let mut flink = config.clone();
    flink.retain(|key| !key.starts_with(PREFIX) && !key.starts_with(AUTOSCALER_PREFIX));
    flink
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for option in ALL {
            let config: FlinkConfig = option
                .default
                .map(|default| (option.name, default))
                .into_iter()
                .collect();
            assert_eq!(option.check(&config), Ok(()), "{option:?}");
        }
    }

    #[test]
    fn every_key_is_there_once() {
        let mut names: Vec<&str> = ALL
            .iter()
            .flat_map(|option| option.older.iter().copied().chain([option.name]))
            .collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
        assert_eq!(n_names, ALL.len() + 8);
    }

    #[test]
    fn values_have_the_types_of_their_options() {
        let config: FlinkConfig = [
            ("kubernetes.operator.reconciler.reschedule.interval", "15 s"),
            ("kubernetes.operator.retry.interval.multiplier", "2"),
            ("kubernetes.operator.checkpoint.type", "incremental"),
            ("kubernetes.operator.savepoint.format.type", "NATIVE"),
            (
                "kubernetes.operator.resource.deletion.propagation",
                "BACKGROUND",
            ),
            (
                "kubernetes.operator.user.artifacts.allowed-schemes",
                "HTTPS, s3;gs",
            ),
            (
                "kubernetes.operator.exception.label.mapper",
                "Job has.*:dup,b:c",
            ),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            config.get(&RECONCILE_INTERVAL),
            Ok(SignedDuration::from_secs(15))
        );
        assert_eq!(config.get(&RETRY_MULTIPLIER), Ok(2.0));
        assert_eq!(
            config.get(&CHECKPOINT_TYPE),
            Ok(CheckpointType::Incremental)
        );
        assert_eq!(
            config.get(&SAVEPOINT_FORMAT),
            Ok(SavepointFormatType::Native)
        );
        assert_eq!(
            config.get(&DELETION_PROPAGATION),
            Ok(DeletionPropagation::Background)
        );
        let schemes = ["https", "s3", "gs"].map(str::to_owned).to_vec();
        assert_eq!(config.get(&ARTIFACTS_SCHEMES), Ok(Schemes(schemes)));
        assert_eq!(config.get(&ERROR_LABELS).unwrap()["Job has.*"], "dup");
        assert_eq!(
            config.get(&RESOURCE_VIEW_INTERVAL),
            Ok(SignedDuration::from_mins(-1))
        );
        assert_eq!(config.find(&RETRY_MAX_INTERVAL), Ok(None));
    }

    #[test]
    fn a_value_of_another_type_is_found_by_its_row() {
        let config: FlinkConfig = [("kubernetes.operator.health.probe.port", "http")]
            .into_iter()
            .collect();
        let errors: Vec<String> = ALL
            .iter()
            .filter_map(|option| option.check(&config).err())
            .map(|error| error.key)
            .collect();
        assert_eq!(errors, ["kubernetes.operator.health.probe.port"]);
    }

    #[test]
    fn misspelt_keys_are_found_and_open_ones_are_not() {
        let config: FlinkConfig = [
            ("kubernetes.operator.reconcile.intervall", "1 s"),
            (
                "kubernetes.operator.default-configuration.namespace.a.b",
                "1",
            ),
            (
                "kubernetes.operator.metrics.reporter.slf4j.interval",
                "5 min",
            ),
            ("kubernetes.operator.reconcile.interval", "1 s"),
            ("kubernetes.namespace", "a"),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            unknown_keys(&config),
            ["kubernetes.operator.reconcile.intervall"]
        );
    }

    #[test]
    fn a_resource_cannot_set_what_is_the_operators() {
        let config: FlinkConfig = [
            ("kubernetes.operator.reconciler.reschedule.interval", "1 s"),
            (
                "kubernetes.operator.default-configuration.namespace.a.b",
                "1",
            ),
            ("kubernetes.operator.job.restart.failed", "true"),
            ("kubernetes.namespace", "a"),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            without_effect(&config),
            [
                "kubernetes.operator.default-configuration.namespace.a.b",
                "kubernetes.operator.reconciler.reschedule.interval",
            ]
        );
    }

    #[test]
    fn flink_gets_nothing_of_the_operator() {
        let config: FlinkConfig = [
            ("kubernetes.operator.reconcile.interval", "1 s"),
            ("job.autoscaler.enabled", "true"),
            ("kubernetes.namespace", "a"),
        ]
        .into_iter()
        .collect();
        let flink = without_operator_keys(&config);
        assert_eq!(
            flink.iter().collect::<Vec<_>>(),
            [("kubernetes.namespace", "a")]
        );
    }
}
