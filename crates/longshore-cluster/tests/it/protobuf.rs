//! Bodies in protobuf both ways, as the clients of Go's libraries send and prefer them.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use longshore_cluster::{ApiBody, Cluster};
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    definitions::{DEFINITIONS, GADGETS, gadget, gadgets},
    harness::{Api, CONFIG_MAPS, config_map},
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Sends a request that accepts these types.
async fn ask(
    cluster: &Cluster,
    method: Method,
    path: &str,
    accept: &str,
    body: Bytes,
) -> http::Response<ApiBody> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", PROTOBUF)
        .body(Full::new(body))
        .unwrap();
    cluster.service().oneshot(request).await.unwrap()
}

/// Code, type and body of an answer.
async fn answer(response: http::Response<ApiBody>) -> (u16, String, Bytes) {
    let code = response.status().as_u16();
    let content_type = response.headers()["content-type"].to_str().unwrap();
    let content_type = content_type.to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, content_type, bytes)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

#[tokio::test]
async fn a_definition_that_a_client_reads_and_writes_back_stays_what_it_is() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    api.make(DEFINITIONS, gadgets()).await;
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let (_, before) = api.get(&path).await;
    let read = ask(&cluster, Method::GET, &path, PROTOBUF, Bytes::new()).await;
    let (code, content_type, bytes) = answer(read).await;
    assert_eq!((code, &*content_type), (200, PROTOBUF));
    let written = ask(&cluster, Method::PUT, &path, PROTOBUF, bytes).await;
    let (code, content_type, _) = answer(written).await;
    assert_eq!((code, &*content_type), (200, PROTOBUF));
    let (_, after) = api.get(&path).await;
    assert_eq!(after, before);
}

/// A field of text, bytes or a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    assert!(length < 1 << 14, "a length of at most two bytes");
    let low = (length & 0x7f) as u8;
    let length = match length >> 7 {
        0 => vec![low],
        high => vec![low | 0x80, high as u8],
    };
    let key = match number {
        0..16 => vec![number << 3 | 2],
        _ => vec![(number << 3 | 2) | 0x80, number >> 4],
    };
    [key, length, content.to_vec()].concat()
}

/// A definition of widgets, with the numbers of `generated.proto`.
fn widgets() -> Bytes {
    let names = [field(1, b"widgets"), field(4, b"Widget")].concat();
    let schema = field(1, &field(5, b"object"));
    let version = [
        field(1, b"v1"),
        vec![2 << 3, 1, 3 << 3, 1],
        field(4, &schema),
    ]
    .concat();
    let spec = [
        field(1, b"example.com"),
        field(3, &names),
        field(4, b"Namespaced"),
        field(7, &version),
    ]
    .concat();
    // As clients send it: a status that says nothing.
    let status = field(2, &[field(1, b""), field(4, b"")].concat());
    let definition = [
        field(1, &field(1, b"widgets.example.com")),
        field(2, &spec),
        field(3, &status),
    ]
    .concat();
    let kind = [
        field(1, b"apiextensions.k8s.io/v1"),
        field(2, b"CustomResourceDefinition"),
    ]
    .concat();
    let body = [b"k8s\0".to_vec(), field(1, &kind), field(2, &definition)];
    body.concat().into()
}

#[tokio::test]
async fn a_definition_in_protobuf_serves_its_objects() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let created = ask(&cluster, Method::POST, DEFINITIONS, PROTOBUF, widgets()).await;
    let (code, content_type, _) = answer(created).await;
    assert_eq!((code, &*content_type), (201, PROTOBUF));
    let (code, list) = api.get("/apis/example.com/v1/widgets").await;
    assert_eq!((code, &list["kind"]), (200, &"WidgetList".into()));
    // The objects themselves have no message.
    let widgets_path = "/apis/example.com/v1/namespaces/default/widgets";
    let refused = ask(&cluster, Method::POST, widgets_path, "*/*", widgets()).await;
    assert_eq!(refused.status(), 415);
    let again = ask(&cluster, Method::POST, DEFINITIONS, PROTOBUF, widgets()).await;
    let (code, content_type, status) = answer(again).await;
    assert_eq!((code, &*content_type), (409, PROTOBUF));
    assert!(contains(&status, "AlreadyExists"));
}

#[tokio::test]
async fn lists_watches_and_metadata_are_messages_for_those_who_prefer_them() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    api.make(CONFIG_MAPS, config_map("a", "some text")).await;
    let both = format!("{PROTOBUF},application/json");
    let list = ask(&cluster, Method::GET, CONFIG_MAPS, &both, Bytes::new()).await;
    let (code, content_type, bytes) = answer(list).await;
    assert_eq!((code, &*content_type), (200, PROTOBUF));
    assert!(contains(&bytes, "ConfigMapList") && contains(&bytes, "some text"));

    let metadata = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let list = ask(&cluster, Method::GET, CONFIG_MAPS, &metadata, Bytes::new()).await;
    let (_, content_type, bytes) = answer(list).await;
    assert_eq!(content_type, PROTOBUF);
    assert!(contains(&bytes, "PartialObjectMetadataList") && !contains(&bytes, "some text"));

    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
    let watch = ask(&cluster, Method::GET, &path, &both, Bytes::new()).await;
    let content_type = watch.headers()["content-type"].to_str().unwrap();
    assert_eq!(content_type, format!("{PROTOBUF};stream=watch"));
    let frame = watch.into_body().frame().await.unwrap().unwrap();
    let frame = frame.into_data().unwrap();
    let (length, message) = frame.split_at(4);
    assert_eq!(length, u32::try_from(message.len()).unwrap().to_be_bytes());
    assert!(contains(message, "ADDED") && contains(message, "some text"));
}

#[tokio::test]
async fn custom_objects_are_json_and_their_metadata_is_a_message() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    api.make(DEFINITIONS, gadgets()).await;
    api.make(GADGETS, gadget("a")).await;
    let path = format!("{GADGETS}/a");
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let both = format!("{PROTOBUF},application/json");
    for (accept, code, content_type) in [
        (both.as_str(), 200, "application/json"),
        (&metadata, 200, PROTOBUF),
        (PROTOBUF, 406, PROTOBUF),
    ] {
        let response = ask(&cluster, Method::GET, &path, accept, Bytes::new()).await;
        let found = answer(response).await;
        assert_eq!((found.0, &*found.1), (code, content_type), "{accept}");
    }
    let list = ask(&cluster, Method::GET, GADGETS, &both, Bytes::new()).await;
    let (_, _, bytes) = answer(list).await;
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}
