//! FlinkStateSnapshots as the controllers of jobs create and delete them (spec 10.1, 10.5).

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use longshore_api::flink::{ANNOTATION_SNAPSHOT_OCCASION, API_VERSION, KIND_STATE_SNAPSHOT};
use longshore_core::{ChildIdentity, Create, ObjectRef};
use longshore_flink_core::{
    conf::{
        Defaulted, FlinkConfig, Key,
        operator::{self, SavepointFormatType},
    },
    spec::{FlinkStateSnapshotSpec, JobKind, SavepointSpec},
    status::{CommonStatus, SnapshotKind, SnapshotState, TriggerType, snapshot_labels},
    triggers::{self, LastPeriodic, Schedule},
};
use serde_json::json;

use crate::{
    deployment::SnapshotResource, kinds::FLINK_STATE_SNAPSHOT, record::Trouble, settings::Settings,
};

/// How many checkpoints are kept.
const RETAINED: Defaulted<i32> = Key::with_older(
    "execution.checkpointing.num-retained",
    &["state.checkpoints.num-retained"],
)
.or("1");

/// The resource whose job is snapshotted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) kind: JobKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) settings: &'a Settings,
}

/// A snapshot that gets a resource.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: SnapshotKind,
    pub(crate) name: String,
    pub(crate) trigger: TriggerType,
    /// Where the savepoint is, if it exists already.
    pub(crate) exists_at: Option<String>,
}

/// The creation of a resource. Its name says what it is for, so that a repeat meets the first one.
pub(crate) fn create(owner: &Owner<'_>, request: &Request) -> Create {
    let mut spec = json!({"jobReference": {"kind": owner.kind.as_str(), "name": owner.name}});
    let is_savepoint = request.kind == SnapshotKind::Savepoint;
    if is_savepoint {
        let settings = owner.settings;
        let format = match settings.savepoint_format {
            SavepointFormatType::Canonical => "CANONICAL",
            SavepointFormatType::Native => "NATIVE",
        };
        spec["savepoint"] = json!({
            "alreadyExists": request.exists_at.is_some(),
            "disposeOnDelete": settings.disposes_on_delete,
            "formatType": format,
        });
        let path = request
            .exists_at
            .as_ref()
            .or(settings.savepoint_directory.as_ref());
        if let Some(path) = path {
            spec["savepoint"]["path"] = json!(path);
        }
    } else {
        spec["checkpoint"] = json!({});
    }
    let typed = FlinkStateSnapshotSpec {
        savepoint: is_savepoint.then(SavepointSpec::default),
        ..FlinkStateSnapshotSpec::default()
    };
    let of = Some((owner.kind, owner.name));
    let labels: BTreeMap<&str, String> =
        snapshot_labels(&typed, Some(request.trigger.as_str()), None, of);
    Create {
        resource: FLINK_STATE_SNAPSHOT,
        object: json!({
            "apiVersion": API_VERSION,
            "kind": KIND_STATE_SNAPSHOT,
            "metadata": {
                "name": request.name,
                "namespace": owner.namespace,
                "labels": labels,
                "annotations": {ANNOTATION_SNAPSHOT_OCCASION: request.name},
            },
            "spec": spec,
        }),
        identity: ChildIdentity::annotation(ANNOTATION_SNAPSHOT_OCCASION, request.name.clone()),
    }
}

const fn kind_label(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Savepoint => "SAVEPOINT",
        SnapshotKind::Checkpoint => "CHECKPOINT",
    }
}

fn is_periodic(snapshot: &SnapshotResource, kind: SnapshotKind) -> bool {
    snapshot.trigger == TriggerType::Periodic.as_str() && snapshot.kind == kind_label(kind)
}

/// When the last periodic snapshot was triggered. Each has a resource, which is created when it is triggered, so that this
/// process has nothing to remember.
pub(crate) fn last_periodic_at(
    kind: SnapshotKind,
    snapshots: &[Arc<SnapshotResource>],
    common: &CommonStatus,
    created: Timestamp,
) -> Timestamp {
    let periodic = snapshots.iter().filter(|it| is_periodic(it, kind));
    let known = LastPeriodic {
        remembered: None,
        newest_resource: periodic.map(|it| it.created_at).max(),
        created,
    };
    triggers::last_periodic(kind, &common.job_status, &known)
}

/// When the next periodic snapshot is due.
pub(crate) fn next_at(
    kind: SnapshotKind,
    config: &FlinkConfig,
    last: Timestamp,
) -> Option<Timestamp> {
    Schedule::of(kind, config).ok()??.next_at(last)
}

/// Whether a periodic snapshot is not over yet.
pub(crate) fn is_under_way(kind: SnapshotKind, snapshots: &[Arc<SnapshotResource>]) -> bool {
    let mut periodic = snapshots.iter().filter(|it| is_periodic(it, kind));
    periodic.any(|it| !is_over(it))
}

fn is_over(snapshot: &SnapshotResource) -> bool {
    let over = [
        SnapshotState::Completed,
        SnapshotState::Failed,
        SnapshotState::Abandoned,
    ];
    over.iter().any(|it| it.as_str() == snapshot.state)
}

