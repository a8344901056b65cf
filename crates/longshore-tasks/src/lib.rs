//! The Flyte 2 executor: `TaskAction` resources (`flyte.org/v1`), run through plugins.
//!
//! Read [`decide`] first: it says what is written when, and why a crash in between loses nothing and runs nothing
//! twice. [`model`] is what a decision sees, `observe` reads it, `status` and `build` make what is written. [`events`]
//! tells the run service, [`questions`] are what the kit asks stores and the catalog, `ask` sends them. [`data`] looks at
//! what an attempt left behind, [`catalog`] spares an attempt whose outputs somebody else has made, `collect` removes what
//! ended long ago. `kinds` watches what plugins make, [`remote`] is for tasks that make nothing. `pod_events`
//! follows Kubernetes Events, and `facts` are what the process remembers of an action between rounds. [`Tasks`] runs it all.

mod ask;
mod build;
pub mod catalog;
mod collect;
mod config;
pub mod connect;
mod controller;
pub mod data;
pub mod decide;
pub mod events;
mod facts;
mod kinds;
mod measures;
pub mod model;
mod observe;
mod pod_events;
mod pod_templates;
pub mod questions;
pub mod remote;
mod rules;
pub mod secret_cache;
pub mod secrets;
mod service;
mod status;
pub mod transitions;

pub use config::{
    CatalogSettings, Collection, EventsSettings, Policy, Settings, TasksConfig, WebhookSettings,
};
pub use measures::ActionMeasures;
pub use rules::RULES;
pub use service::{Plugins, Tasks};

#[cfg(test)]
mod fixtures;
