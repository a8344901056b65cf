//! The parts of a pod's status that phases are derived from.

use jiff::Timestamp;
use serde_json::Value;

pub(super) use crate::json::text;

/// Exit code of a process that was killed, and the same as an unsigned byte of minus nine.
const KILLED: [i64; 2] = [137, 247];
/// What nodes say of a container that used too much memory.
pub(super) const OOM_KILLED: &str = "OOMKilled";

/// The status of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContainerStatus<'a>(&'a Value);

/// The end of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminated<'a>(&'a Value);

/// The containers of a status; lists are `containerStatuses`, `initContainerStatuses`, `ephemeralContainerStatuses`.
pub(super) fn containers<'a>(
    status: &'a Value,
    lists: &'static [&'static str],
) -> impl Iterator<Item = ContainerStatus<'a>> {
    lists
        .iter()
        .filter_map(|list| status.get(*list)?.as_array())
        .flatten()
        .map(ContainerStatus)
}

impl<'a> ContainerStatus<'a> {
    pub(super) fn name(self) -> &'a str {
        text(self.0, "name")
    }

    pub(super) fn is_ready(self) -> bool {
        self.0["ready"] == true
    }

    pub(super) fn waiting(self) -> Option<&'a Value> {
        present(&self.0["state"]["waiting"])
    }

    pub(super) fn running(self) -> Option<&'a Value> {
        present(&self.0["state"]["running"])
    }

    pub(super) fn terminated(self) -> Option<Terminated<'a>> {
        present(&self.0["state"]["terminated"]).map(Terminated)
    }

    /// The end before the last start.
    pub(super) fn last_terminated(self) -> Option<Terminated<'a>> {
        present(&self.0["lastState"]["terminated"]).map(Terminated)
    }

    /// When it started, or ended.
    fn changed_at(self) -> Option<Timestamp> {
        match (self.running(), self.terminated()) {
            (Some(running), _) => time(running, "startedAt"),
            (None, Some(terminated)) => time(terminated.0, "finishedAt"),
            (None, None) => None,
        }
    }
}

impl<'a> Terminated<'a> {
    pub(super) fn exit_code(self) -> i64 {
        self.0["exitCode"].as_i64().unwrap_or_default()
    }

    pub(super) fn reason(self) -> &'a str {
        text(self.0, "reason")
    }

    pub(super) fn is_oom_killed(self) -> bool {
        self.reason().contains(OOM_KILLED)
    }

    pub(super) fn is_killed(self) -> bool {
        KILLED.contains(&self.exit_code())
    }

    /// For people: how this container failed.
    pub(super) fn message(self, container: &str) -> String {
        let (code, reason) = (self.exit_code(), self.reason());
        let message = text(self.0, "message");
        format!(
            "\r\n[{container}] terminated with exit code ({code}). Reason [{reason}]. Message: \n{message}."
        )
    }
}

/// When something of the pod last started or ended.
pub(super) fn changed_at(status: &Value) -> Option<Timestamp> {
    containers(status, &["containerStatuses", "initContainerStatuses"])
        .filter_map(ContainerStatus::changed_at)
        .max()
}

/// When the node reported that the pod is done.
pub(super) fn reported_at(status: &Value) -> Option<Timestamp> {
    let conditions = status["conditions"].as_array()?;
    let done = conditions.iter().find(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "False"
            && condition["reason"] == "PodCompleted"
    });
    time(done?, "lastTransitionTime")
}

/// Why the cluster ends the pod, where it does: to make room, to empty its node, or because the node is short of something.
pub(super) fn disruption(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let is_target = |it: &&Value| it["type"] == "DisruptionTarget" && it["status"] == "True";
    let target = conditions.iter().find(is_target)?;
    let (reason, message) = (text(target, "reason"), text(target, "message"));
    Some(format!("the cluster ended the pod: {reason}: {message}"))
}

/// A time that is there and is one.
pub(super) fn time(object: &Value, field: &str) -> Option<Timestamp> {
    object[field].as_str()?.parse().ok()
}

fn present(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| value.is_object())
}
