//! The role `tasks`: the executor of TaskActions.

use std::sync::Arc;

use longshore_kit::Gate;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::{error::CliError, output, service::actions};

/// Runs the actions of the controller's namespace until `shutdown`.
pub(super) async fn run(
    context: Arc<Context>,
    gate: Gate,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let namespace = context.cluster.namespace().to_owned();
    let client = context
        .cluster
        .gated_client("tasks", &context.metrics, &gate)?;
    let executor = actions::executor(Some(namespace), &context.metrics)?;
    output::note("tasks: runs here");
    executor.run(client, shutdown).await;
    Ok(())
}
