//! The role `flink`: the operator of FlinkDeployments, FlinkSessionJobs and FlinkStateSnapshots.

use std::sync::Arc;

use longshore_flink::{FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT};
use tokio_util::sync::CancellationToken;

use super::{
    Context,
    podops::api_service_of_environment,
    roles::Leadership,
    served::{until_served, while_missing},
};
use crate::{error::CliError, output, service::flink};

/// The name of the role.
pub(super) const ROLE: &str = "flink";

/// The name of the role's lease.
pub(super) const LEASE: &str = "longshore-flink";

/// Runs the controllers of the role's namespaces until `shutdown`.
///
/// Without FlinkDeployments there is nothing to do; without one of the other two kinds the controllers go on with the rest.
pub(super) async fn run(
    context: Arc<Context>,
    leadership: Leadership,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let Leadership { gate, namespaces } = leadership;
    let (cluster, metrics) = (&context.cluster, &context.metrics);
    let client = cluster.gated_client(ROLE, metrics, &gate)?;
    let served = until_served(ROLE, FLINK_DEPLOYMENT, &context, &client);
    if shutdown.run_until_cancelled(served).await.is_none() {
        return Ok(());
    }
    output::note("flink: runs here");
    let settings = &context.config.flink;
    if let Some((host, port)) = cluster.api_server() {
        settings.boundaries.set_api_server(&host, port);
    }
    if let Some(address) = api_service_of_environment() {
        settings.boundaries.set_api_service(address);
    }
    let mut operator = settings
        .controllers(namespaces, metrics)
        .gated_by(gate.clone());
    if !cluster.is_own() {
        let rest = cluster.gated_client("flink.rest", metrics, &gate)?;
        operator = operator.through_api_server(rest);
    }
    let session_jobs = "session jobs do not run";
    let snapshots = "savepoints and checkpoints are triggered for upgrades only";
    let told = async {
        tokio::join!(
            while_missing(ROLE, FLINK_SESSION_JOB, session_jobs, &context, &client),
            while_missing(ROLE, FLINK_STATE_SNAPSHOT, snapshots, &context, &client),
        );
    };
    let told = shutdown.run_until_cancelled(told);
    let (_, ended) = tokio::join!(told, operator.run(client.clone(), shutdown.clone()));
    ended.map_err(|source| CliError::engine(flink::PART, source))
}
