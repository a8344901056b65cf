//! What a node has left that was killed, or that was the node of a cluster which is gone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    clock,
    pod::{directory, shim_link::ShimLink, success},
    shim::protocol::Command,
};

/// Ends what still runs in the directory of a node, and returns the pods that have succeeded by themselves, each with the
/// status that tells its end.
///
/// # Flow
/// For a cluster in memory, whose earlier process was killed with all that it knew of its pods: what is returned goes
/// into the new cluster, with the same uids, before its node starts. That node takes these pods over as after any
/// restart, and removes what is left of the others.
///
/// # Guarantees
/// Nothing of the earlier pods runs when it returns. A container that was asked to end has not succeeded by itself,
/// whatever its exit code is.
///
/// # Assumptions
/// No node uses the directory.
pub async fn take_successes(root: &Path) -> Vec<Pod> {
    let pods_dir = root.join("pods");
    end_all(&pods_dir).await;
    let mut successes = Vec::new();
    for dir in directories(&pods_dir) {
        match success::recall(&dir, clock::now()) {
            Ok(pod) => successes.extend(pod),
            Err(error) => {
                tracing::warn!(pod = %dir.display(), %error, "cannot read how a pod has ended");
            }
        }
    }
    successes
}

/// Ends what still runs of a node that was killed, before anything starts: a task must not meet its own last try.
pub(crate) async fn end_all(pods_dir: &Path) {
    let ended = directories(pods_dir).into_iter().map(|dir| async move {
        if let Err(error) = end_one(&dir).await {
            tracing::warn!(pod = %dir.display(), %error, "cannot end what is left of a pod");
        }
    });
    futures::future::join_all(ended).await;
}

/// Kills what runs under the shim of a pod, and waits until it has ended. Where something has cleaned up the memory with its
/// socket, its containers are found by their records; a shim that keeps its socket there ends by itself without its node.
pub(crate) async fn end_one(dir: &Path) -> io::Result<()> {
    if let Some(mut shim) = ShimLink::find(dir)? {
        shim.send(&Command::Quit).await;
        // Reports until the end of the connection: then every process has ended.
        while shim.next().await.is_some() {}
        return Ok(());
    }
    directory::end_survivors(dir)
}

fn directories(pods_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(pods_dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
