//! The process node: runs the pods bound to it as local processes, each under a small shim.
//!
//! The node is an ordinary client of a Kubernetes API server. It owns the processes, files and logs of its pods and the
//! status of the pod objects; it knows nothing of the creators of the pods or of the server behind the API.
//!
//! Read [`Node`] first, then `pod` (what a pod needs next, decided by a pure function) and [`shim`]
//! (which starts and watches the processes, also while the node is away).
//!
//! **Invariant:** an attempt of a container has a durable record before it is forked, and its end has one before the
//! node or the API server learns of it. So nothing runs twice and no exit code is lost, whichever process is killed.

mod addresses;
mod api_server;
mod beneath;
mod cgroups;
mod claims;
mod clock;
mod config;
mod earlier_layout;
mod env;
mod followed;
mod host_ports;
pub mod images;
mod left_behind;
mod log_book;
pub mod log_server;
pub mod logs;
mod network;
mod node;
mod pod;
mod private_dir;
mod probes;
mod profile;
mod recorder;
mod refusal;
mod register;
pub mod shim;
mod sources;
pub mod streams;
mod terminal_end;
mod volumes;

pub use config::{
    EventVolume, LogsLifetime, MissingClaims, NodeConfig, POD_PIDS_LIMIT, PodsLifetime,
};
pub use images::{ImageMap, NodeImages, UnmappedImages};
pub use left_behind::take_successes;
pub use log_server::{ContainerLogs, LogListener, LogServer};
pub use logs::{LogError, LogOptions};
pub use node::{Node, NodeError};
pub use profile::Profile;
pub use streams::{Declared, Process, StreamError, StreamSet};
