//! The way of a request: version, route, token, fence, body, answer.

use std::{any::Any, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request as HttpRequest, State},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};
use longshore_airflow::{
    api::{
        Access, ApiError, ApiVersion, HEADER_CORRELATION_ID, HEADER_VERSION, Matched, Method,
        RawRequest, Request, Route, ValueKind,
    },
    token::{Claims, DEFAULT_VALIDITY, TokenScope, Tokens, bearer},
};
use longshore_kit::Clock;
use tokio::time::{Instant, timeout};
use tower_http::catch_panic::CatchPanicLayer;
use uuid::Uuid;

use crate::{
    answer::Question,
    body::{Bodies, BodyLimits},
    measures::Measures,
    reply::refused,
    state::{ExecutionState, Standing, StateError, StateResult},
};

/// From here on a body is read on a thread for such work, in bytes.
const LARGE: usize = 256 << 10;

/// How the service behaves.
#[derive(Debug)]
pub struct ApiConfig {
    /// Signs and verifies the tokens of workers.
    pub tokens: Arc<Tokens>,
    /// How long the token of an execution is valid: `[execution_api] jwt_expiration_time`, 600 s.
    pub validity: Duration,
    /// The longest value that a downstream task maps over: `[core] max_map_length`, 1,024.
    pub max_map_length: u64,
    /// How large bodies may be.
    pub bodies: BodyLimits,
    /// How long an answer may take, its body aside; default 30 s. The task SDK waits 5 s, and asks again.
    pub answer_timeout: Duration,
}

