//! Copies the log of one try to the archive: what a [`LogQuestion`] asks.

use std::{io, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use longshore_api::airflow::CONTAINER_BASE;
use longshore_core::{AskError, NoAnswer, error::chain};
use longshore_kit::{AskLimits, Gate, KindLimits};
use longshore_plugins::TASK_ACTION;
use tokio_util::sync::CancellationToken;

use super::{
    decide::{LogAnswer, LogQuestion},
    log::{self, COPY_LIMIT, Copying},
};
use crate::{
    actions::{self, TaskPod},
    logs::{LogArchive, LogStream, StorePermit},
    measures::DagMeasures,
};

/// The limits of questions about logs, where one node returns at most `concurrency` logs at a time.
///
/// A cluster of one node has all of its logs copied with that limit, and a node that returns none leaves four fifths of
/// the places to the others. The time limit is the last resort: a copy that does not go on fails earlier by itself.
pub(crate) fn limits(concurrency: usize) -> AskLimits {
    let per_node = concurrency.max(1);
    let each = KindLimits {
        in_flight: 5 * per_node,
        in_flight_per_host: per_node,
        timeout: COPY_LIMIT,
        ..KindLimits::default()
    };
    AskLimits {
        in_flight: each.in_flight,
        each,
        ..AskLimits::default()
    }
}

/// Reads logs from the API server, and stores them in the archive.
pub(crate) struct LogKeeper {
    client: Client,
    archive: Arc<dyn LogArchive>,
    gate: Gate,
    measures: DagMeasures,
}

impl LogKeeper {
    /// A keeper whose archive stores nothing once `gate` is closed.
    pub(crate) fn new(
        client: Client,
        archive: Arc<dyn LogArchive>,
        gate: Gate,
        measures: DagMeasures,
    ) -> Self {
        Self {
            client,
            archive,
            gate,
            measures,
        }
    }

    /// Copies a log. It is never held in memory as a whole.
    ///
    /// *Cancellation*: the archive replaces no log afterwards.
    ///
    /// # Errors
    /// The archive did not store the log. That a log cannot be read is an answer.
    pub(crate) async fn keep(&self, question: &LogQuestion) -> Result<LogAnswer, AskError> {
        let log = match log::in_time(self.open(question)).await {
            Ok(Ok(None)) => return Ok(LogAnswer::NoLog),
            Ok(Ok(Some(log))) => Ok(log),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(late) => Err(late),
        };
        let given_up = CancellationToken::new();
        let permit = StorePermit::new(self.gate.clone(), given_up.clone());
        let _given_up = given_up.drop_guard();
        let copying = Copying::default();
        let log = log::watched(log, question.on_error.clone(), copying.clone());
        let stored = tokio::select! {
            stored = self.archive.store(&question.path, log, permit) => stored,
            error = copying.archive_stalls() => Err(error),
        };
        self.measures.stored_log(stored.is_ok());
        match (stored, copying.take_error()) {
            (Ok(()), None) => Ok(LogAnswer::Stored),
            (Ok(()), Some(error)) => Ok(LogAnswer::StoredInPart(chain(&error))),
            (Err(_), Some(error)) => Ok(LogAnswer::Unreadable(chain(&error))),
            (Err(error), None) => {
                let has_timed_out = error.kind() == io::ErrorKind::TimedOut;
                let why = if has_timed_out {
                    NoAnswer::TimedOut
                } else {
                    NoAnswer::Unreachable
                };
                let error = chain(&error);
                Err(AskError::new(
                    why,
                    format!("the log cannot be stored: {error}"),
                ))
            }
        }
    }

    /// The log of a pod, or of the pod that a TaskAction has made; `None` where nothing has started.
    async fn open(&self, question: &LogQuestion) -> Result<Option<LogStream>, kube::Error> {
        let object = &question.object;
        let pods = Api::<Pod>::namespaced(self.client.clone(), &object.namespace);
        let pod = if object.resource == TASK_ACTION {
            actions::pod_of(&pods, &question.ti_id).await?
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
