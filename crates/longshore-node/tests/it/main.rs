//! Integration tests of the process node: real shims, real processes.

#[cfg(test)]
mod shim;
#[cfg(test)]
mod shim_rig;
