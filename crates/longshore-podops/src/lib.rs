//! KusionStack's PodOpsLifecycle: operate on a pod only when everything around it has let go.
//!
//! All state is in labels of the pod. Read [`admit::advance`] first: it is the state machine, which runs within every
//! request that writes a pod. [`model`] is what decisions see.

pub mod admit;
mod config;
pub mod model;

pub use config::{AdmitConfig, PodOpsConfig};
