//! The pods of task instances.

pub mod build;
pub mod template;
