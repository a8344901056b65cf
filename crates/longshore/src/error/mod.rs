//! Everything that can go wrong in a user's eyes: one sentence, a stable code, the causes, and what to do.
//!
//! Codes: 10xx command line and configuration, 11xx the Kubernetes API, 12xx pods, 13xx DAGs and runs, 14xx TaskActions,
//! 15xx Flink, 16xx pods under PodOpsLifecycle, 17xx storage, 19xx internal. Mistakes in
//! DAG files have codes of their own, in `longshore-dags`. Every code has a page ([`pages`]).

use std::{
    error::Error,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use longshore_store::{OpenError, StoreError};

use longshore_cluster::{OpenError as ClusterError, ServeError};
use longshore_console::client::{ClientError, FileError};

use crate::{dag_file::Problem, exit::Exit};

pub(crate) use actions::ActionsError;
pub(crate) use config::ConfigError;
pub(crate) use flink::FlinkCliError;

mod actions;
mod client;
mod cluster;
mod config;
mod flink;
mod kubernetes;
pub(crate) mod pages;
mod pods;
pub(crate) mod render;
#[cfg(test)]
mod tests;
mod uninstall;

pub(crate) use kubernetes::KubernetesError;
pub(crate) use pods::PodsError;
pub(crate) use uninstall::UninstallError;

const DAGS_FOLDER_HELP: &str = "make it, or name another with --dags-folder DIR";
const DATA_DIR_LOCKED_HELP: &str =
    "wait for it to end, or choose another with --data-dir DIR or --ephemeral";
const DATA_DIR_OF_OTHERS_HELP: &str = "run it as that user, or choose a directory of your own with --data-dir DIR: the owner of a directory reads all that is in it";
const DATABASE_URL_FILE_HELP: &str = "write postgres://USER:PASSWORD@HOST/NAME, and nothing else, into the file that --database-url-file or LONGSHORE_DATABASE_URL_FILE names";
const OTHER_VERSION_HELP: &str =
    "undo the change of the file to go on with the run, or leave out --resume to start a new one";
const OTHER_CLUSTER_HELP: &str = "let the context lead to that cluster again; where it is gone, or nothing of the run is left in it, add --in-other-cluster: unfinished tasks start again in this one";
const NO_THREAD_HELP: &str = "end other programs of this user, or raise the limit: `ulimit -u` shows that of the user, TasksMax of its systemd unit (pids.max of its cgroup) that of a service";
const SERVICE_BROKEN_HELP: &str = "read the last errors in longshore.log of the data directory and remove their cause, as a full disk; then repeat the command: it goes on where it was";
const NOT_PRINTED_HELP: &str =
    "make room where stdout goes, and repeat the command; what it did besides is done";
const ENGINE_HELP: &str = "the log of this command has more: longshore.log in the data directory";
const PLAIN_API_HELP: &str = "leave it on loopback (--address 127.0.0.1:7080) and reach it with `kubectl port-forward`, `ssh -L` or a proxy beside it that speaks TLS";

/// What ends a command early. The message names the object; [`help`](Self::help) names a command or a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{} does not exist", path.display())]
    FileMissing { path: PathBuf },
    #[error("{} cannot be read", path.display())]
    FileUnreadable { path: PathBuf, source: io::Error },
    #[error("there is no DAG file in {}", path.display())]
    NoDagFiles { path: PathBuf },
    #[error("no data directory is given, and HOME is not set")]
    NoHome,
    #[error("{message}")]
    Usage { message: String, help: String },
    #[error("there is no error code {code}")]
    UnknownCode {
        code: String,
        nearest: Option<&'static str>,
    },
    #[error("{file} has {}", counted(problems.len(), "problem"))]
    InvalidDag {
        file: String,
        problems: Vec<Problem>,
        text: String,
    },
    #[error("the DAG {dag_id} has no parameter {name}")]
    UnknownParam {
        dag_id: String,
        name: String,
        known: Vec<String>,
    },
    #[error("the data directory {} cannot be used", path.display())]
    DataDirUnusable { path: PathBuf, source: io::Error },
    #[error("the data directory {} is in use by {holder}", path.display())]
    DataDirLocked { path: PathBuf, holder: String },
    #[error("the data directory {} belongs to another user (uid {owner})", path.display())]
    DataDirOfOthers { path: PathBuf, owner: u32 },
    #[error("there is no space left for the data directory {}", path.display())]
    DiskFull { path: PathBuf, source: io::Error },
    #[error("the database cannot be used")]
    Database {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(
        "the database {database} has lost its runs, and the cluster in the data directory may still have their pods: \
         expected the database with the id {expected}, found {found}"
    )]
    DatabaseReplaced {
        database: String,
        expected: String,
        found: String,
        /// The file with the ids of the databases.
        known: PathBuf,
    },
    #[error(
        "expected exactly one line with the URL of a Postgres database in {}, found {found}",
        path.display()
    )]
    DatabaseUrlFile { path: PathBuf, found: String },
    #[error("{part} cannot start")]
    Engine {
        part: &'static str,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("there is no run {run_id} of the DAG {dag_id} in {}", data_dir.display())]
    UnknownRun {
        dag_id: String,
        run_id: String,
        data_dir: PathBuf,
    },
    #[error("there is no service known: {} does not exist", file.display())]
    NoServer { file: PathBuf },
    #[error("the file with the address of the service is of no use")]
    ClientFile(#[from] FileError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Actions(#[from] ActionsError),
    #[error(transparent)]
    Pods(#[from] PodsError),
    #[error(transparent)]
    Flink(#[from] FlinkCliError),
    #[error(transparent)]
    Uninstall(#[from] UninstallError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the cluster in the data directory cannot be opened")]
    Cluster(#[source] ClusterError),
    #[error("cannot listen on {address} for {what}")]
    PortTaken {
        what: &'static str,
        address: SocketAddr,
        /// What names another address or port, in the command that runs: a flag or a key of the configuration.
        setting: &'static str,
        source: io::Error,
    },
    #[error(
        "the HTTP API is not served at {address}: every host on the network could read its token"
    )]
    PlainApi { address: SocketAddr },
    #[error("the DAG folder {} cannot be used", path.display())]
    DagsFolder { path: PathBuf, source: io::Error },
    #[error("the service cannot go on: {why}")]
    ServiceBroken { why: String },
    #[error("the system lets this program have no thread")]
    NoThread { source: io::Error },
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    #[error("nobody confirmed: {what}")]
    NotConfirmed { what: String },
    #[error(
        "run {run_id} was in another cluster, where its pods may still run: expected the one whose namespace kube-system \
         has the uid {expected}, found {found}"
    )]
    OtherCluster {
        run_id: String,
        expected: String,
        found: String,
    },
    #[error("run {run_id} was started with another version of the DAG {dag_id}")]
    OtherVersion { dag_id: String, run_id: String },
    #[error(
        "task {task_id} would wait for ever: it takes {wanted} of the slots of pool {pool}, which {}",
        of_pool(*has)
    )]
    NoSlots {
        task_id: String,
        pool: String,
        wanted: u32,
        has: Option<i64>,
    },
    #[error("the output could not be written")]
    NotPrinted { source: io::Error },
    #[error("internal error at {place}")]
    Internal { place: String },
}

