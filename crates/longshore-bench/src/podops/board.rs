//! The observed pods, and when they were observed.

use std::{collections::BTreeMap, pin::pin};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, LABEL_SERVICE_AVAILABLE};
use longshore_kit::{Cache, ListWatch, Update};
use tokio::{sync::watch, time::Instant};

use super::node::{Node, PLAYED, is_true};
use crate::{rig::Rig, seen::until};

/// The observed pods. Clones share it.
#[derive(Clone)]
pub(super) struct Board {
    seen: watch::Receiver<BTreeMap<String, ObservedPod>>,
}

/// Of one pod. No two of a measurement have the same name.
#[derive(Default)]
struct ObservedPod {
    serves: bool,
    gone_at: Option<Instant>,
}

impl Board {
    pub(super) fn follow(rig: &Rig, node: &Node) -> Self {
        let (tell, seen) = watch::channel(BTreeMap::new());
        let pods: Api<Pod> = Api::all(rig.client.clone());
        let played = format!("{PLAYED}={}", node.name());
        tokio::spawn(async move {
            let pods = ListWatch::new(pods).labels(played);
            let mut pods = pin!(pods.into_cache(Cache::new()));
            while let Some(update) = pods.next().await {
                let is_gone = matches!(update, Update::Deleted(_));
                if let Some(pod) = update.into_object() {
                    tell.send_modify(|seen: &mut BTreeMap<String, ObservedPod>| {
                        let seen = seen.entry(pod.name_any()).or_default();
                        seen.serves = serves(&pod);
                        seen.gone_at = is_gone.then(Instant::now);
                    });
                }
            }
        });
        Self { seen }
    }

    /// Waits until so many pods of a series serve.
    pub(super) async fn until_serving(&self, series: &str, n: usize) -> Result<()> {
        let what = format!("{n} pods {series} that serve");
        until(&self.seen, &what, |seen| {
            let serving = of(seen, series).filter(|pod| pod.serves && pod.gone_at.is_none());
            (serving.count() >= n).then_some(())
        })
        .await
    }

    /// Waits until so many pods of a series are gone, and answers when the last one was.
    pub(super) async fn until_gone(&self, series: &str, n: usize) -> Result<Instant> {
        until(
            &self.seen,
            &format!("the end of {n} pods {series}"),
            |seen| {
                let gone: Vec<Instant> = of(seen, series).filter_map(|pod| pod.gone_at).collect();
                gone.iter().max().copied().filter(|_| gone.len() >= n)
            },
        )
        .await
    }
}

/// `series` itself, and `series-…`.
fn of<'a>(
    seen: &'a BTreeMap<String, ObservedPod>,
    series: &str,
) -> impl Iterator<Item = &'a ObservedPod> {
    seen.iter()
        .filter(move |(name, _)| {
            let rest = name.strip_prefix(series);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
        .map(|(_, pod)| pod)
}

/// Whether a pod serves: one that takes part has the label of it; any other one is Ready.
fn serves(pod: &Pod) -> bool {
    let labels = pod.labels();
    if labels.get(LABEL_CONTROL).map(String::as_str) == Some(CONTROLLED) {
        labels.contains_key(LABEL_SERVICE_AVAILABLE)
    } else {
        is_true(pod, "Ready")
    }
}
