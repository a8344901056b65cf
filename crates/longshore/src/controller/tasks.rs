//! The role `tasks`: the executor of TaskActions.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use longshore_api::flyte::{GROUP, KIND, VERSION};
use longshore_kit::Gate;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::{error::CliError, output, service::actions, storage_file};

/// How often it is looked whether TaskActions are served by now.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

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
    let settings = context.config.settings.clone();
    let storage = storage_file::open(&settings.storage)?;
    let executor = actions::executor(settings, Some(namespace), &context.metrics, storage)?;
    let served = until_served(&context, &client);
    if shutdown.run_until_cancelled(served).await.is_none() {
        return Ok(());
    }
    output::note("tasks: runs here");
    executor.run(client, shutdown).await;
    Ok(())
}

/// Waits until the API server knows TaskActions, and says meanwhile what is missing: the watches of the executor would
/// try again and again, and nobody would know why nothing runs.
async fn until_served(context: &Context, client: &Client) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, KIND));
    let namespace = context.cluster.namespace();
    let actions: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let one = ListParams::default().limit(1);
    let mut has_told = false;
    while is_unknown(actions.list_metadata(&one).await.map(drop)) {
        if !has_told {
            let crd = format!("{}.{GROUP}", kind.plural);
            tracing::warn!(
                crd,
                "the resource of the role is not served; waiting for it"
            );
            output::note(&format!(
                "tasks: waits for the resource {crd}, which the API server does not serve: \
                 longshore controller crd | kubectl apply -f -"
            ));
            context.standing.finds(ROLE, false);
            has_told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if has_told {
        context.standing.finds(ROLE, true);
    }
}

/// Its name among the roles.
pub(super) const ROLE: &str = "tasks";

/// Every other error is the watches' to deal with.
fn is_unknown(listed: kube::Result<()>) -> bool {
    matches!(listed, Err(kube::Error::Api(status)) if status.code == 404)
}