impl CliError {
    /// The stable code; its page is `docs/errors/<code>.md`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::FileMissing { .. } => "LS1001",
            Self::FileUnreadable { .. } => "LS1002",
            Self::NoDagFiles { .. } => "LS1003",
            Self::NoHome => "LS1004",
            Self::UnknownCode { .. } => "LS1006",
            Self::Usage { .. } => "LS1009",
            Self::NotPrinted { .. } => "LS1010",
            Self::InvalidDag { .. } => "LS1300",
            Self::UnknownParam { .. } => "LS1382",
            Self::UnknownRun { .. } => "LS1383",
            Self::OtherVersion { .. } => "LS1384",
            Self::NoSlots { .. } => "LS1385",
            Self::OtherCluster { .. } => "LS1386",
            Self::DataDirUnusable { .. } => "LS1701",
            Self::DataDirLocked { .. } => "LS1702",
            Self::DataDirOfOthers { .. } => "LS1707",
            Self::DiskFull { .. } => "LS1703",
            Self::Database { .. } => "LS1704",
            Self::DatabaseUrlFile { .. } => "LS1708",
            Self::DatabaseReplaced { .. } => "LS1709",
            Self::NoServer { .. } => "LS1020",
            Self::ClientFile(_) => "LS1021",
            Self::Client(error) => client::code(error),
            Self::Actions(error) => error.code(),
            Self::Pods(error) => error.code(),
            Self::Flink(error) => error.code(),
            Self::Uninstall(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::NotConfirmed { .. } => "LS1026",
            Self::PortTaken { .. } => "LS1030",
            Self::DagsFolder { .. } => "LS1031",
            Self::PlainApi { .. } => "LS1032",
            Self::Cluster(error) => cluster::code(error),
            Self::Kubernetes(error) => error.code(),
            Self::ServiceBroken { .. } => "LS1904",
            Self::NoThread { .. } => "LS1905",
            Self::Internal { .. } => "LS1901",
            Self::Engine { .. } => "LS1902",
        }
    }

    /// What the user can do about the error.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::FileMissing { .. } => {
                "give the path of a DAG file, as `longshore run examples/quickstart/dag.yaml`"
                    .to_owned()
            }
            Self::FileUnreadable { source, .. } => unreadable_help(source).to_owned(),
            Self::NoDagFiles { .. } => {
                "DAG files end in .yaml or .yml; name a file or another folder".to_owned()
            }
            Self::NoHome => "give one with --data-dir DIR or LONGSHORE_DATA_DIR".to_owned(),
            Self::Usage { help, .. } => help.clone(),
            Self::UnknownCode { nearest, .. } => match nearest {
                Some(code) => format!("the nearest one is {code}: `longshore explain {code}`"),
                None => "codes are LS and four digits, as in `longshore explain LS1203`".to_owned(),
            },
            Self::InvalidDag { file, .. } => {
                format!("correct the file and check it with `longshore dags lint {file}`")
            }
            Self::NotPrinted { .. } => NOT_PRINTED_HELP.to_owned(),
            Self::UnknownParam { name, known, .. } => unknown_param_help(name, known),
            Self::UnknownRun { .. } => {
                "leave out --resume to start a new run; --data-dir says where to look for old ones"
                    .to_owned()
            }
            Self::OtherVersion { .. } => OTHER_VERSION_HELP.to_owned(),
            Self::OtherCluster { .. } => OTHER_CLUSTER_HELP.to_owned(),
            Self::NoSlots { pool, wanted, .. } => no_slots_help(pool, *wanted),
            Self::DataDirUnusable { .. } => {
                "make it writable, choose another with --data-dir DIR, or leave nothing behind with --ephemeral"
                    .to_owned()
            }
            Self::DataDirLocked { .. } => DATA_DIR_LOCKED_HELP.to_owned(),
            Self::DataDirOfOthers { .. } => DATA_DIR_OF_OTHERS_HELP.to_owned(),
            Self::DiskFull { .. } => {
                "free some space or choose another disk with --data-dir DIR; nothing that was recorded is lost"
                    .to_owned()
            }
            Self::Database { .. } => {
                "do what the cause says, or choose another data directory with --data-dir DIR; `longshore explain LS1704` has more"
                    .to_owned()
            }
            Self::DatabaseUrlFile { .. } => DATABASE_URL_FILE_HELP.to_owned(),
            Self::DatabaseReplaced { known, .. } => database_replaced_help(known),
            Self::Engine { .. } => ENGINE_HELP.to_owned(),
            Self::NoServer { .. } => client::NO_SERVER_HELP.to_owned(),
            Self::ClientFile(_) => client::FILE_HELP.to_owned(),
            Self::Client(error) => client::help(error),
            Self::Actions(error) => error.help().to_owned(),
            Self::Pods(error) => error.help().to_owned(),
            Self::Flink(error) => error.help().to_owned(),
            Self::Uninstall(error) => error.help(),
            Self::Config(error) => error.help().to_owned(),
            Self::Cluster(error) => cluster::help(error).to_owned(),
            Self::Kubernetes(error) => error.help(),
            Self::PortTaken { setting, .. } => {
                format!("stop what listens there, or choose another port with {setting}")
            }
            Self::PlainApi { .. } => PLAIN_API_HELP.to_owned(),
            Self::DagsFolder { .. } => DAGS_FOLDER_HELP.to_owned(),
            Self::ServiceBroken { .. } => SERVICE_BROKEN_HELP.to_owned(),
            Self::NoThread { .. } => NO_THREAD_HELP.to_owned(),
            Self::NotConfirmed { .. } => "add --yes where no user can confirm".to_owned(),
            Self::Internal { .. } => {
                "this is our mistake: repeat with RUST_BACKTRACE=1 and report it with the output"
                    .to_owned()
            }
        }
    }

    /// How the process is to end.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Config(_)
            | Self::PlainApi { .. }
            | Self::NoHome
            | Self::Usage { .. }
            | Self::UnknownParam { .. }
            | Self::NotConfirmed { .. } => Exit::Usage,
            Self::Client(error) => client::exit(error),
            Self::Kubernetes(error) => error.exit(),
            Self::Actions(error) => error.exit(),
            Self::Pods(error) => error.exit(),
            Self::Flink(error) => error.exit(),
            Self::Uninstall(error) => error.exit(),
            Self::FileMissing { .. }
            | Self::NoDagFiles { .. }
            | Self::UnknownCode { .. }
            | Self::NoServer { .. }
            | Self::UnknownRun { .. } => Exit::NotFoundOrUnsupported,
            Self::FileUnreadable { .. }
            | Self::InvalidDag { .. }
            | Self::OtherVersion { .. }
            | Self::NoSlots { .. }
            | Self::DataDirUnusable { .. }
            | Self::DataDirLocked { .. }
            | Self::DataDirOfOthers { .. }
            | Self::DiskFull { .. }
            | Self::Database { .. }
            | Self::DatabaseUrlFile { .. }
            | Self::DatabaseReplaced { .. }
            | Self::Engine { .. }
            | Self::ClientFile(_)
            | Self::Cluster(_)
            | Self::PortTaken { .. }
            | Self::DagsFolder { .. }
            | Self::ServiceBroken { .. }
            | Self::NoThread { .. }
            | Self::OtherCluster { .. }
            | Self::NotPrinted { .. }
            | Self::Internal { .. } => Exit::Failure,
        }
    }

    /// What the argument parser says, as an error of this program: the mistake, then tips and the usage.
    pub(crate) fn in_usage(text: &str) -> Self {
        let mut parts = text.trim().split("\n\n").map(|part| {
            let words: Vec<&str> = part.split_whitespace().collect();
            words.join(" ")
        });
        let message = parts.next().unwrap_or_default();
        let message = message
            .strip_prefix("error: ")
            .unwrap_or(&message)
            .to_owned();
        let help: Vec<String> = parts.collect();
        Self::Usage {
            message,
            help: help.join("; "),
        }
    }

    /// What an error of the database means.
    pub(crate) fn in_database(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Database {
            source: Box::new(source),
        }
    }

    /// What it means that the database in the data directory cannot be opened.
    pub(crate) fn in_opening(data_dir: &Path, source: OpenError) -> Self {
        let is_full = matches!(source, OpenError::Full { .. }) || has_no_space(&source.to_string());
        Self::in_database_of(data_dir, is_full, source)
    }

    /// What it means that the database in the data directory takes no more writes.
    pub(crate) fn in_writing(data_dir: &Path, source: StoreError) -> Self {
        let is_full = has_no_space(&source.to_string());
        Self::in_database_of(data_dir, is_full, source)
    }

    fn in_database_of(
        data_dir: &Path,
        is_full: bool,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        if is_full {
            Self::DiskFull {
                path: data_dir.to_owned(),
                source: io::Error::other(source),
            }
        } else {
            Self::in_database(source)
        }
    }

    /// What it means that the API of the cluster cannot be served.
    pub(crate) fn in_serving(error: ServeError) -> Self {
        match error {
            ServeError::Listen { address, source } => Self::PortTaken {
                what: "the Kubernetes API",
                address,
                setting: "--kube-port; 0 takes any free one",
                source,
            },
            ServeError::File { path, source, .. } => Self::in_data_dir(path, source),
            error @ (ServeError::Authority { .. }
            | ServeError::Certificate(_)
            | ServeError::Tls(_)) => Self::engine("the Kubernetes API", error),
        }
    }

    /// A part of what `run` needs cannot start.
    pub(crate) fn engine(part: &'static str, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Engine {
            part,
            source: Box::new(source),
        }
    }

    /// What an I/O error on something in the data directory means.
    pub(crate) fn in_data_dir(path: PathBuf, source: io::Error) -> Self {
        let is_full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if is_full.contains(&source.kind()) {
            Self::DiskFull { path, source }
        } else {
            Self::DataDirUnusable { path, source }
        }
    }

    /// What an I/O error on a file of the user means.
    pub(crate) fn in_file(path: PathBuf, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            Self::FileMissing { path }
        } else {
            Self::FileUnreadable { path, source }
        }
    }
}

