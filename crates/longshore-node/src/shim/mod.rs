//! The shim: one small process per pod that starts containers at the node's request, watches them,
//! and writes down how they ended before it reports that.
//!
//! The shim decides nothing and depends on no other process: while the node is away it keeps watching. It has one
//! thread and no runtime, so that forking from it is safe. It is itself a fork: of one process for each node, the
//! `fork_server`, so that starting it is quick.

pub(crate) mod place;
pub mod protocol;
pub(crate) mod record;

mod attach;
pub(crate) mod capabilities;
pub(crate) mod cgroup;
mod container;
mod enter;
mod exec_target;
mod fork_server;
mod init;
mod input;
mod kernel_files;
mod layers;
mod log;
mod main;
mod mount_fd;
mod mounts;
mod node_link;
mod open_files;
mod probe;
mod proc_file;
mod program;
mod rootfs;
mod running;
mod sysctls;
mod taken;
mod terminal;
mod tree;

pub(crate) use exec_target::ExecTarget;
pub(crate) use fork_server::{ARG_FORK, N_STREAMS};
pub(crate) use input::STDIN_FILE;
pub use main::main;
pub(crate) use main::{ARG_DIE, ARG_NETWORK, ARG_STAY};
pub use open_files::with_open_files;
pub(crate) use probe::ARG_PROBE;
