//! What the lifecycle of a pod needs beyond the pod itself: rules, conditions, and what is cleared away.

mod blocked;
mod clean;
mod decide;
mod idle;
pub(crate) mod released;
#[cfg(test)]
mod tests;
mod untyped;

pub(crate) use blocked::protection_deadline;
pub use decide::{Observed, PodEffect, PodPlan, RuleSays, Verdict, decide};
pub(crate) use decide::{held_by, look_again, relabel, upon, warn};
pub(crate) use untyped::{waits_for_type, what_to_do};
