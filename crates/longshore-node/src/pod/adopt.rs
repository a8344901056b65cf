//! What an actor knows when it starts: from the pod's directory, else from the API server.

use std::{io, path::Path};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::{
    directory,
    model::{AttemptState, Local},
    shim_link::ShimLink,
};
use crate::shim::{
    protocol::{AttemptId, Exit, ExitReason},
    record::lost_exit,
};

/// Takes over a pod that an earlier node ran, or takes up a new one.
pub(crate) fn adopt(
    dir: &Path,
    pod: &Pod,
    now: Timestamp,
) -> io::Result<(Local, Option<ShimLink>)> {
    let status = pod.status.as_ref();
    let told = status.and_then(|it| it.start_time.as_ref().map(|time| time.0));
    if let Some(mut local) = directory::recall(dir, told.unwrap_or(now))? {
        let link = ShimLink::find(dir)?;
        local.has_shim = link.is_some();
        local.is_behind = local.has_shim;
        if link.is_none() {
            directory::settle(dir, &mut local)?;
        }
        // A full disk may have refused the record of an end that the API server has.
        for (container, attempts) in from_status(pod, now).attempts {
            local.attempts.entry(container).or_insert(attempts);
        }
        return Ok((local, link));
    }
    Ok((from_status(pod, now), None))
}

/// A pod without a directory that has a status ran here once: what ran then does not run again.
fn from_status(pod: &Pod, now: Timestamp) -> Local {
    let status = pod.status.clone().unwrap_or_default();
    let mut local = Local::new(status.start_time.map_or(now, |time| time.0));
    let init = status.init_container_statuses.iter().flatten();
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    let lasting = status.container_statuses.iter().flatten();
    for container in init.chain(lasting).chain(ephemeral) {
        if let Some(exit) = last_end(container) {
            let attempt = u32::try_from(container.restart_count).unwrap_or(0);
            let id = AttemptId {
                container: container.name.clone(),
                attempt,
            };
            local.learn(&id, AttemptState::Exited(exit));
        }
    }
    local
}

fn last_end(container: &ContainerStatus) -> Option<Exit> {
    let state = container.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Some(lost_exit(None));
    }
    let ended = state
        .terminated
        .or(container.last_state.clone().and_then(|s| s.terminated))?;
    let reason = match ended.reason.as_deref() {
        Some("Completed") => ExitReason::Completed,
        Some("OOMKilled") => ExitReason::OomKilled,
        Some("StartError") => ExitReason::StartError,
        _ => ExitReason::Error,
    };
    Some(Exit {
        code: ended.exit_code,
        signal: ended.signal,
        reason,
        started_at: ended.started_at.map(|time| time.0),
        finished_at: ended
            .finished_at
            .map_or_else(crate::clock::now, |time| time.0),
        message: ended.message.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The record of a start that failed for want of space was refused too. Somebody may have acted upon the status.
    #[test]
    fn what_has_ended_for_the_api_server_does_not_start_though_no_record_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let ended = json!({"terminated": {"exitCode": 128, "reason": "StartError"}});
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "base"}, {"name": "sidecar"}], "restartPolicy": "Never"},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "base", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": ended},
                {"name": "sidecar", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {}},
            ]},
        }));
        let (local, _) = adopt(dir.path(), &pod.unwrap(), Timestamp::UNIX_EPOCH).unwrap();
        let last = local.last("base").map(|attempt| &attempt.state);
        assert!(
            matches!(last, Some(AttemptState::Exited(exit)) if exit.code == 128),
            "{last:?}"
        );
        assert!(local.last("sidecar").is_none());
    }
}
