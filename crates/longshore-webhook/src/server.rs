//! Webhooks behind TLS: a path each, bounded bodies, an answer in time.

use std::{fmt, io, net::TcpListener, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response as HttpResponse},
    routing::post,
};
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use http::{StatusCode, header::CONTENT_TYPE};
use tokio_util::sync::CancellationToken;

use crate::{
    measures::Measures,
    review::{Denial, Response, Review, Verdict},
};

/// An object is no larger than etcd takes, and a change of one holds it twice.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// API servers wait 10 s; an answer that says why is better than none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long answers under way have to be finished once the server stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// A webhook.
#[async_trait]
pub trait Admission: fmt::Debug + Send + Sync + 'static {
    /// Whether something may be done, and how. Asked again for the same object, it says the same.
    async fn admit(&self, review: &Review) -> Response;
}

/// A webhook at its path.
#[derive(Clone)]
struct Served {
    path: &'static str,
    webhook: Arc<dyn Admission>,
    measures: Measures,
}

/// Webhooks by their paths, as `/mutate--v1-pod`. What they are asked is counted.
pub fn router(
    webhooks: impl IntoIterator<Item = (&'static str, Arc<dyn Admission>)>,
    measures: &Measures,
) -> Router {
    let mut router = Router::new();
    for (path, webhook) in webhooks {
        let served = Served {
            path,
            webhook,
            measures: measures.clone(),
        };
        router = router.route(path, post(answer).with_state(served));
    }
    router.layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Serves until `stopping`, and finishes answers under way.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    tls: RustlsConfig,
    router: Router,
    stopping: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    // An answer is several small writes, which must not wait for each other's acknowledgement.
    let acceptor = RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor::new());
    let server = axum_server::from_tcp(listener)?
        .acceptor(acceptor)
        .handle(handle.clone());
    let serving = server.serve(router.into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended,
        () = stopping.cancelled() => handle.graceful_shutdown(Some(DRAIN_LIMIT)),
    }
    serving.await
}

async fn answer(State(served): State<Served>, body: Bytes) -> HttpResponse {
    let asked = served.measures.asked(served.path);
    let review = match Review::read(&body) {
        Ok(review) => review,
        Err(error) => {
            asked.answered(StatusCode::BAD_REQUEST);
            return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
        }
    };
    let response = tokio::time::timeout(TIMEOUT, served.webhook.admit(&review)).await;
    let response = response.unwrap_or_else(|_| {
        let message = format!("the webhook had no answer within {TIMEOUT:?}; try again");
        Denial::because(504, message).into()
    });
    tell(&review, &response);
    let json = response.to_review(&review).to_string();
    asked.answered(StatusCode::OK);
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}

/// A refusal is news.
fn tell(review: &Review, response: &Response) {
    if let Verdict::Denied(denial) = &response.verdict {
        let Denial {
            code,
            reason,
            message,
            ..
        } = denial;
        let Review {
            operation,
            namespace,
            name,
            resource,
            ..
        } = review;
        tracing::info!(
            operation,
            resource,
            namespace,
            name,
            code,
            reason,
            message,
            "a webhook said no"
        );
    }
}
