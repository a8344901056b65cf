//! A webhook over TLS that chooses its verdict by the path of the request.

use std::{
    convert::Infallible,
    fmt,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum_server::{Handle, tls_rustls::RustlsConfig};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tower::{Service, make::Shared};

/// A webhook that is served until it is dropped.
pub(crate) struct Judge {
    address: SocketAddr,
    ca_bundle: String,
    bench: Bench,
    handle: Handle<SocketAddr>,
}

/// What it has been asked: path and `request`, in order.
#[derive(Clone, Default)]
struct Bench(Arc<Mutex<Vec<(String, Value)>>>);

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

impl Judge {
    /// Starts to listen on a free port of loopback; also as the service `judge` in `hooks`.
    pub(crate) fn start() -> Judge {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (config, ca_bundle) = certificates();
        let (bench, handle) = (Bench::default(), Handle::new());
        let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(config))
            .unwrap()
            .handle(handle.clone());
        tokio::spawn(server.serve(Shared::new(bench.clone())));
        Judge {
            address,
            ca_bundle,
            bench,
            handle,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address without a path.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// What `caBundle` says.
    pub(crate) fn ca_bundle(&self) -> &str {
        &self.ca_bundle
    }

    /// The reviews on a path since the last call of this function.
    pub(crate) fn asked(&self, path: &str) -> Vec<Value> {
        let mut asked = self.bench.0.lock().unwrap();
        let (taken, kept) = asked.drain(..).partition(|(it, _)| it == path);
        *asked = kept;
        let taken: Vec<(String, Value)> = taken;
        taken.into_iter().map(|(_, request)| request).collect()
    }
}

fn certificates() -> (Arc<ServerConfig>, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let names = ["127.0.0.1", "judge.hooks.svc"].map(str::to_owned);
    let own_key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(names)
        .unwrap()
        .signed_by(&own_key, &issuer)
        .unwrap();
    let own_key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], own_key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let bundle = json!(ByteString(authority.pem().into_bytes()));
    (Arc::new(config), bundle.as_str().unwrap().to_owned())
}

impl<B> Service<Request<B>> for Bench
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Debug,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let bench = self.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let asked = review["request"].clone();
            bench.0.lock().unwrap().push((path.clone(), asked.clone()));
            if path == "/slow" {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            let (code, text) = answer(&path, &asked);
            let mut response = Response::new(Full::new(text.into()));
            *response.status_mut() = code;
            let content_type = if code == 200 {
                "application/json"
            } else {
                "text/plain"
            };
            let content_type = http::HeaderValue::from_static(content_type);
            response.headers_mut().insert("content-type", content_type);
            Ok(response)
        }
        .boxed()
    }
}

fn answer(path: &str, asked: &Value) -> (StatusCode, String) {
    let uid = &asked["uid"];
    let mut review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": uid, "allowed": true},
    });
    let response = &mut review["response"];
    let mut segments = path.trim_start_matches('/').split('/');
    match (
        segments.next().unwrap_or(""),
        segments.next(),
        segments.next(),
    ) {
        ("deny", status, _) => {
            response["allowed"] = false.into();
            if let Some(status) = denial(status.unwrap_or("")) {
                response["status"] = status;
            }
        }
        ("echo", _, _) => {
            response["allowed"] = false.into();
            response["status"] =
                json!({"code": 418, "message": "heard", "details": {"causes": echo(asked)}});
        }
        ("label", Some(key), Some(value)) => {
            let patch = match asked.pointer("/object/metadata/labels") {
                Some(_) => {
                    json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}])
                }
                None => json!([{"op": "add", "path": "/metadata/labels", "value": {key: value}}]),
            };
            set_patch(response, &patch.to_string());
        }
        // Counts the reviews of an object in its label `n`.
        ("count", _, _) => {
            let labels = asked.pointer("/object/metadata/labels");
            let n = labels
                .and_then(|it| it["n"].as_str())
                .map_or(0, |it| it.parse().unwrap());
            let mut labels = labels.cloned().unwrap_or_else(|| json!({}));
            labels["n"] = (n + 1).to_string().into();
            set_patch(
                response,
                &json!([{"op": "add", "path": "/metadata/labels", "value": labels}]).to_string(),
            );
        }
        ("replicas", Some(n), _) => {
            let n: u32 = n.parse().unwrap();
            let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": n}]);
            set_patch(response, &patch.to_string());
        }
        ("warn", _, _) => response["warnings"] = json!(["think twice"]),
        ("patch", Some(mistake), _) => set_mistaken_patch(response, mistake),
        ("other-uid", _, _) => response["uid"] = "other".into(),
        ("silent", _, _) => review["response"] = Value::Null,
        ("old", _, _) => review["apiVersion"] = "admission.k8s.io/v1beta1".into(),
        ("garbage", _, _) => return (StatusCode::OK, "garbage".to_owned()),
        ("code", Some(code), _) => {
            return (code.parse().unwrap(), "out of order".to_owned());
        }
        _ => {}
    }
    (StatusCode::OK, review.to_string())
}

