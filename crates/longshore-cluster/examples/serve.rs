//! A cluster in memory, for kubectl: `cargo run -p longshore-cluster --example serve -- DIRECTORY`,
//! then `kubectl --kubeconfig DIRECTORY/kubeconfig get namespaces`. Ends when its input does.

#![expect(clippy::print_stdout, reason = "tells where to find the cluster")]

use std::{error::Error, time::Duration};

use longshore_cluster::{Cluster, ServeConfig, controllers};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("expected a directory")?;
    let cluster = Cluster::in_memory();
    let serving = cluster.serve(ServeConfig::new(directory))?;
    let shutdown = CancellationToken::new();
    tokio::spawn(controllers::run(cluster.client(), shutdown.clone()));
    println!("export KUBECONFIG={}", serving.kubeconfig().display());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    shutdown.cancel();
    serving.stop(Duration::from_secs(5)).await;
    Ok(())
}
