//! KusionStack's PodOpsLifecycle: operate on a pod only when everything around it has let go.
//!
//! All state is in labels of the pod. Read [`admit::advance`] first: it is the state machine, which runs within every
//! request that writes a pod. [`lifecycle`] and [`deletion`] decide what the controller adds to that, and
//! [`rule`] whether a pod may go on; [`eviction`] decides which evictions become operations, within disruption budgets;
//! [`traffic`] holds a pod while Services route to it. [`model`] is what decisions see.
//! [`PodOps`] runs the controllers, [`webhooks`] are what API servers ask, and [`standing`] says to people where a pod
//! stands and what holds it there.

pub mod admit;
mod api_servers;
mod ask_webhooks;
mod caches;
mod config;
pub mod deletion;
pub mod eviction;
mod evictions;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod laws;
pub mod leave;
pub mod lifecycle;
mod measures;
pub mod model;
mod pods;
mod released;
pub mod replicas;
pub mod rule;
mod rules;
mod selections;
mod service;
pub mod standing;
pub mod traffic;
mod transition_rules;
pub mod webhooks;

use std::time::Duration;

/// When a pod is looked at again of which something could not be seen.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub use api_servers::follow_api_servers;
pub use ask_webhooks::RuleTransport;
pub use config::{
    AdmitConfig, DRAIN_DELAY, FailurePolicies, FailurePolicy, MAX_HOLD, PodOpsConfig,
    RegistrationConfig,
};
pub use measures::PodMeasures;
pub use rules::RULES;
pub use service::PodOps;
