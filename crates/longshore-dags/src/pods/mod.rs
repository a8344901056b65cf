//! The launcher of ordinary tasks: the pods that they run in.

pub mod build;
pub mod events;
pub(crate) mod launched;
pub mod template;
pub mod worker;