impl ApiConfig {
    /// Airflow's defaults with these tokens.
    #[must_use]
    pub fn new(tokens: Arc<Tokens>) -> Self {
        Self {
            tokens,
            validity: DEFAULT_VALIDITY,
            max_map_length: 1_024,
            bodies: BodyLimits::default(),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

/// What every request gets.
struct Api {
    state: Arc<dyn ExecutionState>,
    clock: Arc<dyn Clock>,
    config: ApiConfig,
    bodies: Bodies,
    measures: Measures,
}

/// The service over `state`, for the path `/execution` of a server: `Router::new().nest("/execution", router(…))`.
///
/// The server bounds connections and heads of requests; bodies are bounded here.
pub fn router(
    state: Arc<dyn ExecutionState>,
    clock: Arc<dyn Clock>,
    config: ApiConfig,
    measures: &Measures,
) -> Router {
    let api = Api {
        state,
        clock,
        bodies: Bodies::new(config.bodies),
        config,
        measures: measures.clone(),
    };
    Router::new()
        .fallback(receive)
        .with_state(Arc::new(api))
        .layer(CatchPanicLayer::custom(panicked))
}

/// A panic in a handler is a bug of ours; the others go on, and the client asks again.
fn panicked(_payload: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a handler of the Execution API panicked");
    refused(&ApiError::database())
}

async fn receive(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    let asked_at = Instant::now();
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).and_then(|it| it.to_str().ok());
    let version = ApiVersion::negotiate(header(HEADER_VERSION));
    let served = version.clone().unwrap_or(ApiVersion::LATEST);
    let found = version.and_then(|version| find_route(version, &head));
    let route = found.as_ref().ok().map(|matched| matched.route);
    let answered = match found {
        Ok(matched) => api.answer(served, matched, &head, body).await,
        Err(error) => Err(error.into()),
    };
    let mut response = answered.unwrap_or_else(|error| explain(&error, route));
    let headers = response.headers_mut();
    headers.insert(HEADER_VERSION, HeaderValue::from_static(served.as_str()));
    if let Some(id) = head.headers.get(HEADER_CORRELATION_ID) {
        headers.insert(HEADER_CORRELATION_ID, id.clone());
    }
    let status = response.status();
    api.measures.answered(route, status, asked_at);
    response
}

fn find_route(version: ApiVersion, head: &Parts) -> Result<Matched, ApiError> {
    let method = Method::parse(head.method.as_str()).ok_or_else(ApiError::method_not_allowed)?;
    let raw = RawRequest {
        version,
        method,
        path: head.uri.path(),
        query: &[],
        body: &[],
    };
    raw.route()
}

/// The answer to a request that has failed. The reason why nobody can answer is for our log, not for the client.
fn explain(error: &StateError, route: Option<&Route>) -> Response {
    let route = route.map_or("other", |it| it.path);
    match error {
        StateError::Refused(refusal) => {
            tracing::debug!(route, error = %refusal, "a request of a worker is refused");
            refused(refusal)
        }
        StateError::Unavailable(source) => {
            let error = longshore_core::error::chain(source.as_ref());
            tracing::warn!(route, error, "a request of a worker cannot be answered now");
            refused(&ApiError::database())
        }
    }
}

impl Api {
    async fn answer(
        &self,
        version: ApiVersion,
        matched: Matched,
        head: &Parts,
        body: axum::body::Body,
    ) -> StateResult<Response> {
        let route = matched.route;
        let claims = self.authenticate(&matched, &head.headers)?;
        let caller = claims.as_ref().map_or(Uuid::nil(), |it| it.sub);
        let in_time = self.config.answer_timeout;
        if is_fenced(route) {
            let standing = timeout(in_time, self.state.standing(caller)).await;
            permit(standing.map_err(|_| ApiError::no_answer_in_time())??)?;
        }
        let is_xcom = matches!(route.body, Some(ValueKind::Json));
        let limits = &self.bodies.limits;
        let limit = if is_xcom { limits.xcom } else { limits.other };
        let held = self.bodies.read(body, limit).await?;
        let request = read(version, matched, head, held.bytes.clone()).await?;
        let question = Question {
            state: self.state.as_ref(),
            max_map_length: self.config.max_map_length,
            route,
            version,
            caller,
        };
        let answering = async {
            let reply = question.answer(request, held.bytes.clone()).await?;
            reply.into_response(route).await
        };
        let answered = timeout(in_time, answering).await;
        let mut response = answered.map_err(|_| ApiError::no_answer_in_time())??;
        if let Some(claims) = claims {
            self.refresh(&claims, route, response.headers_mut());
        }
        Ok(response)
    }

    /// Whose request it is; `None` where everybody may ask.
    fn authenticate(
        &self,
        matched: &Matched,
        headers: &HeaderMap,
    ) -> Result<Option<Claims>, ApiError> {
        let access = matched.route.access;
        if access == Access::Open {
            return Ok(None);
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
        let claims = self
            .config
            .tokens
            .verify(bearer(authorization)?, self.clock.now())?;
        let task_instance = matched.parameter("task_instance_id");
        let task_instance = task_instance.and_then(|it| Uuid::try_parse(it).ok());
        claims.permit(access, task_instance)?;
        Ok(Some(claims))
    }

    /// Adds a new token to an answer of success: the one of an execution where a task has begun, and the next one where
    /// the present one ends soon.
    fn refresh(&self, claims: &Claims, route: &Route, headers: &mut HeaderMap) {
        let (tokens, validity) = (&self.config.tokens, self.config.validity);
        let (now, id) = (self.clock.now(), *Uuid::new_v4().as_bytes());
        let has_begun =
            route.access == Access::SameTaskOrWorkload && claims.scope == TokenScope::Workload;
        let token = if has_begun {
            tokens.issue(claims.sub, TokenScope::Execution, validity, now, id)
        } else if claims.is_due(validity, now) {
            tokens.refresh(claims, validity, now, id)
        } else {
            return;
        };
        let token = token.map_err(|error| error.to_string());
        let token = token.and_then(|it| HeaderValue::from_str(&it).map_err(|it| it.to_string()));
        match token {
            Ok(token) => {
                headers.insert(REFRESHED_TOKEN, token);
            }
            Err(error) => tracing::error!(error, "a token for a worker cannot be signed"),
        }
    }
}

/// [`HEADER_REFRESHED_TOKEN`] as HTTP libraries want it: names of headers have no case.
const REFRESHED_TOKEN: HeaderName = HeaderName::from_static("refreshed-api-token");

/// Whether only the present try may use a route that any task may use. The routes of one task instance fence by
/// themselves, because its id is in the path.
///
/// Secrets are read without: a worker that has told `up_for_retry` uploads its log after that, and may need the
/// connection to the store of logs. Its token ends within minutes.
fn is_fenced(route: &Route) -> bool {
    let is_secret =
        ["/variables/{variable_key}", "/connections/{connection_id}"].contains(&route.path);
    route.access == Access::Task && !(is_secret && route.method == Method::Get)
}

fn permit(standing: Standing) -> Result<(), ApiError> {
    match standing {
        Standing::Present => Ok(()),
        Standing::Archived => Err(ApiError::archived_task_instance()),
        // Not 404: that says that what was asked for is not there.
        Standing::Unknown => Err(ApiError::invalid_token(&"its task instance does not exist")),
    }
}

/// Reads the request. A large body is read beside the other requests.
async fn read(
    version: ApiVersion,
    matched: Matched,
    head: &Parts,
    body: Bytes,
) -> StateResult<Request> {
    let query = head.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned();
    let query: Vec<(String, String)> = query.collect();
    let path = head.uri.path().to_owned();
    let is_large = body.len() > LARGE;
    let read = move || {
        let raw = RawRequest {
            version,
            method: matched.route.method,
            path: &path,
            query: &query,
            body: &body,
        };
        raw.read(matched)
    };
    let request = if is_large {
        let reading = tokio::task::spawn_blocking(read).await;
        reading.map_err(StateError::unavailable)?
    } else {
        read()
    };
    Ok(request?)
}

#[cfg(test)]
mod tests {
    use longshore_airflow::api::HEADER_REFRESHED_TOKEN;

    use super::*;

    #[test]
    fn the_header_of_a_new_token_is_that_of_the_api() {
        assert!(
            REFRESHED_TOKEN
                .as_str()
                .eq_ignore_ascii_case(HEADER_REFRESHED_TOKEN)
        );
    }
}
