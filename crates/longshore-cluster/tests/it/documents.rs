//! What the server publishes about itself: discovery, OpenAPI, and answers in other forms.

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use longshore_cluster::Cluster;
use serde_json::{Value, json};

/// An answer of the service in this process.
async fn ask(cluster: &Cluster, path: &str, headers: &[(&str, &str)]) -> Response<Vec<u8>> {
    let mut request = Request::builder().method(Method::GET).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    let response = tower::ServiceExt::oneshot(cluster.service(), request)
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, bytes.to_vec())
}

fn decoded(response: &Response<Vec<u8>>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[tokio::test]
async fn aggregated_discovery_is_tagged_and_answers_304() {
    let cluster = Cluster::in_memory();
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let first = ask(&cluster, "/apis", &[("accept", accept)]).await;
    assert!(
        first.headers()["content-type"]
            .to_str()
            .unwrap()
            .contains("as=APIGroupDiscoveryList")
    );
    assert_eq!(first.headers()["vary"], "Accept");
    let document = decoded(&first);
    let apps = document["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["metadata"]["name"] == "apps")
        .unwrap();
    let resources = apps["versions"][0]["resources"].as_array().unwrap();
    let deployments = resources
        .iter()
        .find(|resource| resource["resource"] == "deployments")
        .unwrap();
    assert_eq!(deployments["categories"], json!(["all"]));
    let parts = deployments["subresources"].as_array().unwrap();
    assert!(
        parts
            .iter()
            .any(|part| part["responseKind"]["kind"] == "Scale"),
        "{parts:?}"
    );
    let tag = first.headers()["etag"].to_str().unwrap();
    let again = ask(
        &cluster,
        "/apis",
        &[("accept", accept), ("if-none-match", tag)],
    )
    .await;
    assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
    assert!(again.headers().get("content-type").is_none());
}

#[tokio::test]
async fn openapi_addresses_name_their_content() {
    let cluster = Cluster::in_memory();
    let index = decoded(&ask(&cluster, "/openapi/v3", &[]).await);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let answer = ask(&cluster, url, &[]).await;
    assert!(
        answer.headers()["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    assert_eq!(decoded(&answer)["openapi"], "3.0.0");
    let zipped = ask(&cluster, url, &[("accept-encoding", "gzip")]).await;
    assert_eq!(zipped.headers()["content-encoding"], "gzip");
    let old = ask(&cluster, "/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
    assert_eq!(old.status(), 301);
    assert_eq!(old.headers()["location"].to_str().unwrap(), url);
    assert_eq!(
        decoded(&ask(&cluster, "/openapi/v2", &[]).await)["swagger"],
        "2.0"
    );
    assert_eq!(
        ask(&cluster, "/openapi/v3/apis/nothing/v1", &[])
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn answers_are_yaml_or_indented_for_those_who_ask() {
    let cluster = Cluster::in_memory();
    let path = "/api/v1/namespaces/default";
    let yaml = ask(&cluster, path, &[("accept", "application/yaml")]).await;
    assert_eq!(yaml.headers()["content-type"], "application/yaml");
    let text = String::from_utf8(yaml.into_body()).unwrap();
    assert!(text.contains("kind: Namespace\n"), "{text}");
    let pretty = ask(&cluster, &format!("{path}?pretty=true"), &[]).await;
    let text = String::from_utf8(pretty.into_body()).unwrap();
    assert!(text.starts_with("{\n  \"apiVersion\": \"v1\""), "{text}");
}
