//! The pods of one try: created when its row is queued, removed when its row no longer wants them.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::dags::ANNOTATION_LAUNCH;
use longshore_core::{Class, Classify, Never, Plan, Seen};
use longshore_kit::{Controller, Refusal};
use longshore_store::{StoreError, TaskInstance, TaskState};
use serde_json::Value;
use uuid::Uuid;

use super::{
    build::{self, BuildInput},
    decide::{PodsConfig, PodsEffect, PodsObserved, TaskView, decide_pods},
    keep_logs::LogKey,
};
use crate::{
    scheduler::{board::ActiveRun, facts::Fact},
    service::shared::Shared,
};

/// Makes the cluster hold the pods that the committed rows ask for, and no others of ours.
pub(crate) struct Pods {
    shared: Arc<Shared>,
    config: PodsConfig,
}

/// Why a round about pods failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodsError {
    /// The store could not tell about a try.
    #[error("the try of a pod cannot be read")]
    Store(#[from] StoreError),
}

impl Classify for PodsError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
        }
    }
}

impl Pods {
    pub(crate) fn new(shared: Arc<Shared>, config: PodsConfig) -> Self {
        Self { shared, config }
    }

    async fn task(&self, ti_id: &Uuid, has_pods: bool) -> Result<Seen<TaskView>, StoreError> {
        if self.shared.inbox.is_waiting_for(ti_id) {
            return Ok(Seen::Unknown(
                "the scheduler has not taken in what its pods say".to_owned(),
            ));
        }
        if let Some((_, row)) = self.shared.board().task_instance_by_id(ti_id) {
            return Ok(Seen::Present(view(row)));
        }
        if !has_pods {
            // Over, and nothing left of it: not worth a look into the store.
            return Ok(Seen::Absent);
        }
        let ended = self.shared.store.try_by_id(*ti_id).await?;
        Ok(ended.as_ref().map(view).into())
    }

    /// The pod that a row wants, or wanted when it was cleared.
    fn wanted(&self, ti_id: &Uuid) -> Option<Result<Value, String>> {
        let board = self.shared.board();
        let (active, row) = board.task_instance_by_id(ti_id)?;
        let has_wanted = matches!(row.state, Some(TaskState::Queued | TaskState::Restarting));
        has_wanted.then(|| self.build(active, row))
    }

    fn build(&self, active: &ActiveRun, row: &TaskInstance) -> Result<Value, String> {
        let task = active
            .dag
            .tasks
            .get(&row.key.task_id)
            .ok_or_else(|| format!("task {} is not in the DAG of its run", row.key))?;
        let results = active
            .tasks
            .iter()
            .filter_map(|(task_id, row)| Some((task_id.clone(), row.result.clone()?)))
            .collect();
        build::build_pod(&BuildInput {
            run: &active.run,
            dag: &active.dag,
            task,
            task_instance: row,
            results: &results,
            config: &self.shared.pod_config,
        })
        .map_err(|error| error.to_string())
    }
}

impl Controller for Pods {
    type Key = Uuid;
    type Observed = PodsObserved;
    type Status = Never;
    type Effect = PodsEffect;
    type Error = PodsError;

    fn name(&self) -> &'static str {
        "dags.pods"
    }

    async fn observe(&self, ti_id: &Uuid, now: Timestamp) -> Result<PodsObserved, PodsError> {
        let mut pods = self.shared.pods.of(ti_id, None);
        let mut task = self.task(ti_id, pods.present().is_some()).await?;
        if let (Seen::Present(task), true) = (&mut task, pods.is_absent()) {
            task.pod = self.wanted(ti_id);
            if let Some(Ok(pod)) = &task.pod {
                // The kit's live reads put a pod of ours into the cache before the watch tells of it.
                pods = self.shared.pods.of(ti_id, Some(name_of(pod)));
            }
        }
        let is_archived = |uid: &String| self.shared.pods.is_archived(Some(uid));
        let uids = pods.present().into_iter().flatten();
        let uids = uids.filter_map(|pod| pod.object.uid.clone());
        let archived = uids.filter(is_archived).collect();
        Ok(PodsObserved {
            now,
            ti_id: *ti_id,
            task,
            pods,
            replay_done: self.shared.pods.is_replayed(),
            config: self.config,
            archived,
        })
    }

    fn decide(&self, observed: &PodsObserved) -> Plan<Never, PodsEffect> {
        decide_pods(observed)
    }

    async fn persist(&self, _ti_id: &Uuid, status: &Never) -> Result<(), PodsError> {
        match *status {}
    }

    async fn call(&self, ti_id: &Uuid, effect: &PodsEffect) -> Result<(), PodsError> {
        match effect {
            PodsEffect::ArchiveLog { pod, .. } => {
                let (ti_id, pod) = (*ti_id, pod.clone());
                self.shared.log_keys.add([LogKey { ti_id, pod }]);
                Ok(())
            }
            PodsEffect::ReportEnded => {
                self.shared.inbox.push(Fact::PodsEnded { ti_id: *ti_id });
                Ok(())
            }
            PodsEffect::ReportBuildFailure { launch, message } => {
                self.shared.inbox.push(Fact::LaunchBuildFailed {
                    ti_id: *ti_id,
                    launch: *launch,
                    message: message.clone(),
                });
                Ok(())
            }
        }
    }

    /// The API server will never take this pod: that is how its launch ended.
    fn refused(&self, ti_id: &Uuid, refusal: &Refusal) {
        let create = refusal.create.as_ref();
        let launch = create.and_then(|create| {
            create.object["metadata"]["annotations"][ANNOTATION_LAUNCH]
                .as_str()?
                .parse()
                .ok()
        });
        if let Some(launch) = launch {
            self.shared.inbox.push(Fact::LaunchRefused {
                ti_id: *ti_id,
                launch,
                message: refusal.message.clone(),
            });
        }
    }
}

fn view(row: &TaskInstance) -> TaskView {
    TaskView {
        state: row.state,
        launch: row.launch,
        pod_uid: row.pod_uid.clone(),
        pod: None,
    }
}

fn name_of(pod: &Value) -> (String, String) {
    let text = |field: &str| {
        pod["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}
