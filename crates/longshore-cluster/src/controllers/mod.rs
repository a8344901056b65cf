//! The controllers that every cluster needs: owner garbage collection, namespace deletion, binding
//! of pods to nodes, workloads and Jobs, the endpoints of services, the status of disruption budgets, and aggregated
//! roles.
//!
//! The controllers are ordinary clients of the API: they know a `kube::Client` and nothing of the server behind it,
//! keep no state that a restart would miss, and retry whatever fails.

mod cluster_roles;
mod deployment;
mod disruption;
mod endpoint_slices;
mod endpoints;
mod gc;
mod job;
mod namespaces;
mod patience;
mod queue;
mod recorder;
mod replica_set;
mod resources;
mod scheduler;
mod service_accounts;
mod stateful_set;
mod workloads;

use kube::Client;
use tokio_util::sync::CancellationToken;

/// Runs all controllers of this module until `shutdown` is cancelled.
///
/// *Cancellation:* the future may be dropped at any point; the next run continues from the objects
/// in the API.
pub async fn run(client: Client, shutdown: CancellationToken) {
    let all = futures::future::join5(
        gc::run(client.clone()),
        namespaces::run(client.clone()),
        disruption::run(client.clone()),
        scheduler::run(client.clone()),
        workloads::run(client.clone()),
    );
    let all = futures::future::join(all, cluster_roles::run(client));
    // The futures are large; none of them ever ends by itself.
    let _ = shutdown.run_until_cancelled(Box::pin(all)).await;
}

/// Makes an account `default` in each namespace, and, when `root_ca` is given, a ConfigMap `kube-root-ca.crt` with this
/// certificate (PEM), until `shutdown` is cancelled. Clusters of
/// [`PodIdentity::ServiceAccounts`](crate::PodIdentity) need it.
///
/// *Cancellation:* as of [`run`].
pub async fn run_service_accounts(
    client: Client,
    root_ca: Option<String>,
    shutdown: CancellationToken,
) {
    let running = service_accounts::run(client, root_ca);
    let _ = shutdown.run_until_cancelled(Box::pin(running)).await;
}
