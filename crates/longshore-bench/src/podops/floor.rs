//! A bare client that makes the four writes of a pod that is deleted, in the order of the webhook
//! and the controller, and reads nothing. No webhook is called about its pods.

use std::time::Duration;

use anyhow::Result;
use futures::{TryStreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams};
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, CONDITION_SERVICE_READY, ID_POD_DELETE, LABEL_PREPARING_TO_DELETE,
    LABEL_TO_DELETE, OperationLabel, TYPE_DELETE, operation_permission,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CLIENTS, Pods, name};

/// A text as long as a time stamp of the protocol.
const STAMP: &str = "1717505885197871195";
/// The label value of pods that do not take part.
const UNCONTROLLED: &str = "bench";

/// A bare client in place of webhook and controller.
pub(super) struct Floor<'a> {
    pub(super) pods: &'a Pods<'a>,
}

impl Floor<'_> {
    /// Makes pods; once they are Ready, removes all of them. Returns how long the removal took.
    pub(super) async fn all_at_once(&self, n: usize, series: &str) -> Result<Duration> {
        self.pods.serve_as(UNCONTROLLED, series, n).await?;
        let began = Instant::now();
        stream::iter((0..n).map(Ok))
            .try_for_each_concurrent(CLIENTS, |i| async move { self.run(&name(series, i)).await })
            .await?;
        let last = self.pods.board.until_gone(series, n).await?;
        Ok(last.duration_since(began))
    }

    /// The four writes of one pod.
    async fn run(&self, name: &str) -> Result<()> {
        let of_delete = |label: OperationLabel| label.of(ID_POD_DELETE);
        self.patch(
            name,
            json!({
                "annotations": {ANNOTATION_DELETE_TIMESTAMP: STAMP},
                "labels": {
                    LABEL_TO_DELETE: STAMP,
                    of_delete(OperationLabel::Operating): STAMP,
                    of_delete(OperationLabel::OperationType): TYPE_DELETE,
                    of_delete(OperationLabel::PreCheck): STAMP,
                    LABEL_PREPARING_TO_DELETE: STAMP,
                },
            }),
        )
        .await?;
        self.patch(
            name,
            json!({"labels": {
                of_delete(OperationLabel::PreCheck): null,
                of_delete(OperationLabel::PreChecked): STAMP,
                of_delete(OperationLabel::Preparing): STAMP,
                operation_permission(TYPE_DELETE): STAMP,
            }}),
        )
        .await?;
        let condition = json!({
            "type": CONDITION_SERVICE_READY, "status": "False", "message": "as always",
            "lastTransitionTime": "2026-11-22T10:00:00Z",
        });
        let status = Patch::Strategic(json!({
            "metadata": {"labels": {
                of_delete(OperationLabel::Preparing): null,
                of_delete(OperationLabel::Operate): STAMP,
            }},
            "status": {"conditions": [condition]},
        }));
        let api = &self.pods.api;
        api.patch_status(name, &PatchParams::default(), &status)
            .await?;
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn patch(&self, name: &str, metadata: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.pods
            .api
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}
