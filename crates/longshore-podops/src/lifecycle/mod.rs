//! What the lifecycle of a pod needs beyond the pod itself: rules, conditions, and what is cleared away.

mod clean;
mod decide;
mod idle;
#[cfg(test)]
mod tests;

pub(crate) use decide::relabel;
pub use decide::{Observed, PodPlan, RuleSays, Verdict, decide};
