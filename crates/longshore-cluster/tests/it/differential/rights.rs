//! Waits until a server decides by the roles and bindings that were last written.
//!
//! The authorizer of kube-apiserver reads each kind of them from a watch: for a moment after a
//! write it answers by the state before. Each watch is in order, so the authorizer knows of every
//! earlier write once it knows of a mark that was written afterwards, one in each kind.

use std::time::Duration;

use http::{Method, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::scenario::Step;

/// Longest that the authorizer may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The marks are outside of the namespaces of the subjects.
const NAMESPACE: &str = "default";
/// The name of the marks: two roles and two bindings.
const MARK: &str = "diff-mark";

/// Which writes the authorizer may not know yet.
#[derive(Debug)]
pub(super) struct Rights {
    subject: String,
    n_marks: usize,
    is_stale: bool,
}

impl Rights {
    pub(super) fn new(subject: &str) -> Rights {
        Rights {
            subject: subject.to_owned(),
            n_marks: 0,
            is_stale: false,
        }
    }

    /// Before a request that may be decided by roles and bindings: waits for the earlier ones.
    pub(super) async fn settle(&mut self, client: &kube::Client, step: &Step) {
        let about_rights = ["${rbac}", GROUP]
            .iter()
            .any(|path| step.request.contains(path));
        let writes_rights = about_rights && !step.request.starts_with("GET ");
        let is_administrator = step.acting.is_none();
        if self.is_stale && !(writes_rights && is_administrator) {
            self.n_marks += 1;
            let mark = format!("{MARK}-{}-{}", self.subject, self.n_marks);
            let settled = tokio::time::timeout(PATIENCE, caught_up(client, &mark)).await;
            assert!(
                settled.is_ok(),
                "the authorizer did not see {mark} within {PATIENCE:?}"
            );
            self.is_stale = false;
        }
        self.is_stale |= writes_rights;
    }
}

/// Writes the mark into every kind, and asks until the authorizer decides by it.
async fn caught_up(client: &kube::Client, mark: &str) {
    let subjects = json!([{"kind": "User", "name": mark}]);
    let metadata = json!({"name": MARK});
    let in_namespace = format!("{GROUP}/namespaces/{NAMESPACE}");
    let path = format!("/{mark}");
    let writes = [
        (
            format!("{in_namespace}/roles/{MARK}"),
            json!({"metadata": metadata, "rules": [{
                "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [mark],
            }]}),
        ),
        (
            format!("{in_namespace}/rolebindings/{MARK}"),
            json!({"metadata": metadata, "subjects": subjects, "roleRef": {"kind": "Role", "name": MARK}}),
        ),
        (
            format!("{GROUP}/clusterroles/{MARK}"),
            json!({"metadata": metadata, "rules": [{"nonResourceURLs": [path], "verbs": ["get"]}]}),
        ),
        (
            format!("{GROUP}/clusterrolebindings/{MARK}"),
            json!({"metadata": metadata, "subjects": subjects, "roleRef": {"kind": "ClusterRole", "name": MARK}}),
        ),
    ];
    for (path, body) in writes {
        send(client, Method::PUT, &path, &body).await;
    }
    let in_roles =
        json!({"verb": "get", "resource": "configmaps", "namespace": NAMESPACE, "name": mark});
    let reviews = [
        json!({"spec": {"user": mark, "resourceAttributes": in_roles}}),
        json!({"spec": {"user": mark, "nonResourceAttributes": {"verb": "get", "path": path}}}),
    ];
    for review in reviews {
        while send(client, Method::POST, REVIEWS, &review).await["status"]["allowed"] != true {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn send(client: &kube::Client, method: Method, path: &str, body: &Value) -> Value {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request(request).await.unwrap()
}
