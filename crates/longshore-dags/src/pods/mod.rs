//! The pods that task instances run in.

pub mod build;
pub(crate) mod controller;
pub mod decide;
pub mod events;
pub(crate) mod keep_logs;
mod log;
pub(crate) mod table;
pub mod template;
pub(crate) mod watch;
