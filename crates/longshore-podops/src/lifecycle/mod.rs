//! What the lifecycle of a pod needs beyond the pod itself: rules, conditions, and what is cleared away.

mod blocked;
mod clean;
mod decide;
mod idle;
#[cfg(test)]
mod tests;

pub use decide::{Observed, PodEffect, PodPlan, RuleSays, Verdict, decide};
pub(crate) use decide::{held_by, look_again, relabel, upon, warn};