/// SQLite's words for a full disk. (The shared memory beside the database fails to grow with an I/O error of its own.)
fn has_no_space(why: &str) -> bool {
    why.contains("disk is full") || why.contains("(code: 4874)")
}

fn database_replaced_help(known: &Path) -> String {
    format!(
        "restore the database from a backup, or begin anew in another directory with --data-dir DIR; to go on with an \
         empty database although tasks may run twice, remove {}",
        known.display()
    )
}

/// What a pool has that has not enough.
fn of_pool(slots: Option<i64>) -> String {
    match slots {
        Some(slots) => format!("has {slots}"),
        None => "does not exist".to_owned(),
    }
}

fn no_slots_help(pool: &str, wanted: u32) -> String {
    format!("write `{pool}: {{slots: {wanted}}}`, or more, into pools.yaml beside the DAG file")
}

fn unreadable_help(source: &io::Error) -> &'static str {
    match source.kind() == io::ErrorKind::FileTooLarge {
        true => "move data into files of their own and list them in `files`",
        false => "check its permissions, and that it is a text file in UTF-8",
    }
}

fn unknown_param_help(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "the DAG has none; declare it under `params:` with a default".to_owned();
    }
    let nearest = known
        .iter()
        .map(|candidate| (strsim::levenshtein(candidate, name), candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min();
    match nearest {
        Some((_, nearest)) => format!("did you mean {nearest}?"),
        None => format!("it has: {}", known.join(", ")),
    }
}

/// `1 problem`, `2 problems`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
