//! A pod that has succeeded while nobody was there to hear it: from its directory alone.

use std::{io, path::Path};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{
    decide::{Final, Outlook, outlook},
    directory,
    model::{BegunStop, Desired},
    status,
};
use crate::shim::record::Record;

/// The address of the host, which has the logs. Without one of its own, a pod that has ended gets the next free one.
const HOST_IP: &str = "127.0.0.1";

/// The pod of a directory, with the status that tells its end; `None` where it has not succeeded by itself.
pub(crate) fn recall(dir: &Path, now: Timestamp) -> io::Result<Option<Pod>> {
    let (Some(mut pod), Some(local)) = (directory::recall_pod(dir)?, directory::recall(dir, now)?)
    else {
        return Ok(None);
    };
    let desired = Desired::of(&pod);
    // Sidecars do not count: they are stopped once the others have succeeded.
    let counts = |record: &Record| {
        let wish = desired.find(&record.id.container);
        wish.is_none_or(|wish| !wish.is_sidecar)
    };
    let mut records = Record::load_all(dir)?.into_iter().filter(counts);
    if !records.all(|record| ended_by_itself(&record, local.begun_stop.as_ref())) {
        return Ok(None);
    }
    if outlook(&desired, &local, now) != Outlook::Over(Final::Succeeded) {
        return Ok(None);
    }
    let uid = pod.uid().unwrap_or_default();
    let mut told = status::build(&desired, &local, &uid, (HOST_IP, HOST_IP), now);
    if let Some(fields) = told.as_object_mut() {
        fields.remove("podIP");
        fields.remove("podIPs");
    }
    pod.status = Some(serde_json::from_value(told)?);
    let metadata = &mut pod.metadata;
    metadata.resource_version = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    Ok(Some(pod))
}

/// Whether nobody had asked an attempt to end when it did.
fn ended_by_itself(record: &Record, stop: Option<&BegunStop>) -> bool {
    let Some(exit) = &record.exit else {
        return false;
    };
    !record.was_stopped && stop.is_none_or(|stop| exit.finished_at < stop.since)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        pod::model::StopCause,
        shim::{
            protocol::{AttemptId, Exit, ExitReason},
            record::{Durability, attempt_dir, boot_id},
        },
    };

    fn t(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + seconds)
    }

    fn exit(code: i32) -> Exit {
        Exit {
            code,
            signal: None,
            reason: ExitReason::Completed,
            started_at: Some(t(1)),
            finished_at: t(5),
            message: "42".into(),
        }
    }

    /// A pod whose container has this record, and which was being stopped since then.
    fn recalled(exit: Option<Exit>, was_stopped: bool, stopped_at: Option<i64>) -> Option<Pod> {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
                         "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "base"}]},
        }))
        .unwrap();
        let memory = directory::memory(&pod, t(0)).unwrap();
        let id = AttemptId {
            container: "base".into(),
            attempt: 0,
        };
        std::fs::create_dir_all(attempt_dir(dir.path(), &id)).unwrap();
        let record = Record {
            exit,
            was_stopped,
            ..Record::new(dir.path(), id, boot_id())
        };
        record
            .begin(dir.path(), Durability::ProcessLoss, &memory)
            .unwrap();
        if let Some(since) = stopped_at.map(t) {
            let stop = BegunStop {
                cause: StopCause::Deleted,
                since,
                asked: std::collections::BTreeSet::new(),
            };
            directory::remember_stop(dir.path(), &stop).unwrap();
        }
        recall(dir.path(), t(10)).unwrap()
    }

    #[test]
    fn only_what_has_succeeded_by_itself_is_a_success() {
        for (what, exit, was_stopped, stopped_at, is_success) in [
            ("it has ended with 0", Some(exit(0)), false, None, true),
            ("it has failed", Some(exit(1)), false, None, false),
            ("it has no end", None, false, None, false),
            ("its shim stopped it", Some(exit(0)), true, None, false),
            ("its node stopped it", Some(exit(0)), false, Some(4), false),
            (
                "it ended before the stop",
                Some(exit(0)),
                false,
                Some(6),
                true,
            ),
        ] {
            let pod = recalled(exit, was_stopped, stopped_at);
            assert_eq!(pod.is_some(), is_success, "{what}");
        }
    }

    /// A pod whose program has succeeded, and whose sidecar was stopped after that.
    #[test]
    fn a_sidecar_that_was_stopped_makes_no_success_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [{"name": "side", "restartPolicy": "Always"}],
                "containers": [{"name": "base"}],
            },
        }))
        .unwrap();
        let memory = directory::memory(&pod, t(0)).unwrap();
        for (container, code, finished_at) in [("base", 0, 5), ("side", 143, 7)] {
            let id = AttemptId {
                container: container.into(),
                attempt: 0,
            };
            std::fs::create_dir_all(attempt_dir(dir.path(), &id)).unwrap();
            let exit = Exit {
                finished_at: t(finished_at),
                ..exit(code)
            };
            let record = Record {
                exit: Some(exit),
                ..Record::new(dir.path(), id, boot_id())
            };
            record
                .begin(dir.path(), Durability::ProcessLoss, &memory)
                .unwrap();
        }
        let stop = BegunStop {
            cause: StopCause::Completed,
            since: t(6),
            asked: std::collections::BTreeSet::new(),
        };
        directory::remember_stop(dir.path(), &stop).unwrap();
        let recalled = recall(dir.path(), t(10)).unwrap().unwrap();
        let status = recalled.status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    }

    #[test]
    fn a_success_has_the_status_that_its_node_would_have_told() {
        let pod = recalled(Some(exit(0)), false, None).unwrap();
        let pod: Value = serde_json::to_value(pod).unwrap();
        assert_eq!(
            pod["metadata"],
            json!({"name": "p", "namespace": "n", "uid": "u"})
        );
        let status = &pod["status"];
        assert_eq!(
            (&status["phase"], &status["podIP"]),
            (&json!("Succeeded"), &Value::Null)
        );
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], 0);
        assert_eq!(ended["message"], "42");
    }

    #[test]
    fn a_directory_without_a_pod_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(recall(dir.path(), t(0)).unwrap().is_none());
    }
}
