//! Why a pod failed, and whether the user or the system caused it.

use serde_json::Value;

use super::status::{self, ContainerStatus, OOM_KILLED};
use crate::phase::{ErrorKind, PhaseInfo};

/// All containers of a status.
pub(super) const ALL_LISTS: &[&str] = &[
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Nothing was recorded: the node went away before it could.
const UNKNOWN_ERROR: &str = "UnknownError";
/// The program ended with another exit code than 0, and left no message.
const ERROR: &str = "Error";
/// Something else than the task ended it.
pub(super) const INTERRUPTED: &str = "Interrupted";
/// Reasons of pods that lost their node, or that their node refused.
const NODE_REASONS: [&str; 4] = ["Shutdown", "Terminated", "NodeShutdown", "NodeAffinity"];

/// The failure of a pod.
pub(super) fn of(status: &Value, primary: &str) -> PhaseInfo {
    let or = |text, default| match text {
        "" => default,
        _ => text,
    };
    let mut code = or(status::text(status, "reason"), UNKNOWN_ERROR);
    let mut message = or(
        status::text(status, "message"),
        "Pod failed. No message received from kubernetes.",
    )
    .to_owned();
    let mut is_system = NODE_REASONS.contains(&code);
    // What a container's program itself said by its exit code.
    let mut said = None;
    for container in status::containers(status, ALL_LISTS) {
        let last = ContainerStatus::last_terminated(container);
        let Some(end) = last.or_else(|| container.terminated()) else {
            continue;
        };
        if end.is_oom_killed() {
            code = OOM_KILLED;
        } else if end.is_killed() {
            code = INTERRUPTED;
            is_system |= container.name() == primary;
        } else if end.exit_code() != 0 {
            said = said.or(Some(or(end.reason(), ERROR)));
        }
        if end.exit_code() == 0 {
            message += &format!("\r\n[{}] terminated with ExitCode 0.", container.name());
        } else {
            message += &end.message(container.name());
        }
    }
    // Upstream takes every pod without a reason of its own for a lost one, and so repeats a program that fails for ever.
    if code == UNKNOWN_ERROR {
        code = said.unwrap_or(UNKNOWN_ERROR);
    }
    // Whatever a program does when it is told to end is not its failure.
    if code != OOM_KILLED
        && let Some(why) = status::disruption(status)
    {
        is_system = true;
        message = why + &message;
    }
    if is_system || code == UNKNOWN_ERROR {
        PhaseInfo::retryable(ErrorKind::System, INTERRUPTED, message)
    } else {
        PhaseInfo::retryable(ErrorKind::User, code, message)
    }
}
