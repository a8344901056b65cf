//! The Flyte 2 executor: `TaskAction` resources (`flyte.org/v1`), run through plugins.
//!
//! Read [`decide`] first: it says what is written when, and why a crash in between loses nothing and runs nothing
//! twice. [`model`] is what a decision sees, `observe` reads it, `status` and `build` make what is written. [`events`]
//! has the clients of the run service, [`questions`] are what the kit asks foreign systems, `ask` sends them. [`data`] reads
//! what an attempt left behind, [`catalog`] finds outputs of earlier runs, `collect` removes actions that ended long ago.
//! `kinds` watches the resources of plugins, [`remote`] is for tasks without a resource. `pod_events`
//! follows Kubernetes Events, and `facts` are what the process remembers of an action between rounds, and `sayings` how many
//! statuses have just said what holds their actions. [`Tasks`] runs it all.

mod ask;
mod build;
pub mod catalog;
mod collect;
mod config;
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
mod sayings;
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
