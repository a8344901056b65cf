//! The admission of pods, in front of an API server that knows no webhooks: as a request that comes is admitted by one
//! that does.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use longshore_api::podops::OperationLabel;
use longshore_core::{Patch, PatchKind};
use longshore_kit::Clock;
use longshore_podops::{
    AdmitConfig,
    admit::{self, Denial, Operation},
    model::{ConditionStatus, Pod},
};
use longshore_test::{Place, faults::FaultBody};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Service, ServiceExt};

use crate::{front::Routed, stories::Statuses};

/// What was granted although a finalizer held the pod.
pub(crate) type Broken = Arc<Mutex<Vec<String>>>;

/// Admits what is written to pods.
#[derive(Clone)]
pub(crate) struct Webhooks {
    pub(crate) place: Place,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) broken: Broken,
    pub(crate) statuses: Statuses,
    /// The pods to which a Service routes.
    pub(crate) routed: Routed,
    /// Changes with every write.
    pub(crate) writes: Arc<watch::Sender<u64>>,
    /// Of the statuses of rules.
    pub(crate) status_limit: Arc<StatusLimit>,
}

/// The size of the statuses of rules that the API server takes.
#[derive(Debug)]
pub(crate) struct StatusLimit {
    pub(crate) max_bytes: AtomicUsize,
    /// How many it has refused.
    pub(crate) n_refused: AtomicUsize,
}

impl Default for StatusLimit {
    fn default() -> Self {
        Self {
            max_bytes: AtomicUsize::new(usize::MAX),
            n_refused: AtomicUsize::default(),
        }
    }
}

/// Which pod a request is about.
#[derive(Clone, Debug)]
struct About {
    /// Of the pod itself.
    path: String,
    sub_resource: String,
}

impl About {
    fn of(uri: &Uri) -> Option<Self> {
        let mut parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let at = parts.iter().position(|part| *part == "pods")?;
        let sub_resource = parts.get(at + 2).copied().unwrap_or_default().to_owned();
        let _ = parts.get(at + 1)?;
        parts.truncate(at + 2);
        Some(Self {
            path: format!("/{}", parts.join("/")),
            sub_resource,
        })
    }

    fn uri(&self, query: &str) -> String {
        match self.sub_resource.as_str() {
            "" => format!("{}?{query}", self.path),
            sub_resource => format!("{}/{sub_resource}?{query}", self.path),
        }
    }
}

/// An answer that was read.
type Answer = (http::response::Parts, Bytes);

impl Webhooks {
    /// The API server with webhooks in it.
    pub(crate) fn service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<FaultBody>,
        Error = BoxError,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static {
        let webhooks = self.clone();
        tower::service_fn(move |request| {
            let webhooks = webhooks.clone();
            async move { webhooks.serve(request).await }
        })
    }

