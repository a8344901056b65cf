//! Task plugins, pure: each knows how one task type becomes a resource, and what that resource says about the task.

mod context;
mod phase;
mod plugin;

pub use context::{Paths, TaskContext};
pub use phase::{ErrorKind, Happening, Phase, PhaseInfo, TaskError};
pub use plugin::{BuildError, Plugin};
