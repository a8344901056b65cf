//! The user of a request on its way to the answer.

use std::sync::Arc;

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::UserInfo;
use crate::Cluster;

async fn who(cluster: &Cluster, user: Option<UserInfo>) -> Value {
    let mut request = Request::builder()
        .method("POST")
        .uri("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    if let Some(user) = user {
        request.extensions_mut().insert(Arc::new(user));
    }
    let response = cluster.service().oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&bytes).unwrap();
    review["status"]["userInfo"].clone()
}

#[tokio::test]
async fn a_request_is_answered_for_the_user_that_the_wire_has_found() {
    let cluster = Cluster::in_memory();
    let jane = UserInfo {
        username: "jane".to_owned(),
        groups: vec!["developers".to_owned()],
        ..UserInfo::default()
    };
    let expected = json!({"username": "jane", "groups": ["developers"]});
    assert_eq!(who(&cluster, Some(jane)).await, expected);
    // A request from this process.
    assert_eq!(who(&cluster, None).await, UserInfo::admin().to_json());
}
