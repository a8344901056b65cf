//! The API server itself: what all others stand on.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use longshore_kit::{Cache, ListWatch, Update};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    figures::{Times, per_second},
    rig::Rig,
    say,
};

/// Requests at the same time.
const CLIENTS: usize = 32;
/// No watch event is later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates, patches and deletes `n` ConfigMaps, while a watch follows.
pub(crate) async fn measure(rig: &Rig, n: usize) -> Result<Value> {
    let api: Api<ConfigMap> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let watched = api.clone();
    let watching = tokio::spawn(async move {
        let updates = ListWatch::new(watched).into_cache(Cache::new());
        let mut updates = pin!(updates);
        let mut seen = BTreeMap::new();
        while seen.len() < n {
            if let Some(Update::Applied(object)) = updates.next().await {
                seen.entry(object.name_any()).or_insert_with(Instant::now);
            }
        }
        seen
    });
    say(&format!("{n} ConfigMaps, {CLIENTS} requests at a time"));
    let began = Instant::now();
    let created: Vec<(String, Instant)> = stream::iter(0..n)
        .map(|i| create(&api, i))
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await?;
    let creating = began.elapsed();
    let seen = tokio::time::timeout(PATIENCE, watching).await??;
    let mut lateness = Times::default();
    for (name, asked_at) in &created {
        if let Some(seen_at) = seen.get(name) {
            lateness.push(seen_at.duration_since(*asked_at));
        }
    }
    let began = Instant::now();
    let patch = Patch::Merge(json!({"data": {"key": "another value"}}));
    each(&created, |name| async {
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await?;
    let patching = began.elapsed();
    let began = Instant::now();
    each(&created, |name| async {
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    })
    .await?;
    let deleting = began.elapsed();
    Ok(json!({
        "subsystem": "cluster",
        "server": rig.server,
        "n": n,
        "creates_per_second": per_second(n, creating),
        "patches_per_second": per_second(n, patching),
        "deletes_per_second": per_second(n, deleting),
        "created_to_seen_ms": lateness.milliseconds(),
    }))
}

async fn create(api: &Api<ConfigMap>, i: usize) -> Result<(String, Instant)> {
    let name = format!("object-{i:06}");
    let object = json!({"metadata": {"name": name}, "data": {"key": "value"}});
    let object = serde_json::from_value(object)?;
    let asked_at = Instant::now();
    api.create(&PostParams::default(), &object).await?;
    Ok((name, asked_at))
}

async fn each<'a, F>(created: &'a [(String, Instant)], work: impl Fn(&'a str) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(created)
        .map(|(name, _)| work(name))
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}
