//! The role `tasks`: the executor of TaskActions.

use std::sync::Arc;

use longshore_plugins::TASK_ACTION;
use tokio_util::sync::CancellationToken;

use super::{Context, roles::Leadership, served::until_served};
use crate::{error::CliError, kubernetes::permit, output, service::actions, storage_file};

/// Runs the actions of the role's namespaces until `shutdown`.
pub(super) async fn run(
    context: Arc<Context>,
    leadership: Leadership,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let Leadership { gate, namespaces } = leadership;
    let client = context
        .cluster
        .gated_client("tasks", &context.metrics, &gate)?;
    let settings = context.config.settings.clone();
    let permit = permit(&gate);
    let storage = storage_file::open(&settings.storage, permit.clone())?;
    let executor = actions::executor(settings, namespaces, &context.metrics, storage, &permit)?;
    let served = until_served(ROLE, TASK_ACTION, &context, &client);
    if shutdown.run_until_cancelled(served).await.is_none() {
        return Ok(());
    }
    output::note("tasks: runs here");
    executor.gated_by(gate).run(client, shutdown).await;
    Ok(())
}

/// The name of the role.
pub(super) const ROLE: &str = "tasks";
