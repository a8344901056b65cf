//! What the server publishes about itself: discovery, OpenAPI, and answers in other forms.

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::{
    definitions::{DEFINITIONS, gadgets},
    harness::Api,
};

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
async fn types_of_custom_resources_say_what_those_of_built_in_kinds_say() {
    let cluster = Cluster::in_memory();
    Api::new(&cluster).make(DEFINITIONS, gadgets()).await;
    let version_2 = decoded(&ask(&cluster, "/openapi/v2", &[]).await);
    let version_3 = decoded(&ask(&cluster, "/openapi/v3/apis/example.com/v1", &[]).await);
    let of_version_2 = &version_2["definitions"]["com.example.v1.Gadget"];
    let of_version_3 = &version_3["components"]["schemas"]["com.example.v1.Gadget"];
    let object_meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    for (schema, metadata) in [
        (of_version_2, "/properties/metadata"),
        (of_version_3, "/properties/metadata/allOf/0"),
    ] {
        let text = |name: &str| schema["properties"][name]["description"].as_str().unwrap();
        assert!(
            text("apiVersion").starts_with("APIVersion defines "),
            "{schema}"
        );
        assert!(
            text("metadata").starts_with("Standard object's metadata."),
            "{schema}"
        );
        let reference = schema.pointer(metadata).unwrap()["$ref"].as_str().unwrap();
        assert!(reference.ends_with(object_meta), "{reference}");
    }
}

#[tokio::test]
async fn a_type_that_keeps_unknown_members_has_none_in_version_2() {
    let cluster = Cluster::in_memory();
    let mut definition = gadgets();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    Api::new(&cluster).make(DEFINITIONS, definition).await;
    let kind = json!([{"group": "example.com", "kind": "Gadget", "version": "v1"}]);
    let version_2 = decoded(&ask(&cluster, "/openapi/v2", &[]).await);
    let expected = json!({"type": "object", "x-kubernetes-group-version-kind": kind});
    assert_eq!(version_2["definitions"]["com.example.v1.Gadget"], expected);
    let version_3 = decoded(&ask(&cluster, "/openapi/v3/apis/example.com/v1", &[]).await);
    let schema = &version_3["components"]["schemas"]["com.example.v1.Gadget"];
    assert!(schema["properties"]["spec"].is_object(), "{schema}");
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
