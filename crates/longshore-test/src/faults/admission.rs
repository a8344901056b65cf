//! The admission of an API server: rules that stay whatever becomes of the process under test, and
//! a record of the creates that it received.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams, client::Body};
use serde_json::Value;
use tower::{BoxError, Service, ServiceExt};

use super::{
    FaultBody,
    layer::{Asked, status},
};
use crate::place::Place;

/// What a webhook says that refuses.
pub const DENIED: &str = "denied by the webhook";

/// A rule about requests, or about the size of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// None of this resource, which is the plural name: 403.
    Forbidden(&'static str),
    /// No pod while this many have not ended: 403, as a `ResourceQuota` answers.
    PodQuota(usize),
    /// The first creates of pods are too many, and the next one may come after some seconds: 429.
    BusyAtFirst {
        /// The number of creates that are refused.
        n_creates: u32,
        /// The retry time of the answer, in seconds.
        retry_after_seconds: u32,
    },
    /// No larger write of this resource, which is the plural name, with a subresource as `pods/status`: 413.
    AtMost {
        /// The resource.
        resource: &'static str,
        /// The most bytes of a request.
        max_bytes: usize,
    },
    /// No request with this verb about this resource: this status, with the message [`DENIED`].
    Refuses {
        /// The verb, as `patch`.
        verb: &'static str,
        /// The plural name, with a subresource as `pods/status`.
        resource: &'static str,
        /// The status of the answer.
        code: u16,
    },
}

/// The rules of an API server, and the creates that it received.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Vec<Rule>,
    n_pods: AtomicU32,
    creates: Mutex<Vec<(String, Bytes)>>,
}

/// Status, Kubernetes' reason, message, and seconds to stay away.
type Refused = (u16, &'static str, String, u32);

impl Admission {
    /// These rules.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self {
            shared: Arc::new(Shared {
                rules: rules.into_iter().collect(),
                ..Shared::default()
            }),
        }
    }

    /// The API server of this place, with these rules.
    pub fn service(&self, place: &Place) -> Admitting {
        Admitting {
            admission: self.clone(),
            place: place.clone(),
        }
    }

    /// The bodies with which objects of this resource (plural name) were to be created, in order.
    pub fn creates(&self, resource: &str) -> Vec<Value> {
        let creates = self.recorded();
        let of_resource = creates.iter().filter(|(asked, _)| asked == resource);
        of_resource
            .map(|(_, body)| serde_json::from_slice(body).unwrap_or_default())
            .collect()
    }

    fn recorded(&self) -> MutexGuard<'_, Vec<(String, Bytes)>> {
        let creates = self.shared.creates.lock();
        creates.unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit that a write of so many bytes is above.
    fn exceeded(&self, resource: &str, n_bytes: usize) -> Option<usize> {
        let mut limits = self.shared.rules.iter().filter_map(|rule| match *rule {
            Rule::AtMost {
                resource: limited,
                max_bytes,
            } if limited == resource => Some(max_bytes),
            Rule::Forbidden(_)
            | Rule::PodQuota(_)
            | Rule::BusyAtFirst { .. }
            | Rule::AtMost { .. }
            | Rule::Refuses { .. } => None,
        });
        limits.find(|max_bytes| n_bytes > *max_bytes)
    }

    /// The status with which a request is refused, whatever is in it.
    fn denied(&self, asked: &Asked) -> Option<u16> {
        self.shared.rules.iter().find_map(|rule| match *rule {
            Rule::Refuses {
                verb,
                resource,
                code,
            } if verb == asked.verb && resource == asked.resource => Some(code),
            Rule::Forbidden(_)
            | Rule::PodQuota(_)
            | Rule::BusyAtFirst { .. }
            | Rule::AtMost { .. }
            | Rule::Refuses { .. } => None,
        })
    }

    async fn refusal(&self, resource: &str, place: &Place) -> Option<Refused> {
        for rule in &self.shared.rules {
            let refused = match *rule {
                Rule::Forbidden(forbidden) if forbidden == resource => {
                    let message = format!("{resource} is forbidden: nobody may create them");
                    Some((403, "Forbidden", message, 0))
                }
                Rule::PodQuota(max) if resource == "pods" => over_quota(place, max).await,
                Rule::BusyAtFirst {
                    n_creates,
                    retry_after_seconds: seconds,
                } if resource == "pods" => {
                    let n = self.shared.n_pods.fetch_add(1, Ordering::Relaxed);
                    let message = "too many requests, please try again later".to_owned();
                    (n < n_creates).then_some((429, "TooManyRequests", message, seconds))
                }
                Rule::Forbidden(_)
                | Rule::PodQuota(_)
                | Rule::BusyAtFirst { .. }
                | Rule::AtMost { .. }
                | Rule::Refuses { .. } => None,
            };
            if refused.is_some() {
                return refused;
            }
        }
        None
    }
}

async fn over_quota(place: &Place, max: usize) -> Option<Refused> {
    let pods: Api<Pod> = Api::namespaced(place.client(), place.namespace());
    let pods = pods.list(&ListParams::default()).await.ok()?;
    let has_ended = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let n_live = pods.items.iter().filter(|pod| !has_ended(pod)).count();
    let message = format!(
        "pods is forbidden: exceeded quota: few, requested: pods=1, used: pods={n_live}, limited: pods={max}"
    );
    (n_live >= max).then_some((403, "Forbidden", message, 0))
}

/// See [`Admission::service`].
#[derive(Clone, Debug)]
pub struct Admitting {
    admission: Admission,
    place: Place,
}

impl Service<Request<Body>> for Admitting {
    type Response = Response<FaultBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { admission, place } = self.clone();
        Box::pin(async move {
            let asked = Asked::of(request.method(), request.uri());
            if let Some(code) = admission.denied(&asked) {
                let reason = if code == 403 {
                    "Forbidden"
                } else {
                    "InternalError"
                };
                return status(code, reason, DENIED, 0);
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            if let Some(limit) = admission.exceeded(&asked.resource, body.len()) {
                let message = format!("Request entity too large: limit is {limit}");
                return status(413, "RequestEntityTooLarge", &message, 0);
            }
            if asked.verb == "create" {
                let create = (asked.resource.clone(), body.clone());
                admission.recorded().push(create);
                if let Some((code, reason, message, seconds)) =
                    admission.refusal(&asked.resource, &place).await
                {
                    return status(code, reason, &message, seconds);
                }
            }
            let request = Request::from_parts(parts, Body::from(body));
            place.api().oneshot(request).await
        })
    }
}
