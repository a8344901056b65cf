//! The deletion of a namespace with all its pods. The namespace controller deletes the pods as a
//! collection, which stops at the first refusal.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Pods, seconds};
use crate::rig::Rig;

/// Kubernetes' namespace controller begins so long after the deletion.
const GRACE: Duration = Duration::from_secs(5);
/// An empty namespace is gone by then, if the cluster has a namespace controller.
const PROBED: Duration = Duration::from_secs(15);
/// Between looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long it waits after a failure at first, and at most: twice as long each time.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// Deletes a namespace of pods that serve. Returns how long it took until all of them were gone,
/// and whether the cluster or this program deleted them.
pub(super) async fn measure(rig: &Rig, pods: &Pods<'_>, n: usize) -> Result<Value> {
    let is_emptied = are_namespaces_emptied(rig).await?;
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    let name = format!("{}-goes", rig.namespace);
    create(&namespaces, &name).await?;
    let going = Pods {
        api: Api::namespaced(rig.client.clone(), &name),
        ..*pods
    };
    going.serve("g", n).await?;
    let began = Instant::now();
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let gone = pods.board.until_gone("g", n);
    let last = if is_emptied {
        gone.await?
    } else {
        tokio::select! {
            gone = gone => gone?,
            never = empty(rig.client.clone(), &name) => match never {},
        }
    };
    Ok(json!({
        "seconds": seconds(last.duration_since(began)),
        "emptied_by": if is_emptied {
            "the cluster's namespace controller"
        } else {
            "the bench, at the pace of a namespace controller"
        },
    }))
}

/// Whether a namespace controller runs.
async fn are_namespaces_emptied(rig: &Rig) -> Result<bool> {
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    let name = format!("{}-probe", rig.namespace);
    create(&namespaces, &name).await?;
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let gone = async {
        while namespaces.get_opt(&name).await?.is_some() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(PROBED, gone).await {
        Ok(gone) => gone.map(|()| true),
        Err(_) => Ok(false),
    }
}

async fn create(namespaces: &Api<Namespace>, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}

/// Deletes all pods of a namespace, again and again.
async fn empty(client: Client, namespace: &str) -> std::convert::Infallible {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let (mut wait, longest) = BACK_OFF;
    tokio::time::sleep(GRACE).await;
    loop {
        // Refused at first: the pods go one after the other, or by themselves.
        let _ = pods
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await;
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}
