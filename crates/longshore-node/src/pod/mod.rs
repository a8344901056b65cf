//! One pod on this node: observe → decide → apply, by an actor of its own.
//!
//! [`actor`] is the contents page: it collects facts into [`model::Local`], asks [`decide`] what to do, and
//! does it. [`status`] turns the same facts into what the API server shall see.

pub(crate) mod actor;
mod adopt;
mod decide;
pub(crate) mod directory;
pub(crate) mod model;
pub(crate) mod publish;
mod resolve;
pub(crate) mod shim_link;
mod status;
#[cfg(test)]
mod tests;
mod unsupported;
