//! One pod on this node: observe → decide → apply, by an actor of its own.
//!
//! [`actor`] is the contents page: it collects facts into [`model::Local`], calls [`decide`], and
//! carries out the plan. [`status`] turns the same facts into the status for the API server.

pub(crate) mod actor;
mod adopt;
mod decide;
pub(crate) mod directory;
pub(crate) mod ephemeral;
mod hooks;
mod hosts;
pub(crate) mod model;
pub(crate) mod publish;
mod resolve;
mod runtime;
pub(crate) mod security;
pub(crate) mod shim_forks;
pub(crate) mod shim_link;
mod status;
pub(crate) mod success;
mod sysctls;
#[cfg(test)]
mod tests;
mod unsupported;
