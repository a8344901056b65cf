//! The pods of one try: created when its row is queued, removed when its row no longer wants them.

use std::{io, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use longshore_api::{airflow::CONTAINER_BASE, dags::ANNOTATION_LAUNCH};
use longshore_core::{Class, Classify, Never, ObjectRef, Plan, Seen};
use longshore_kit::{Controller, Refusal};
use longshore_store::{StoreError, TaskInstance, TaskState};
use serde_json::Value;
use uuid::Uuid;

use super::{
    build::{self, BuildInput},
    decide::{PodView, PodsConfig, PodsEffect, PodsObserved, TaskView, decide_pods},
    log::{self, Broken, OnError},
};
use crate::{
    logs::{LogArchive, LogPath, LogStream},
    scheduler::{board::ActiveRun, facts::Fact},
    service::shared::Shared,
};

/// Makes the cluster hold the pods that the committed rows ask for, and no others of ours.
pub(crate) struct Pods {
    shared: Arc<Shared>,
    client: Client,
    logs: Arc<dyn LogArchive>,
    config: PodsConfig,
}

/// Why a round about pods failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodsError {
    /// The store could not tell about a try.
    #[error("the try of a pod cannot be read")]
    Store(#[from] StoreError),
    /// The API server did not give the log.
    #[error("the log of {pod} cannot be read")]
    ReadLog {
        /// The pod.
        pod: ObjectRef,
        /// What the client answered, or how the stream broke.
        source: io::Error,
    },
    /// The archive did not take the log.
    #[error("the log of {pod} cannot be stored")]
    StoreLog {
        /// The pod.
        pod: ObjectRef,
        /// What the archive answered.
        source: io::Error,
    },
}

impl Classify for PodsError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::ReadLog { .. } | Self::StoreLog { .. } => Class::Retry,
        }
    }
}

impl Pods {
    pub(crate) fn new(
        shared: Arc<Shared>,
        client: Client,
        logs: Arc<dyn LogArchive>,
        config: PodsConfig,
    ) -> Self {
        Self {
            shared,
            client,
            logs,
            config,
        }
    }

    /// The row of a try: on the board, or in the store if the try or its run is over.
    async fn row(&self, ti_id: &Uuid) -> Result<Option<Arc<TaskInstance>>, StoreError> {
        if let Some((_, row)) = self.shared.board().task_instance_by_id(ti_id) {
            return Ok(Some(row.clone()));
        }
        Ok(self.shared.store.try_by_id(*ti_id).await?.map(Arc::new))
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

    /// Stores the log of a pod. One that cannot be read for long is given up, with a line in the archive that says so:
    /// else its pod would stay for ever.
    async fn archive_log(&self, ti_id: &Uuid, pod: &ObjectRef) -> Result<(), PodsError> {
        let Some(row) = self.row(ti_id).await? else {
            return Ok(());
        };
        let (table, now) = (&self.shared.pods, self.shared.clock.now());
        let uid = pod.uid.as_deref().unwrap_or_default();
        let log = match self.open_log(pod).await {
            // A pod that never started has no log.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => {
                tracing::debug!(pod = %pod, message = %status.message, "no log to keep");
                table.set_archived(uid);
                return Ok(());
            }
            log => log.map_err(io::Error::other),
        };
        let on_error = OnError::at(now, table.unreadable_since(uid), pod, table.phase(pod));
        let broken = Broken::default();
        let log = log::watched(log, on_error, broken.clone());
        let stored = self.logs.store(&LogPath::of(&row), log).await;
        match (stored, broken.take()) {
            (Ok(()), given_up) => {
                if let Some(error) = given_up {
                    tracing::warn!(pod = %pod, %error, "the log is not whole");
                }
                table.set_archived(uid);
                Ok(())
            }
            (Err(_), Some(source)) => {
                table.set_unreadable(uid, now);
                let pod = pod.clone();
                Err(PodsError::ReadLog { pod, source })
            }
            (Err(source), None) => {
                let pod = pod.clone();
                Err(PodsError::StoreLog { pod, source })
            }
        }
    }

    async fn open_log(&self, pod: &ObjectRef) -> Result<LogStream, kube::Error> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        let params = LogParams {
            container: Some(CONTAINER_BASE.to_owned()),
            ..LogParams::default()
        };
        let log = pods.log_stream(&pod.name, &params).await?;
        Ok(Box::pin(log))
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
        let is_archived = |pod: &PodView| self.shared.pods.is_archived(pod.object.uid.as_deref());
        let is_log_archived = pods
            .present()
            .is_some_and(|pods| pods.iter().all(is_archived));
        Ok(PodsObserved {
            now,
            ti_id: *ti_id,
            task,
            pods,
            replay_done: self.shared.pods.is_replayed(),
            config: self.config,
            is_log_archived,
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
            PodsEffect::ArchiveLog { pod, .. } => self.archive_log(ti_id, pod).await,
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
