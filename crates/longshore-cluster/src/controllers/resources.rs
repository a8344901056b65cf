//! Which resources the API has.

use std::time::Duration;

use futures::FutureExt;
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
        let list = persist(|| {
            let list = client.list_api_group_resources(&version);
            list.map(unless_gone)
        });
        listed.extend(list.await.into_iter().flat_map(of_version));
    }
    listed
}

/// A group goes with its last definition, also between two requests: then it has no resources. The event of the
/// definition leads to the next discovery.
fn unless_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    /// Before, every controller that discovers waited for the group for ever.
    #[tokio::test(start_paused = true)]
    async fn a_group_that_goes_meanwhile_has_no_resources() {
        let answer = |path: &str| match path {
            "/apis" => {
                let version = json!({"groupVersion": "gone.example.com/v1", "version": "v1"});
                let group = json!({"name": "gone.example.com", "versions": [version]});
                let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]});
                (200, list)
            }
            "/api/v1" => {
                let pods = json!({
                    "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                    "verbs": ["delete", "list", "watch"],
                });
                let list =
                    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]});
                (200, list)
            }
            _ => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone"});
                (404, status)
            }
        };
        let serve = service_fn(move |request: http::Request<Body>| async move {
            let (code, body) = answer(request.uri().path());
            let response = http::Response::builder().status(code);
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(response.body(body).unwrap())
        });
        let client = Client::new(serve, "default");
        let found = tokio::time::timeout(Duration::from_secs(600), discover(&client)).await;
        let found = found.expect("an end");
        let found: Vec<&str> = found.iter().map(|it| it.api.plural.as_str()).collect();
        assert_eq!(found, ["pods"]);
    }
}
