//! Which resources the API has.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::{
    Client, Error,
    discovery::{ApiResource, verbs},
};

use super::patience::patiently;

/// Pause after a failed discovery.
const PAUSE: Duration = Duration::from_millis(200);

/// One resource that can be listed, watched and deleted.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) api: ApiResource,
    pub(crate) is_namespaced: bool,
}

/// The resources that the API serves. Retries until the API answers.
pub(crate) async fn discover(client: &Client) -> Vec<Listed> {
    let groups = persist(|| client.list_api_groups()).await;
    let versions = groups.groups.into_iter().filter_map(|group| {
        let preferred = group
            .preferred_version
            .or_else(|| group.versions.into_iter().next());
        preferred.map(|version| version.group_version)
    });
    let mut listed = of_version(persist(|| client.list_core_api_resources("v1")).await);
    for version in versions {
        listed.extend(of_version(
            persist(|| client.list_api_group_resources(&version)).await,
        ));
    }
    listed
}

/// Repeats a request until it succeeds.
async fn persist<T, F: Future<Output = Result<T, Error>>>(request: impl Fn() -> F) -> T {
    loop {
        match patiently(&request).await {
            Ok(answer) => return answer,
            Err(error) => {
                tracing::debug!(%error, "discovery failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn of_version(list: APIResourceList) -> Vec<Listed> {
    let version = list.group_version;
    let is_collected = |resource: &APIResource| {
        let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
        !resource.name.contains('/')
            && needed
                .iter()
                .all(|verb| resource.verbs.iter().any(|it| it == verb))
    };
    list.resources
        .into_iter()
        .filter(is_collected)
        .map(|resource| Listed {
            is_namespaced: resource.namespaced,
            api: describe(&version, resource),
        })
        .collect()
}

fn describe(api_version: &str, resource: APIResource) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: resource.kind,
        plural: resource.name,
    }
}
