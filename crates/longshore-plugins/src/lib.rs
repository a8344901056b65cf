//! Task plugins, pure: each knows how one task type becomes a resource, and what that resource says about the task.
//!
//! Read [`Plugin`] first, then [`TaskContext`], which is all that a plugin knows, and [`PhaseInfo`], which is its answer.

mod cache_key;
mod config;
mod context;
mod gob;
mod metadata;
mod names;
mod paths;
mod phase;
mod plugin;
mod pod;
mod proto_json;
mod registry;
mod secrets;
mod state;

pub use cache_key::{CacheKey, CacheKeyError};
pub use config::{
    AcceleratorNodes, Accelerators, Config, DeviceClassConfig, GracePeriods, K8sConfig, Scheduling,
};
pub use context::{TaskContext, max_attempts};
pub use metadata::{Owner, with_metadata};
pub use names::{fixed_length_unique_id, is_dns_label, label_value, subdomain};
pub use paths::Paths;
pub use phase::{ErrorKind, Happening, Phase, PhaseInfo, TaskError};
pub use plugin::{BAD_TASK_SPECIFICATION, BuildError, Plugin};
pub use pod::PodPlugin;
pub use registry::{Registry, RegistryError};
pub use secrets::{SecretError, SecretInjection, SecretScope, requested_secrets, secret_name};
pub use state::{K8sState, Launch, PluginState, STATE_VERSION, StateError};

#[cfg(test)]
mod fixtures;
