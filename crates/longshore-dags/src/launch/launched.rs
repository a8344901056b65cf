//! What the launchers have in common: a try is launched as one object of a kind, and a watch reports its changes.

use std::sync::Arc;

use kube::ResourceExt;
use longshore_api::{airflow::ANNOTATION_TASK_INSTANCE_ID, dags::ANNOTATION_LAUNCH};
use longshore_core::ObjectRef;
use longshore_kit::cache::{Cache, Cached};
use uuid::Uuid;

use super::{
    decide::{LaunchedPhase, LaunchedView, PodTime},
    table::LaunchTable,
};
use crate::{
    model::Launcher,
    scheduler::facts::{LaunchChange, LaunchFact},
};

/// What the watch said about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedEvent {
    /// It is there: listed, added or modified.
    Applied,
    /// It is gone from the API server, and this was its last state.
    Deleted,
    /// It is gone from the API server, and later states than this one may have gone unseen.
    Vanished,
}

/// The objects of one launcher. They carry the id of their try and the number of their launch as annotations.
pub(crate) trait Launched: Cached {
    /// Whose objects they are.
    const LAUNCHER: Launcher;

    /// The selector of those that are still of interest.
    fn selector(scheduler_id: &str) -> String;

    /// The cache of those that were seen.
    fn cache(table: &LaunchTable) -> &Arc<Cache<Self>>;

    /// Where it is in its life.
    fn phase(&self) -> LaunchedPhase;

    /// The IP address of the node that has its log; empty where the object does not have it.
    fn node(&self) -> &str;

    /// How long it may run; nothing of an object that is no pod.
    fn time(&self) -> PodTime {
        PodTime::default()
    }

    /// What keeps it from its start, for people.
    fn pending(&self) -> Option<String> {
        None
    }

    /// What an event about it means.
    fn change(&self, event: WatchedEvent) -> LaunchChange;
}

/// The try and the launch that an object belongs to; `None` where it is not ours.
pub(crate) fn launch_of<K: kube::Resource>(object: &K) -> Option<(Uuid, u32)> {
    let annotations = object.meta().annotations.as_ref()?;
    let ti_id = annotations.get(ANNOTATION_TASK_INSTANCE_ID)?.parse().ok()?;
    let launch = annotations.get(ANNOTATION_LAUNCH)?.parse().ok()?;
    Some((ti_id, launch))
}

/// What follows from an event; `None` where the object is not ours.
pub(crate) fn fact_of<K: Launched>(event: WatchedEvent, object: &K) -> Option<LaunchFact> {
    let (ti_id, launch) = launch_of(object)?;
    let meta = object.meta();
    Some(LaunchFact {
        ti_id,
        launch,
        pod_name: meta.name.clone()?,
        pod_uid: meta.uid.clone()?,
        resource_version: meta.resource_version.clone(),
        what: object.change(event),
    })
}

/// The object as the decision sees it; `None` where it is not ours.
pub(crate) fn view_of<K: Launched>(object: &K) -> Option<LaunchedView> {
    let (_, launch) = launch_of(object)?;
    let meta = object.meta();
    Some(LaunchedView {
        object: ObjectRef {
            resource: K::LAUNCHER.resource(),
            namespace: object.namespace().unwrap_or_default(),
            name: meta.name.clone()?,
            uid: Some(meta.uid.clone()?),
        },
        resource_version: meta.resource_version.clone(),
        launch,
        phase: object.phase(),
        is_deleting: meta.deletion_timestamp.is_some(),
        node: object.node().to_owned(),
        created_at: meta.creation_timestamp.as_ref().map(|time| time.0),
        time: object.time(),
    })
}
