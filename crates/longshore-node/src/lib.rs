//! The process node: runs the pods bound to it as local processes, each under a small shim.

mod clock;
pub mod logs;
pub mod shim;
