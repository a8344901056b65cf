//! Which resources the API has.

use std::time::Duration;

use kube::Client;
use kube::core::discovery::ApiCapabilities;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};

/// Pause after a failed discovery.
const PAUSE: Duration = Duration::from_millis(200);

/// One resource that can be listed, watched and deleted.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) api: ApiResource,
    pub(crate) is_namespaced: bool,
}

/// Asks until the API says which resources it has.
pub(crate) async fn discover(client: &Client) -> Vec<Listed> {
    loop {
        match Discovery::new(client.clone()).run().await {
            Ok(discovery) => {
                let groups = discovery.groups_alphabetical();
                let all = groups
                    .into_iter()
                    .flat_map(|group| group.recommended_resources());
                return all.filter(is_collected).map(listed).collect();
            }
            Err(error) => {
                tracing::debug!(%error, "discovery failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_collected((_, capabilities): &(ApiResource, ApiCapabilities)) -> bool {
    let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
    needed
        .iter()
        .all(|verb| capabilities.supports_operation(verb))
}

fn listed((api, capabilities): (ApiResource, ApiCapabilities)) -> Listed {
    Listed {
        api,
        is_namespaced: capabilities.scope == Scope::Namespaced,
    }
}
