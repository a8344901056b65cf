//! The log of one try, on its way to where it outlives the pod, or the TaskAction, that has it.
//!
//! These rounds are beside those of the launches: however long a node takes for its logs, or however often it refuses
//! them, nothing is created or deleted later for it than the object whose log it is.

use std::{fmt, io, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use longshore_api::airflow::CONTAINER_BASE;
use longshore_core::{Action, Class, Classify, Never, ObjectRef, Plan};
use longshore_kit::{Answers, Controller};
use longshore_plugins::TASK_ACTION;
use longshore_store::{StoreError, TaskInstance};
use uuid::Uuid;

use super::log::{self, Broken, OnError};
use crate::{
    actions::{self, TaskPod},
    logs::{LogArchive, LogPath, LogStream},
    service::shared::Shared,
};

/// An object whose log is wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogKey {
    /// Its try.
    pub(crate) ti_id: Uuid,
    /// The pod or TaskAction.
    pub(crate) object: ObjectRef,
}

impl fmt::Display for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// Keeps the logs that the rounds of the launches want.
pub(crate) struct KeepLogs {
    shared: Arc<Shared>,
    client: Client,
    logs: Arc<dyn LogArchive>,
}

/// Why a log is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepLogError {
    /// The store could not tell about a try.
    #[error("the try cannot be read")]
    Store(#[from] StoreError),
    /// The API server did not give the log.
    #[error("the log of {object} cannot be read")]
    Read {
        /// What has it.
        object: ObjectRef,
        /// What the client answered, or how the stream broke.
        source: io::Error,
    },
    /// The archive did not take the log.
    #[error("the log of {object} cannot be stored")]
    Archive {
        /// What has it.
        object: ObjectRef,
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
    /// It is kept, or its object is gone.
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

    /// The row of a try.
    async fn row(&self, ti_id: &Uuid) -> Result<Option<Arc<TaskInstance>>, StoreError> {
        if let Some((_, row)) = self.shared.board().task_instance_by_id(ti_id) {
            return Ok(Some(row.clone()));
        }
        self.shared.ended_try(ti_id).await
    }

    /// Stores the log of what ran. One that cannot be read for long is given up, with a line in the archive that says
    /// so: else its object would stay for ever.
    async fn keep(&self, LogKey { ti_id, object }: &LogKey) -> Result<(), KeepLogError> {
        let (launched, now) = (&self.shared.launched, self.shared.clock.now());
        let Some(row) = self.row(ti_id).await? else {
            return Ok(()); // Nobody will ask for it.
        };
        let log = match log::in_time(self.open(ti_id, object)).await {
            // What never started has no log.
            Ok(Ok(None)) => {
                tracing::debug!(%object, "no log to keep");
                launched.set_archived(object);
                return Ok(());
            }
            Ok(Ok(Some(log))) => Ok(log),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(late) => Err(late),
        };
        let since = launched.unreadable_since(object);
        let on_error = OnError::at(now, since, object, launched.phase(object));
        let broken = Broken::default();
        let log = log::watched(log, on_error, broken.clone());
        let stored = self.logs.store(&LogPath::of(&row), log).await;
        let object = object.clone();
        match (stored, broken.take()) {
            (Ok(()), given_up) => {
                if let Some(error) = given_up {
                    tracing::warn!(%object, %error, "the log is not whole");
                }
                launched.set_archived(&object);
                Ok(())
            }
            (Err(_), Some(source)) => {
                if since.is_none() {
                    tracing::warn!(%object, error = %source, "the log cannot be read; what has it stays for a while");
                }
                launched.set_unreadable(&object, now);
                Err(KeepLogError::Read { object, source })
            }
            (Err(source), None) => Err(KeepLogError::Archive { object, source }),
        }
    }

    /// The log of a pod, or of the pod that a TaskAction has made; `None` where nothing has started.
    async fn open(
        &self,
        ti_id: &Uuid,
        object: &ObjectRef,
    ) -> Result<Option<LogStream>, kube::Error> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &object.namespace);
        let pod = if object.resource == TASK_ACTION {
            actions::pod_of(&pods, ti_id).await?
        } else {
            Some(TaskPod {
                name: object.name.clone(),
                container: Some(CONTAINER_BASE.to_owned()),
            })
        };
        let Some(TaskPod { name, container }) = pod else {
            return Ok(None);
        };
        let params = LogParams {
            container,
            ..LogParams::default()
        };
        match pods.log_stream(&name, &params).await {
            Ok(log) => Ok(Some(Box::pin(log))),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Controller for KeepLogs {
    type Key = LogKey;
    type Observed = Wanted;
    type Status = Never;
    type Effect = Keep;
    type Question = Never;
    type Error = KeepLogError;

    fn name(&self) -> &'static str {
        "dags.logs"
    }

    async fn observe(
        &self,
        key: &LogKey,
        _now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Wanted, KeepLogError> {
        let launched = &self.shared.launched;
        let is_there = launched.has(&key.ti_id, &key.object);
        let is_wanted = is_there && !launched.is_archived(&key.object);
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

    /// What becomes of the object is for its own round to say.
    async fn call(&self, key: &LogKey, Keep: &Keep) -> Result<(), KeepLogError> {
        self.keep(key).await?;
        self.shared.launch_keys.add([key.ti_id]);
        Ok(())
    }
}
