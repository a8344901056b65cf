//! What Flink's client adds to a configuration before it makes objects of it (spec 13.3).

use super::{Cluster, FlinkConfig, FlinkVersion, InvalidOption, ResourceError, operator, options};
use crate::conf::{Defaulted, FromConf, Key};

const APPLICATION: &str = "kubernetes-application";
const SESSION: &str = "kubernetes-session";
const APPLICATION_CLASS: &str =
    "org.apache.flink.kubernetes.entrypoint.KubernetesApplicationClusterEntrypoint";
const SESSION_CLASS: &str =
    "org.apache.flink.kubernetes.entrypoint.KubernetesSessionClusterEntrypoint";
const PYTHON_DRIVER: &str = "org.apache.flink.client.python.PythonDriver";
const PYTHON_ARGS: [&str; 4] = ["-py", "--python", "-pym", "--pyModule"];

/// Ports that must be known before a pod starts, each with the port that stands in for a free one.
const FIXED_PORTS: [(Defaulted<String>, &str); 3] = [
    (options::BLOB_PORT, "6124"),
    (options::TASK_MANAGER_PORT, "6122"),
    (options::REST_BIND_PORT, "8081"),
];

/// Keys of what this operator does not do.
const KERBEROS: [&str; 2] = [
    "security.kerberos.login.keytab",
    "security.kerberos.krb5-conf.path",
];

/// What a cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// One job, which starts with the cluster.
    Application,
    /// Jobs that are submitted to it.
    Session,
}

impl ClusterKind {
    /// What a configuration describes.
    ///
    /// # Errors
    /// [`ResourceError::NotNative`] where it describes no native cluster.
    pub fn of(config: &FlinkConfig) -> Result<Self, ResourceError> {
        match config.text(options::TARGET.name) {
            Some(APPLICATION) => Ok(Self::Application),
            Some(SESSION) => Ok(Self::Session),
            found => Err(ResourceError::NotNative {
                found: found.unwrap_or_default().to_owned(),
            }),
        }
    }

    /// The value of `execution.target`.
    #[must_use]
    pub const fn target(self) -> &'static str {
        match self {
            Self::Application => APPLICATION,
            Self::Session => SESSION,
        }
    }

    const fn entry_point(self) -> &'static str {
        match self {
            Self::Application => APPLICATION_CLASS,
            Self::Session => SESSION_CLASS,
        }
    }
}

/// The configuration that the pods of a cluster get: what [`super::native`] writes into the file.
///
/// # Errors
/// [`ResourceError`] where the configuration describes no native cluster.
pub fn submitted(cluster: &Cluster<'_>) -> Result<FlinkConfig, ResourceError> {
    client_config(cluster).map(|(_, config)| config)
}

pub(super) fn client_config(
    cluster: &Cluster<'_>,
) -> Result<(ClusterKind, FlinkConfig), ResourceError> {
    let mut config = operator::without_operator_keys(cluster.config);
    let kind = ClusterKind::of(&config)?;
    refuse_unsupported(&config)?;
    if kind == ClusterKind::Application {
        check_jars(&config, cluster.version)?;
        config.set_default(&options::PROGRAM_ARGS, "");
    }
    config.set(&options::NAMESPACE, cluster.namespace);
    config.set(&options::CLUSTER_ID, cluster.id);
    config.set(&options::EXECUTION_MODE, "NORMAL");
    config.set(&options::ENTRY_POINT_CLASS, kind.entry_point());
    for (port, fixed) in FIXED_PORTS {
        fix_port(&mut config, &port, fixed)?;
    }
    if options::is_highly_available(&config)? {
        config.set(&options::HA_CLUSTER_ID, cluster.id);
        let rpc_port = config.get(&options::JOB_MANAGER_PORT)?.to_string();
        fix_port(&mut config, &options::HA_JOB_MANAGER_PORT, &rpc_port)?;
    } else {
        let address = format!("{}.{}", cluster.id, cluster.namespace);
        config.set(&options::JOB_MANAGER_ADDRESS, address);
    }
    Ok((kind, config))
}

fn refuse_unsupported(config: &FlinkConfig) -> Result<(), ResourceError> {
    let unsupported = |key, what| Err(ResourceError::Unsupported { key, what });
    if config
        .get(&options::HA_TYPE)?
        .eq_ignore_ascii_case("zookeeper")
    {
        return unsupported(
            options::HA_TYPE.key.name,
            "high availability with ZooKeeper",
        );
    }
    let kerberos = KERBEROS.iter().find(|key| config.text(key).is_some());
    match kerberos {
        Some(key) if config.get(&options::KERBEROS_MOUNT)? => unsupported(key, "Kerberos"),
        Some(_) | None => Ok(()),
    }
}

/// Flink 1.x starts an application out of one jar, unless it is written in Python; 2.x out of one or none.
fn check_jars(config: &FlinkConfig, version: FlinkVersion) -> Result<(), ResourceError> {
    let n_jars = config.find(&options::JARS)?.unwrap_or_default().len();
    let (expected, is_right) = if version >= FlinkVersion::V2_0 {
        ("at most one jar", n_jars <= 1)
    } else {
        ("exactly one jar", n_jars == 1 || is_python(config)?)
    };
    if is_right {
        Ok(())
    } else {
        Err(ResourceError::Jars {
            expected,
            found: n_jars,
            version,
        })
    }
}

fn is_python(config: &FlinkConfig) -> Result<bool, InvalidOption> {
    let args = config.find(&options::PROGRAM_ARGS)?.unwrap_or_default();
    Ok(config.text(options::MAIN_CLASS.name) == Some(PYTHON_DRIVER)
        || args.iter().any(|arg| PYTHON_ARGS.contains(&arg.as_str())))
}

/// Replaces a free port, and a range of ports, by a fixed one.
fn fix_port(
    config: &mut FlinkConfig,
    option: &Defaulted<String>,
    fixed: &str,
) -> Result<(), InvalidOption> {
    let is_fixed = config
        .get(option)?
        .parse::<u16>()
        .is_ok_and(|port| port > 0);
    if !is_fixed {
        config.set(&option.key, fixed);
    }
    Ok(())
}

/// The number of a port that [`fix_port`] has fixed.
pub(super) fn port(config: &FlinkConfig, option: &Defaulted<String>) -> Result<i32, InvalidOption> {
    let number: Key<i32> = Key::with_older(option.key.name, option.key.older);
    match config.find(&number)? {
        Some(port) => Ok(port),
        None => i32::from_conf(option.default).map_err(|why| InvalidOption {
            key: option.key.name.to_owned(),
            why,
        }),
    }
}