/// The resources of snapshots that are too old or too many. The newest complete one stays, and so does what is under way.
pub(crate) fn expired(
    snapshots: &[Arc<SnapshotResource>],
    config: &FlinkConfig,
    now: Timestamp,
) -> Result<Vec<ObjectRef>, Trouble> {
    if !config.get(&operator::SNAPSHOT_CLEANUP)? {
        return Ok(Vec::new());
    }
    let mut expired = Vec::new();
    for kind in [SnapshotKind::Savepoint, SnapshotKind::Checkpoint] {
        let (n_max, max_age) = limits(kind, config)?;
        let ours = [TriggerType::Periodic, TriggerType::Upgrade].map(TriggerType::as_str);
        let is_ours = |it: &&Arc<SnapshotResource>| {
            let is_made = ours.contains(&it.trigger.as_str());
            is_made && it.kind == kind_label(kind) && is_over(it) && !it.is_deleting
        };
        let mut of_kind: Vec<_> = snapshots.iter().filter(is_ours).collect();
        of_kind.sort_by_key(|it| (it.created_at, it.target.name.clone()));
        let is_complete =
            |it: &&Arc<SnapshotResource>| it.state == SnapshotState::Completed.as_str();
        let newest = of_kind.iter().rposition(is_complete);
        let mut n_left = of_kind.len();
        for (at, snapshot) in of_kind.iter().enumerate() {
            let is_old = max_age.is_some_and(|max| now.duration_since(snapshot.created_at) > max);
            if Some(at) != newest && n_left > 1 && (n_left > n_max || is_old) {
                n_left -= 1;
                expired.push(snapshot.target.clone());
            }
        }
    }
    Ok(expired)
}

/// How many snapshots stay, and for how long.
fn limits(
    kind: SnapshotKind,
    config: &FlinkConfig,
) -> Result<(usize, Option<SignedDuration>), Trouble> {
    let count = |n: i32| usize::try_from(n).unwrap_or_default().max(1);
    if kind == SnapshotKind::Checkpoint {
        return Ok((count(config.get(&RETAINED)?), None));
    }
    let n_max = config.get(&operator::HISTORY_COUNT)?;
    let n_limit = config.find(&operator::HISTORY_COUNT_THRESHOLD)?;
    let age = config.get(&operator::HISTORY_AGE)?;
    let age_limit = config.find(&operator::HISTORY_AGE_THRESHOLD)?;
    let n_max = n_limit.map_or(n_max, |limit| n_max.min(limit));
    let age = age_limit.map_or(age, |limit| age.min(limit));
    Ok((count(n_max), Some(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    /// A periodic savepoint that was created so many hours ago.
    fn savepoint(name: &str, hours: i64, state: SnapshotState) -> Arc<SnapshotResource> {
        Arc::new(SnapshotResource {
            target: ObjectRef {
                resource: FLINK_STATE_SNAPSHOT,
                namespace: "default".to_owned(),
                name: name.to_owned(),
                uid: Some(name.to_owned()),
            },
            job: ("FlinkDeployment".to_owned(), "a".to_owned()),
            kind: "SAVEPOINT".to_owned(),
            trigger: "PERIODIC".to_owned(),
            state: state.as_str().to_owned(),
            created_at: NOW - SignedDuration::from_hours(hours),
            is_deleting: false,
        })
    }

    fn names(snapshots: &[Arc<SnapshotResource>], pairs: &[(&str, &str)]) -> Vec<String> {
        let config = pairs.iter().copied().collect();
        let expired = expired(snapshots, &config, NOW).unwrap();
        expired.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn the_newest_complete_snapshot_stays_however_old_it_is() {
        use SnapshotState::{Completed, Failed, InProgress};
        let snapshots = [
            savepoint("a", 50, Completed),
            savepoint("b", 49, Completed),
            savepoint("c", 48, Failed),
            savepoint("d", 40, InProgress),
        ];
        assert_eq!(names(&snapshots, &[]), ["a", "c"]);
        let off = [("kubernetes.operator.savepoint.cleanup.enabled", "false")];
        assert!(names(&snapshots, &off).is_empty());
    }

    #[test]
    fn the_oldest_snapshots_beyond_the_count_go() {
        let complete = |name, hours| savepoint(name, hours, SnapshotState::Completed);
        let snapshots = [complete("c", 1), complete("a", 3), complete("b", 2)];
        let two = [("kubernetes.operator.savepoint.history.max.count", "2")];
        assert_eq!(names(&snapshots, &two), ["a"]);
        let one = [
            ("kubernetes.operator.savepoint.history.max.count", "2"),
            (
                "kubernetes.operator.savepoint.history.max.count.threshold",
                "1",
            ),
        ];
        assert_eq!(names(&snapshots, &one), ["a", "b"]);
    }

    #[test]
    fn what_users_made_is_not_cleaned_up() {
        let mut manual = SnapshotResource::clone(&savepoint("a", 90, SnapshotState::Completed));
        manual.trigger = "MANUAL".to_owned();
        let snapshots = [
            Arc::new(manual),
            savepoint("b", 1, SnapshotState::Completed),
        ];
        assert!(names(&snapshots, &[]).is_empty());
    }
}
