//! The protocol between the node and a pod's shim: JSON lines over a unix socket in the pod directory.
//!
//! The node commands, the shim reports. A shim carries out the commands of earlier nodes, and reports everything that
//! it knows on every new connection, so a node that comes back sends no query and only waits.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One run of one container. Attempts count from 0 and are never reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The container's name, unique in its pod.
    pub container: String,
    /// 0 for the first run, then the number of restarts.
    pub attempt: u32,
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.container, self.attempt)
    }
}

/// A command of the node to the shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// Runs an attempt, once: an attempt that has a record is only reported again.
    Start {
        /// The attempt to run.
        id: AttemptId,
        /// How to run the attempt.
        spec: Box<ContainerSpec>,
        /// What the node remembers of the pod, in the node's words: it goes into the file of the record, and so is on disk
        /// as soon as the attempt is begun.
        #[serde(default)]
        memory: String,
    },
    /// Sends a signal to the container's first process.
    Signal {
        /// The attempt to signal.
        id: AttemptId,
        /// The number of the signal.
        signal: i32,
    },
    /// Kills every process of the attempt at once.
    Kill {
        /// The attempt to kill.
        id: AttemptId,
    },
    /// Ends the standard input of an attempt.
    CloseInput {
        /// The attempt whose input ends.
        id: AttemptId,
    },
    /// Tells the terminal of an attempt its size.
    Resize {
        /// The attempt.
        id: AttemptId,
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// Kills what still runs and ends the shim.
    Quit,
}

/// A report of the shim to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Report {
    /// The attempt has a record: whatever becomes of it, it is not started again.
    Begun {
        /// The attempt.
        id: AttemptId,
    },
    /// The program runs.
    Started {
        /// The attempt.
        id: AttemptId,
        /// When and as what.
        started: Started,
    },
    /// The attempt ended, or could not start; its record is on disk.
    Exited {
        /// The attempt.
        id: AttemptId,
        /// How the attempt ended.
        exit: Exit,
    },
    /// There is no shim: the machine has no room for its process. The process that forks shims says so in its place.
    NotForked {
        /// Why, in the words of the system.
        message: String,
    },
    /// The shim has reported everything that it knew when the node connected, the commands of earlier nodes included.
    CaughtUp,
}

/// A program that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// When its program had replaced our code.
    pub at: Timestamp,
    /// The pid of the container's init, as the host sees it.
    pub pid: i32,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code; 128 + n after signal n.
    pub code: i32,
    /// The signal that ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Kubernetes' word for it.
    pub reason: ExitReason,
    /// When the program had started; absent when it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its end was seen.
    pub finished_at: Timestamp,
    /// The termination message, or why the program could not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Kubernetes' reasons of a terminated container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// Exit code 0.
    Completed,
    /// Any other exit.
    Error,
    /// The kernel killed it because it used more memory than it may.
    OomKilled,
    /// The program could not be started.
    StartError,
    /// The shim died and the exit code with it.
    ContainerStatusUnknown,
}

impl ExitReason {
    /// The word in `state.terminated.reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::OomKilled => "OOMKilled",
            Self::StartError => "StartError",
            Self::ContainerStatusUnknown => "ContainerStatusUnknown",
        }
    }
}

/// Everything the shim must know to run a container. All names are resolved, all variables expanded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// The program and its arguments; a program without `/` is looked for in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The working directory inside the container; made when it is missing.
    pub workdir: String,
    /// The file that takes standard output and error, in CRI format.
    pub log: PathBuf,
    /// What the program sees as its file system.
    pub sandbox: Sandbox,
    /// The user that the program runs as.
    pub user: UserSpec,
    /// Where the program may leave a last word.
    pub termination: TerminationSpec,
    /// How much memory its processes may use; absent = as much as there is.
    #[serde(default)]
    pub memory: Option<MemorySpec>,
    /// Where its processes are counted; absent = nobody counts them.
    #[serde(default)]
    pub processes: Option<ProcessesSpec>,
    /// What a client that attaches finds.
    #[serde(default)]
    pub interaction: Interaction,
}

/// A limit of memory, which the kernel enforces on a cgroup (version 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// The directory of the cgroup; made for the attempt, and removed with it.
    pub cgroup: PathBuf,
    /// The limit in bytes.
    pub limit: u64,
}

/// A limit on the processes of a pod, which the node has set on a cgroup of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessesSpec {
    /// The directory of the pod's cgroup; the shim of the pod removes it at its end.
    pub pod: PathBuf,
    /// The cgroup that the container joins: that of the pod, or one below.
    pub cgroup: PathBuf,
}

/// How a client can talk to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interaction {
    /// Standard input is open, also while no client is attached.
    pub has_stdin: bool,
    /// The program has a terminal instead of pipes.
    pub has_terminal: bool,
}

/// How far a container is set apart from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// A plain child process: the host's file system, no mounts.
    None,
    /// Own mount, pid and host name namespaces, made by root.
    Full(RootSpec),
    /// The same inside a user namespace, made by any user.
    User(RootSpec),
}

/// The file system of a container with a mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSpec {
    /// What lies below the private writable layer: `/` is the host itself.
    pub base: PathBuf,
    /// The host name inside.
    pub hostname: String,
    /// Whether everything except the volumes, `/dev` and `/proc` refuses writes.
    pub read_only: bool,
    /// Files and directories of the host that the container must not see.
    pub hide: Vec<PathBuf>,
    /// Volumes and bind mounts, in the order of the pod.
    pub mounts: Vec<MountSpec>,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// The file or directory on the host.
    pub source: PathBuf,
    /// Whose files it shows.
    #[serde(default, skip_serializing_if = "Origin::is_node")]
    pub origin: Origin,
    /// The volume below which `source` is a `subPath`: no link leads out of it, whoever makes one and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<PathBuf>,
    /// The absolute path inside the container.
    pub target: PathBuf,
    /// Whether the container may write to it.
    pub read_only: bool,
}

/// Whose files a mount shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Files that the node has made, for the pod or for its claims: no device of the machine is in them.
    #[default]
    Node,
    /// Files of the machine that the map of images names, and so whoever runs the node.
    Image,
    /// Files of the machine that the pod names.
    HostPath,
}

impl Origin {
    fn is_node(&self) -> bool {
        *self == Self::Node
    }
}

/// The identity of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpec {
    /// The user id; absent = the node's own.
    pub uid: Option<u32>,
    /// The group id; absent = the node's own, or 0 where `uid` is given.
    pub gid: Option<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Whether the program may never gain privileges.
    pub no_new_privileges: bool,
    /// The capabilities that it may have, as bits by the kernel's numbers; absent = all that the node has.
    #[serde(default)]
    pub capabilities: Option<u64>,
}

/// Where a termination message comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationSpec {
    /// The file inside the container.
    pub path: PathBuf,
    /// Whether the termination message of a failed container without a message is the end of its log.
    pub fallback_to_logs: bool,
}
