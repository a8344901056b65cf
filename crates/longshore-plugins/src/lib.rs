//! Task plugins, pure: each knows how one task type becomes a resource, and what that resource says about the task.
//!
//! Read [`Plugin`] first, then [`TaskContext`], which is all that a plugin knows, and [`PhaseInfo`], which is its answer.
//! A task type without a resource has a [`RemotePlugin`]. [`Registry`] lists all of them; `docs/plugins.md` says how to
//! add one.

mod abort;
mod cache_key;
mod clustered;
mod config;
mod connector;
mod context;
mod custom;
mod dask;
mod flink;
mod gob;
mod json;
mod kubeflow;
mod links;
mod metadata;
mod names;
mod order;
mod paths;
mod phase;
mod plugin;
mod pod;
mod proto_json;
mod ray;
mod registry;
mod remote;
mod secrets;
mod sleep;
mod spark;
mod state;
mod task_action;
mod text_template;

pub use abort::{AbortBehavior, AbortEffect};
pub use cache_key::{CacheKey, CacheKeyError};
pub use config::{
    AcceleratorNodes, Accelerators, CoPilot, CoPilotStorage, Config, ConfigErrors, ConfigKey,
    ConfigProblem, ConfigReport, ConfigWarning, DeviceClassConfig, GracePeriods, K8sConfig, KeyUse,
    Reading, Scheduling, Section,
};
pub use connector::{
    ConnectorConfig, Connectors, Deployment, Limit, Listed, MethodPolicy, Quota, ResourceMeta,
    Retries, Route, ServiceConfig, WebApi, WebApiPhase, WebApiState,
};
pub use context::{ErrorFile, TaskContext, max_attempts, pod_template_name};
pub use dask::DaskConfig;
pub use kubeflow::KubeflowConfig;
pub use links::{AzureTemplate, LinkTemplate, LogConfig};
pub use metadata::{Owner, with_metadata};
pub use names::{fixed_length_unique_id, label_value, subdomain};
pub use order::{Order, OrderedContainer};
pub use paths::Paths;
pub use phase::{ErrorKind, Info, NOTHING_KNOWN, Phase, PhaseInfo, ReasonInfo, TaskError};
pub use plugin::{BAD_TASK_SPECIFICATION, BuildError, HeadPod, Plugin, PluginProperties};
pub use pod::PodPlugin;
pub use ray::{RayConfig, RayNode, SubmissionMode};
pub use registry::{Registry, RegistryError, Runner};
pub use remote::{
    Addressee, Answer, Call, Category, JobOutputs, RemotePlugin, Request, Round, SlotNeed, Step,
    StoredState, Teller,
};
pub use secrets::{
    NamespaceTemplate, Pattern, ScopeBinding, ScopeBindings, SecretError, SecretInjection,
    SecretReference, SecretScope, SecretValue, requested_secrets, secret_name,
};
pub use spark::{Feature, SparkConfig, SparkLogs};
pub use state::{K8sState, Launch, PluginState, STATE_VERSION, StateError};
pub use task_action::TASK_ACTION;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod scenarios;
