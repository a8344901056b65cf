//! The pods that task instances run in.

pub mod decide;
pub mod events;
