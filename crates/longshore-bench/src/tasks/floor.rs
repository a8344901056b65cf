//! A bare client that makes the six writes of an action, in the controller's order, and reads nothing.

use std::pin::pin;

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use longshore_api::flyte::{
    FINALIZER_PLUGIN, LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS, TERMINATED,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Board, Load, Loaded, Observed, Template, create, loaded, name};
use crate::{figures::Times, seen::until};

/// A bare client in place of the controller.
#[derive(Clone)]
pub(super) struct Floor {
    pub(super) actions: Api<DynamicObject>,
    pub(super) pods: Api<Pod>,
    pub(super) board: Board,
    pub(super) template: Template,
    /// The pod that the controller created.
    pub(super) pod: Value,
}

impl Floor {
    pub(super) async fn one_by_one(&self, series: &str, n: usize) -> Result<Times> {
        let mut times = Times::default();
        for i in 0..n {
            let name = name(series, i);
            let (_, asked_at) = create(&self.actions, &self.template, name.clone()).await?;
            self.run(&name).await?;
            let what = format!("the pod of {name}");
            let pod_at = |seen: &Observed| seen.pods.get(&name).map(|(at, _)| *at);
            let pod_at = until(&self.board.seen, &what, pod_at).await?;
            times.push(pod_at.duration_since(asked_at));
        }
        Ok(times)
    }

    pub(super) async fn all_at_once(&self, load: Load<'_>) -> Result<Loaded> {
        let began = Instant::now();
        let (mut created, mut running) = (Vec::new(), Vec::new());
        let mut creating = pin!(load.create(&self.actions, &self.template));
        while let Some((name, asked_at)) = creating.try_next().await? {
            let floor = self.clone();
            created.push((name.clone(), asked_at));
            running.push(tokio::spawn(async move { floor.run(&name).await }));
        }
        for run in running {
            run.await??;
        }
        loaded(&self.board, load.series, began, &created).await
    }

    /// The six writes of one action, in the controller's order.
    async fn run(&self, name: &str) -> Result<()> {
        self.patch(
            name,
            json!({"metadata": {"finalizers": [FINALIZER_PLUGIN]}}),
        )
        .await?;
        let mut pod = self.pod.clone();
        pod["metadata"]["name"] = json!(format!("{name}-0"));
        let pod: Pod = serde_json::from_value(pod)?;
        self.pods.create(&PostParams::default(), &pod).await?;
        self.status(name, &["Queued"]).await?;
        let what = format!("the end of the pod of {name}");
        let ended = |seen: &Observed| seen.ended_pods.contains(name).then_some(());
        let status = self.status(name, &["Queued", "Executing"]);
        let (status, ended) = tokio::join!(status, until(&self.board.seen, &what, ended));
        status.and(ended)?;
        self.status(name, &["Queued", "Executing", "Completed"])
            .await?;
        let labels = json!({
            LABEL_TERMINATION_STATUS: TERMINATED, LABEL_COMPLETED_TIME: "2026-11-21.10-00",
        });
        self.patch(name, json!({"metadata": {"labels": labels}}))
            .await
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.actions
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// A status as long as a controller's: with a history of these phases.
    async fn status(&self, name: &str, phases: &[&str]) -> Result<()> {
        let at = "2026-11-21T10:00:00Z";
        let last = phases.last().copied().unwrap_or_default();
        let entry =
            |phase: &&str| json!({"phase": phase, "occurredAt": at, "message": "as always"});
        let history: Vec<Value> = phases.iter().map(entry).collect();
        let status = json!({"status": {
            "stateJson": format!("{{\"actionId\":\"bench/{name}\",\"phase\":\"Phase{last}\",\"timestamp\":\"{at}\"}}"),
            "pluginState": BASE64_STANDARD.encode([0; 160]),
            "pluginStateVersion": 1,
            "pluginPhase": format!("Phase{last}"),
            "attempts": 1,
            "phaseHistory": history,
            "conditions": [{
                "type": "Progressing", "status": "True", "reason": last, "message": "as always",
                "lastTransitionTime": at,
            }],
        }});
        self.actions
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }
}
