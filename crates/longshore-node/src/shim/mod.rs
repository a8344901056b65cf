//! The shim: one small process per pod that starts containers as told, watches them, and writes down how
//! they ended before it tells anybody.
//!
//! It decides nothing and needs nobody: while the node is away it keeps watching. It has one thread and
//! no runtime, so that forking from it is safe and starting it is quick.

pub mod protocol;
pub(crate) mod record;

mod container;
mod enter;
mod exec_target;
mod init;
mod layers;
mod log;
mod main;
mod mounts;
mod node_link;
mod probe;
mod program;
mod rootfs;
mod running;

pub(crate) use exec_target::ExecTarget;
pub(crate) use main::{ARG_DIE, ARG_STAY};
pub use main::{main, with_open_files};
pub(crate) use probe::ARG_PROBE;
