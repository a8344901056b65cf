//! The phase of the head pod of an operator's resource: it shows failures that the resource itself
//! shows late, or never.

use jiff::Timestamp;
use serde_json::Value;

use super::{failure, pending};
use crate::{config::GracePeriods, context::TaskContext, phase::PhaseInfo};

/// The failure of the head pod, if it failed or cannot start; `primary` is its container.
pub(crate) fn trouble(
    context: &TaskContext,
    primary: &str,
    grace: &GracePeriods,
    now: Timestamp,
) -> Option<PhaseInfo> {
    let status = &context.head_pod.as_ref()?["status"];
    failed(status, primary).or_else(|| stuck(status, grace, now))
}

/// The failure of a pod that failed.
pub(crate) fn failed(status: &Value, primary: &str) -> Option<PhaseInfo> {
    (status["phase"] == "Failed").then(|| failure::of(status, primary))
}

/// The failure of a pod that cannot start.
pub(crate) fn stuck(status: &Value, grace: &GracePeriods, now: Timestamp) -> Option<PhaseInfo> {
    if status["phase"] != "Pending" {
        return None;
    }
    Some(pending::of(status, grace, now)).filter(|info| info.error.is_some())
}
