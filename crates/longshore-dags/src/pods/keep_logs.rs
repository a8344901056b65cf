//! The log of one pod, on its way to where it outlives the pod.
//!
//! These rounds are beside those of the pods: however long a node takes for its logs, or however often it refuses them,
//! no pod is created or deleted later for it than the one whose log it is.

use std::{fmt, io, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use longshore_api::airflow::CONTAINER_BASE;
use longshore_core::{Action, Class, Classify, Never, ObjectRef, Plan};
use longshore_kit::Controller;
use longshore_store::{StoreError, TaskInstance};
use uuid::Uuid;

use super::log::{self, Broken, OnError};
use crate::{
    logs::{LogArchive, LogPath, LogStream},
    service::shared::Shared,
};

/// A pod whose log is wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogKey {
    /// Its try.
    pub(crate) ti_id: Uuid,
    /// The pod.
    pub(crate) pod: ObjectRef,
}

impl fmt::Display for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pod.fmt(f)
    }
}

/// Keeps the logs that the rounds of the pods want.
pub(crate) struct KeepLogs {
    shared: Arc<Shared>,
    client: Client,
    logs: Arc<dyn LogArchive>,
}

/// Why a log is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepLogError {
    /// The store could not tell about a try.
    #[error("the try of a pod cannot be read")]
    Store(#[from] StoreError),
    /// The API server did not give the log.
    #[error("the log of {pod} cannot be read")]
    Read {
        /// The pod.
        pod: ObjectRef,
        /// What the client answered, or how the stream broke.
        source: io::Error,
    },
    /// The archive did not take the log.
    #[error("the log of {pod} cannot be stored")]
    Archive {
        /// The pod.
        pod: ObjectRef,
        /// What the archive answered.
        source: io::Error,
    },
}

impl Classify for KeepLogError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Read { .. } | Self::Archive { .. } => Class::Retry,
        }
    }
}

/// Whether a log is still to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Yes,
    /// It is kept, or its pod is gone.
    No,
}

/// Keeps the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep;

impl KeepLogs {
    pub(crate) fn new(shared: Arc<Shared>, client: Client, logs: Arc<dyn LogArchive>) -> Self {
        Self {
            shared,
            client,
            logs,
        }
    }

    /// The row of a try: on the board, or in the store if the try or its run is over.
    async fn row(&self, ti_id: &Uuid) -> Result<Option<Arc<TaskInstance>>, StoreError> {
        if let Some((_, row)) = self.shared.board().task_instance_by_id(ti_id) {
            return Ok(Some(row.clone()));
        }
        Ok(self.shared.store.try_by_id(*ti_id).await?.map(Arc::new))
    }

    /// Stores the log of a pod. One that cannot be read for long is given up, with a line in the archive that says so:
    /// else its pod would stay for ever.
    async fn keep(&self, LogKey { ti_id, pod }: &LogKey) -> Result<(), KeepLogError> {
        let (table, now) = (&self.shared.pods, self.shared.clock.now());
        let uid = pod.uid.as_deref().unwrap_or_default();
        let Some(row) = self.row(ti_id).await? else {
            return Ok(()); // Nobody will ask for it.
        };
        let log = match log::in_time(self.open(pod)).await {
            // A pod that never started has no log.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 404) => {
                tracing::debug!(pod = %pod, message = %status.message, "no log to keep");
                table.set_archived(uid);
                return Ok(());
            }
            Ok(log) => log.map_err(io::Error::other),
            Err(late) => Err(late),
        };
        let since = table.unreadable_since(uid);
        let on_error = OnError::at(now, since, pod, table.phase(pod));
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
                if since.is_none() {
                    tracing::warn!(pod = %pod, error = %source, "the log cannot be read; its pod stays for a while");
                }
                table.set_unreadable(uid, now);
                let pod = pod.clone();
                Err(KeepLogError::Read { pod, source })
            }
            (Err(source), None) => {
                let pod = pod.clone();
                Err(KeepLogError::Archive { pod, source })
            }
        }
    }

    async fn open(&self, pod: &ObjectRef) -> Result<LogStream, kube::Error> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        let params = LogParams {
            container: Some(CONTAINER_BASE.to_owned()),
            ..LogParams::default()
        };
        let log = pods.log_stream(&pod.name, &params).await?;
        Ok(Box::pin(log))
    }
}

impl Controller for KeepLogs {
    type Key = LogKey;
    type Observed = Wanted;
    type Status = Never;
    type Effect = Keep;
    type Error = KeepLogError;

    fn name(&self) -> &'static str {
        "dags.logs"
    }

    async fn observe(&self, key: &LogKey, _now: Timestamp) -> Result<Wanted, KeepLogError> {
        let table = &self.shared.pods;
        let uid = key.pod.uid.as_deref();
        let is_gone = !table.has(&key.ti_id, uid.unwrap_or_default());
        let is_wanted = !is_gone && !table.is_archived(uid);
        Ok(if is_wanted { Wanted::Yes } else { Wanted::No })
    }

    fn decide(&self, wanted: &Wanted) -> Plan<Never, Keep> {
        Plan::of(match wanted {
            Wanted::Yes => vec![Action::Call(Keep)],
            Wanted::No => Vec::new(),
        })
    }

    async fn persist(&self, _key: &LogKey, status: &Never) -> Result<(), KeepLogError> {
        match *status {}
    }

    /// What becomes of the pod is for its own round to say.
    async fn call(&self, key: &LogKey, Keep: &Keep) -> Result<(), KeepLogError> {
        self.keep(key).await?;
        self.shared.pod_keys.add([key.ti_id]);
        Ok(())
    }
}
