//! What tries run in: pods of ours, or TaskActions. One controller for both launchers.

pub(crate) mod controller;
pub mod decide;
pub(crate) mod keep_log;
pub mod launched;
mod log;
mod observe;
pub(crate) mod table;
pub(crate) mod watch;
