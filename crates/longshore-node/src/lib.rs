//! The process node: runs the pods bound to it as local processes, each under a small shim.
//!
//! It is an ordinary client of a Kubernetes API server. It owns the processes, files and logs of its pods
//! and the status of the pod objects; it knows nothing of who made the pods or of what serves the API.
//!
//! Read [`Node`] first, then `pod` (what a pod needs next, decided by a pure function) and [`shim`] (who
//! starts and watches the processes, also while the node is away).
//!
//! **Invariant:** an attempt of a container has a durable record before it is forked, and its end has one
//! before anybody is told. So nothing runs twice and no exit code is lost, whichever process is killed.

mod addresses;
mod clock;
mod config;
mod env;
pub mod images;
mod log_book;
pub mod log_server;
pub mod logs;
mod node;
mod pod;
mod private_dir;
mod probes;
mod profile;
mod refusal;
mod register;
pub mod shim;
mod sources;
mod volumes;

pub use config::{EventVolume, LogsLifetime, NodeConfig, PodsLifetime};
pub use images::ImageMap;
pub use log_server::{ContainerLogs, LogListener, LogServer};
pub use logs::{LogError, LogOptions};
pub use node::{Node, NodeError};
pub use profile::Profile;