    /// A client of it.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<FaultBody>, BoxError> {
        if is_status_of_rule(&request) {
            return self.write_status_of_rule(request).await;
        }
        let about = About::of(request.uri());
        let is_eviction = about
            .as_ref()
            .is_some_and(|it| it.sub_resource == "eviction");
        let is_write = is_eviction || matches!(*request.method(), Method::PATCH | Method::DELETE);
        let is_seen =
            |about: &About| about.sub_resource != "status" || self.statuses == Statuses::Seen;
        match about.filter(|about| is_write && is_seen(about)) {
            Some(about) => {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let (parts, body) = if parts.method == Method::PATCH {
                    self.patch(&about, &parts, &body).await?
                } else if is_eviction {
                    self.evict(&about, &parts, &body).await?
                } else {
                    self.delete(&about, &parts, &body).await?
                };
                self.writes.send_modify(|n| *n += 1);
                Ok(Response::from_parts(parts, boxed(body)))
            }
            None => {
                let is_read = *request.method() == Method::GET;
                let answer = self.place.api().oneshot(request).await;
                if !is_read {
                    self.writes.send_modify(|n| *n += 1);
                }
                answer
            }
        }
    }

    /// As an API server whose store takes no more bytes.
    async fn write_status_of_rule(
        &self,
        request: Request<Body>,
    ) -> Result<Response<FaultBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let limit = &self.status_limit;
        if body.len() > limit.max_bytes.load(Ordering::Relaxed) {
            limit.n_refused.fetch_add(1, Ordering::Relaxed);
            let (parts, body) = refused(&Denial {
                code: 500,
                message: "etcdserver: request is too large".to_owned(),
                ..Denial::default()
            })?;
            return Ok(Response::from_parts(parts, boxed(body)));
        }
        let request = Request::from_parts(parts, Body::from(body));
        let answer = self.place.api().oneshot(request).await;
        self.writes.send_modify(|n| *n += 1);
        answer
    }

    async fn patch(
        &self,
        about: &About,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Answer, BoxError> {
        let asked: Value = serde_json::from_slice(body)?;
        let is_conditional = asked["metadata"]["resourceVersion"].is_string();
        loop {
            let get = Request::get(&about.path).body(Body::empty())?;
            let (_, old) = self.send(get).await?;
            let old: Value = serde_json::from_slice(&old)?;
            let mut dry = Request::patch(about.uri("dryRun=All"));
            if let Some(kind) = parts.headers.get(http::header::CONTENT_TYPE) {
                dry = dry.header(http::header::CONTENT_TYPE, kind);
            }
            let (answer, object) = self.send(dry.body(Body::from(body.clone()))?).await?;
            if !answer.status.is_success() {
                return Ok((answer, object));
            }
            let mut request = admit::Request {
                operation: Operation::Update,
                sub_resource: about.sub_resource.clone(),
                is_dry_run: false,
                object: serde_json::from_slice(&object)?,
                old_object: old.clone(),
                options: Value::Null,
            };
            let now = self.clock.now();
            match admit::mutate(&request, now) {
                Err(denial) => return refused(&denial),
                Ok(changed) => request.object = changed.unwrap_or(request.object),
            }
            let verdict = admit::validate(&config(), &request, now);
            if let Some(denial) = verdict.denial {
                return refused(&denial);
            }
            self.look(&old, &request.object);
            request.object["metadata"]["resourceVersion"] =
                old["metadata"]["resourceVersion"].clone();
            let put = Request::put(about.uri(""))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(Body::from(request.object.to_string().into_bytes()))?;
            let (answer, object) = self.send(put).await?;
            if answer.status != 409 || is_conditional {
                return Ok((answer, object));
            }
        }
    }

    async fn delete(
        &self,
        about: &About,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Answer, BoxError> {
        let get = Request::get(&about.path).body(Body::empty())?;
        let (answer, old) = self.send(get).await?;
        if answer.status.is_success() {
            let request = admit::Request {
                operation: Operation::Delete,
                sub_resource: String::new(),
                is_dry_run: false,
                object: Value::Null,
                old_object: serde_json::from_slice(&old)?,
                options: serde_json::from_slice(body).unwrap_or_default(),
            };
            let verdict = admit::validate(&config(), &request, self.clock.now());
            if let Some(denial) = verdict.denial {
                if let Some(begin) = verdict.begin {
                    Box::pin(self.begin(&about.path, &begin)).await?;
                }
                return refused(&denial);
            }
        }
        let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
        self.send(request).await
    }

    async fn evict(
        &self,
        about: &About,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Answer, BoxError> {
        let get = Request::get(&about.path).body(Body::empty())?;
        let (answer, pod) = self.send(get).await?;
        if answer.status.is_success() {
            let request = admit::Request {
                operation: Operation::Create,
                sub_resource: "eviction".to_owned(),
                is_dry_run: false,
                object: serde_json::from_slice(body)?,
                old_object: Value::Null,
                options: Value::Null,
            };
            let pod: Value = serde_json::from_slice(&pod)?;
            let (pod, now) = (Some(&pod), self.clock.now());
            let verdict = admit::validate_eviction(&config(), &request, pod, &[], now);
            if let Some(denial) = verdict.denial {
                if let Some(note) = verdict.begin {
                    self.begin(&about.path, &note).await?;
                }
                return refused(&denial);
            }
        }
        let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
        self.send(request).await
    }

    /// What a webhook writes to the pod of this path before its answer.
    async fn begin(&self, path: &str, begin: &Patch) -> Result<Answer, BoxError> {
        assert_eq!(begin.kind, PatchKind::Json);
        let of_pod = About {
            path: path.to_owned(),
            sub_resource: String::new(),
        };
        let patch = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(())?;
        let body = Bytes::from(begin.patch.to_string());
        self.patch(&of_pod, &patch.into_parts().0, &body).await
    }

    async fn send(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let answer = self.place.api().oneshot(request).await?;
        let (parts, body) = answer.into_parts();
        Ok((parts, body.collect().await?.to_bytes()))
    }

    fn is_routed(&self, pod: &Pod) -> bool {
        let routed = self.routed.lock().unwrap();
        pod.target
            .uid
            .as_ref()
            .is_some_and(|uid| routed.contains(uid))
    }

    /// An operation may touch a pod only when traffic has let go of it.
    fn look(&self, old: &Value, new: &Value) {
        let (old, new) = (Pod::of(old).unwrap(), Pod::of(new).unwrap());
        let is_granted = |key: &&String| {
            key.starts_with(OperationLabel::Operate.prefix()) && !old.labels.contains_key(*key)
        };
        let is_free = new.service_ready == Some(ConditionStatus::False)
            && new.protections().next().is_none()
            && !new.is_available()
            && !self.is_routed(&new);
        for key in new.labels.keys().filter(is_granted) {
            if !is_free {
                let broken = format!("{key} was granted to {new:?}");
                self.broken.lock().unwrap().push(broken);
            }
        }
    }
}

fn is_status_of_rule(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let is_status = path.contains("/podtransitionrules/") && path.ends_with("/status");
    is_status && *request.method() == Method::PATCH
}

fn config() -> AdmitConfig {
    AdmitConfig {
        grace_delete: true,
        ..AdmitConfig::default()
    }
}

fn refused(denial: &Denial) -> Result<Answer, BoxError> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": denial.code,
        "reason": denial.reason, "message": format!("{}{}", denial.reason, denial.message),
    });
    let answer = Response::builder()
        .status(denial.code)
        .header(http::header::CONTENT_TYPE, "application/json");
    Ok((
        answer.body(())?.into_parts().0,
        Bytes::from(body.to_string()),
    ))
}

fn boxed(body: Bytes) -> FaultBody {
    Full::new(body)
        .map_err(|never| match never {})
        .boxed_unsync()
}
