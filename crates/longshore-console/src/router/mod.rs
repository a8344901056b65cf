//! The routes, and the layers around them.
//!
//! Outermost is [`edge`] (request id, problems written out, headers), then the deadline, then the [`guard`] (Host and
//! token), then the handlers: one file per noun.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{MethodRouter, get, post, put},
};
use http::{StatusCode, header};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    control::{Checks, Control},
    problem::Problem,
    token::Token,
};

mod changes;
mod dags;
mod edge;
mod extract;
mod guard;
mod health;
mod logs;
mod pools;
mod runs;
mod tasks;

/// No request body is larger.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// How long a handler may take until it answers; a stream begins within it and lasts as long as it likes.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What a request needs to be admitted.
#[derive(Clone, Debug)]
pub struct Access {
    /// The token that clients have to show.
    pub token: Token,
    /// The names that the `Host` header may have.
    pub hosts: Hosts,
}

/// The host names by which clients may call a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// By the loopback ones, and these: a page in a browser of this machine must not get in by a name of its own.
    Known(Vec<String>),
    /// By any: it is meant to be reached from elsewhere.
    Any,
}

/// The state that every handler gets.
#[derive(Clone)]
pub(crate) struct Shared {
    control: Arc<dyn Control>,
    access: Arc<Access>,
    /// Ends the streams.
    stopping: CancellationToken,
}

/// The whole API over a service. `stopping` makes it unready and ends its streams.
pub fn router(control: Arc<dyn Control>, access: Access, stopping: CancellationToken) -> Router {
    let shared = Shared {
        control,
        access: Arc::new(access),
        stopping,
    };
    let run = "/dags/{dag_id}/runs/{run_id}";
    let task = format!("{run}/tasks/{{task_id}}");
    let api = Router::new()
        .route("/dags", only(get(dags::list)))
        .route("/dags/{dag_id}", only(get(dags::show).patch(dags::patch)))
        .route("/dags/{dag_id}/runs", only(post(dags::trigger)))
        .route("/importErrors", only(get(dags::import_errors)))
        .route("/runs", only(get(runs::list)))
        .route(run, only(get(runs::get)))
        .route(&format!("{run}/cancel"), only(post(runs::cancel)))
        .route(&format!("{run}/retry"), only(post(runs::retry)))
        .route(&format!("{run}/tasks"), only(get(tasks::list)))
        .route(&task, only(get(tasks::get)))
        .route(&format!("{task}/clear"), only(post(tasks::clear)))
        .route(&format!("{task}/logs"), only(get(logs::read)))
        .route("/pools", only(get(pools::list)))
        .route("/pools/{pool}", only(put(pools::set).delete(pools::delete)))
        .route("/changes", only(get(changes::follow)))
        .fallback(no_route)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::token));
    Router::new()
        .nest("/api/v1", api)
        .merge(health(shared.control.clone(), shared.stopping.clone()))
        .fallback(no_route)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(
            shared.access.hosts.clone(),
            guard::host,
        ))
        .layer(middleware::from_fn(edge::deadline))
        .layer(CatchPanicLayer::custom(edge::panicked))
        .layer(middleware::from_fn(edge::finish))
        .with_state(shared)
}

/// An API with another service below a path, which has a guard and limits of its own: none of those of the API hold there.
pub fn beside(api: Router, path: &str, other: Router) -> Router {
    Router::new().nest(path, other).merge(api)
}

/// What the metrics are at the moment, as text.
pub type Scrape = Arc<dyn Fn() -> String + Send + Sync>;

/// Health and metrics alone, for probes and scrapers: without a token, and with nothing but numbers.
pub fn operations(
    checks: Arc<dyn Checks>,
    hosts: Hosts,
    scrape: Scrape,
    content_type: &'static str,
    stopping: CancellationToken,
) -> Router {
    let metrics = async move || ([(header::CONTENT_TYPE, content_type)], scrape());
    Router::new()
        .route("/metrics", only(get(metrics)))
        .merge(health(checks, stopping))
        .fallback(no_route)
        .layer(middleware::from_fn_with_state(hosts, guard::host))
        .layer(middleware::from_fn(edge::deadline))
        .layer(CatchPanicLayer::custom(edge::panicked))
        .layer(middleware::from_fn(edge::finish))
}

/// Whether it lives and whether it can serve; `healthz` is an old name for the first.
fn health<S: Clone + Send + Sync + 'static>(
    checks: Arc<dyn Checks>,
    stopping: CancellationToken,
) -> Router<S> {
    Router::new()
        .route("/healthz", only(get(health::live)))
        .route("/livez", only(get(health::live)))
        .route("/readyz", only(get(health::ready)))
        .with_state(health::Health { checks, stopping })
}

fn only<S: Clone + Send + Sync + 'static>(methods: MethodRouter<S>) -> MethodRouter<S> {
    methods.fallback(wrong_method)
}

async fn no_route() -> Problem {
    Problem::bad_request(StatusCode::NOT_FOUND, "there is nothing at this path")
}

async fn wrong_method() -> Problem {
    Problem::bad_request(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not take this method",
    )
}
