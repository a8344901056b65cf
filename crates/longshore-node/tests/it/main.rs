//! Integration tests of the process node: real shims, real processes.

mod shim;
mod shim_rig;
