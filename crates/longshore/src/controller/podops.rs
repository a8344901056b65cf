//! The role `podops`: the controllers of PodOpsLifecycle under a lease, and its webhooks in every replica, because API
//! servers may call any of them.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use longshore_kit::Gate;
use longshore_podops::{follow_api_servers, rule::RULE};
use tokio_util::sync::CancellationToken;

use super::{Context, served::until_served};
use crate::{
    error::CliError,
    output,
    service::{listen, podops},
};

/// The name of the role.
pub(crate) const ROLE: &str = "podops";

/// The name of the role's lease.
pub(super) const LEASE: &str = "longshore-podops";

/// Runs the controllers, for the whole cluster, until `shutdown`.
pub(super) async fn run(
    context: Arc<Context>,
    gate: Gate,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let client = context
        .cluster
        .gated_client(ROLE, &context.metrics, &gate)?;
    let served = until_served(ROLE, RULE, &context, &client);
    if shutdown.run_until_cancelled(served).await.is_none() {
        return Ok(());
    }
    output::note("podops: runs here");
    let settings = &context.config.podops;
    let controllers = settings.controllers(&context.metrics, &context.pods);
    controllers.gated_by(gate).run(client, shutdown).await;
    Ok(())
}

/// Serves the webhooks of podops until `shutdown`.
///
/// Its writes need no lease: each write of a certificate has the version that was read as its
/// precondition, and every replica would set the same label that begins a deletion.
pub(super) async fn answer(
    context: Arc<Context>,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let settings = &context.config.podops;
    for unused in &settings.unused_flags {
        output::note(&format!("podops: {unused}"));
    }
    // Not the client of the controllers: a response must not wait behind their writes.
    let client = context
        .cluster
        .client("podops.webhooks", &context.metrics)?;
    let (listener, address) = listen(podops::PART, settings.address, "--webhook-address").await?;
    let namespace = context.cluster.namespace();
    let boundaries = Arc::clone(&settings.boundaries);
    if let Some((host, port)) = context.cluster.api_server() {
        boundaries.set_api_server(&host, port);
    }
    if let Some(address) = api_service_of_environment() {
        boundaries.set_api_service(address);
    }
    let following = follow_api_servers(client.clone(), boundaries, shutdown.clone());
    // The webhooks go on after this future ends: they let requests under way end.
    let following = async {
        Box::pin(following).await;
        std::future::pending::<()>().await;
    };
    let authority = context.config.client_authority.clone();
    let mut webhooks = settings.webhooks(
        client,
        namespace,
        address,
        authority,
        (&context.webhooks, &context.pods),
        shutdown.clone(),
    );
    webhooks.contact = context.cluster.contact().clone();
    webhooks.certificates = webhooks
        .certificates
        .unless_uninstalled(ROLE, LEASE)
        .reporting(context.readiness.of(ROLE));
    let serving = webhooks.serve(listener, shutdown, |address| {
        output::note(&format!("podops: webhooks at https://{address}"));
    });
    tokio::select! {
        ended = serving => ended,
        () = following => Ok(()),
    }
}

/// The address of the Service of the API servers, where this process is in a pod.
pub(super) fn api_service_of_environment() -> Option<SocketAddr> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    api_service(|name| std::env::var(name).ok())
}

/// The address of the Service of the API servers, which Kubernetes writes into the environment of each pod.
fn api_service(variable: impl Fn(&str) -> Option<String>) -> Option<SocketAddr> {
    let host: IpAddr = variable("KUBERNETES_SERVICE_HOST")?.parse().ok()?;
    let port = variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok());
    Some(SocketAddr::new(host, port.unwrap_or(443)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_the_api_servers_is_in_the_environment_of_a_pod() {
        let address = |host: Option<&str>, port: Option<&str>| {
            let found = api_service(|name| match name {
                "KUBERNETES_SERVICE_HOST" => host.map(str::to_owned),
                "KUBERNETES_SERVICE_PORT" => port.map(str::to_owned),
                _ => None,
            });
            found.map(|address| address.to_string())
        };
        for (host, port, expected) in [
            (Some("10.96.0.1"), Some("6443"), Some("10.96.0.1:6443")),
            (Some("fd00::1"), None, Some("[fd00::1]:443")),
            (Some("a.name"), Some("443"), None),
            (None, None, None),
        ] {
            assert_eq!(address(host, port).as_deref(), expected);
        }
    }
}