fn set_patch(response: &mut Value, patch: &str) {
    response["patch"] = json!(ByteString(patch.as_bytes().to_vec()));
    response["patchType"] = "JSONPatch".into();
}

fn set_mistaken_patch(response: &mut Value, mistake: &str) {
    let patch = match mistake {
        "missing" => r#"[{"op": "remove", "path": "/data/missing"}]"#,
        "unknown-type" => r#"[{"op": "remove", "path": "/data"}]"#,
        "broken" => "[{",
        _ => "[]",
    };
    set_patch(response, patch);
    match mistake {
        "untyped" => response["patchType"] = Value::Null,
        "unknown-type" => response["patchType"] = "MergePatch".into(),
        _ => {}
    }
}

fn denial(status: &str) -> Option<Value> {
    match status {
        "" => None,
        "message" => Some(json!({"message": "not today"})),
        "reason" => Some(json!({"reason": "NotToday"})),
        "403" => Some(json!({"code": 403, "reason": "Forbidden", "message": "not yours"})),
        "200" => Some(json!({"code": 200, "status": "Success", "message": "fine"})),
        "429" => Some(json!({
            "code": 429, "reason": "TooManyRequests", "message": "busy", "details": {"retryAfterSeconds": 5},
        })),
        _ => Some(json!({
            "code": 422, "reason": "Invalid", "message": "look",
            "details": {"name": "x", "kind": "Y", "causes": [{"reason": "R", "message": "m", "field": "f"}]},
        })),
    }
}

/// The review as causes, so that a review can be compared like an answer.
fn echo(asked: &Value) -> Vec<Value> {
    let fields = [
        "/kind",
        "/resource",
        "/subResource",
        "/requestKind",
        "/requestResource",
        "/requestSubResource",
        "/name",
        "/namespace",
        "/operation",
        "/dryRun",
        "/options",
    ];
    let mut causes: Vec<Value> = fields
        .iter()
        .map(|pointer| json!({"field": pointer, "message": text(asked.pointer(pointer))}))
        .collect();
    for object in ["object", "oldObject"] {
        causes.push(json!({"field": object, "message": (!asked[object].is_null()).to_string()}));
        for pointer in [
            "/kind",
            "/metadata/name",
            "/metadata/generateName",
            "/metadata/namespace",
            "/metadata/uid",
            "/metadata/labels",
            "/metadata/generation",
            "/data",
            "/spec/replicas",
            "/spec/nodeName",
            "/spec/priority",
            "/status/phase",
            "/target",
            "/deleteOptions",
        ] {
            if let Some(value) = asked[object].pointer(pointer) {
                causes.push(
                    json!({"field": format!("{object}{pointer}"), "message": text(Some(value))}),
                );
            }
        }
    }
    // What the options of a way in have, and nothing else.
    for name in ["command", "container", "ports", "path", "stdin", "tty"] {
        if let Some(value) = asked["object"].get(name) {
            let field = format!("object/{name}");
            causes.push(json!({"field": field, "message": text(Some(value))}));
        }
    }
    causes
}

/// A value with its members in order.
fn text(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) => sorted(value),
    }
}

fn sorted(value: &Value) -> String {
    let Some(members) = value.as_object() else {
        return value.to_string();
    };
    let mut members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{key}: {}", sorted(value)))
        .collect();
    members.sort();
    format!("{{{}}}", members.join(", "))
}
