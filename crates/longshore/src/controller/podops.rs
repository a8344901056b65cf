//! The role `podops`: the controllers of PodOpsLifecycle under a lease, and its webhooks in every replica, because API
//! servers may call any of them.

use std::sync::Arc;

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
