//! The `tower` service: from a request to a verb.

use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::{
    accept::{Encoding, Form, Messages, negotiate, negotiate_review},
    body::{self, ApiBody, NoMessage, Sending},
    discovery,
    present::Presentation,
    query::Query,
    render::Rendering,
    route::{DiscoveryPath, ResourcePath, Route},
    socket::Carrier,
};
use crate::server::{
    Server,
    auth::{self, UserInfo},
    authz::{Attributes, Refusal, acting_user},
    error::{ApiError, Result},
    openapi,
    patch::PatchType,
    protobuf,
    registry::{Resource, Served, Strategy},
    reviews,
    schema::{self, FieldValidation},
    subresources::{
        binding, ephemeral, eviction, finalize, log, scale,
        streams::{self, WayIn},
        token,
    },
    tables::RowObject,
    unserved,
    verbs::{
        Call, Warnings, create,
        delete::{self, DeleteOptions},
        delete_collection, get, list, patch,
        rewrite::{Part, rewrite},
        update, watch,
    },
};

/// The API server as a `tower` service; clones share the cluster.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<Server>,
}

impl fmt::Debug for ApiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiService").finish_non_exhaustive()
    }
}

impl ApiService {
    pub(crate) fn new(server: Arc<Server>) -> ApiService {
        ApiService { server }
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server)
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ApiBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.server);
        async move {
            let (parts, body) = request.into_parts();
            let query = Query::parse(parts.uri.query().unwrap_or(""));
            let presentation = Presentation::of(&parts.headers, &query);
            let answer = answer(server, parts, query, body).await;
            let answer = answer.unwrap_or_else(|error| body::failure(&error));
            Ok(presentation.apply(answer).await)
        }
        .boxed()
    }
}

async fn answer<B>(
    server: Arc<Server>,
    mut parts: Parts,
    query: Query,
    body: B,
) -> Result<Response<ApiBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let route = Route::parse(parts.uri.path());
    let user = match admit(&server, &parts, &query, &route) {
        Ok(user) => user,
        Err(Refusal::Status(error)) => return Err(error),
        Err(Refusal::Text(text)) => return Ok(body::text(StatusCode::INTERNAL_SERVER_ERROR, text)),
    };
    let path = match route {
        Route::Other(path) => return other(&server, &parts, &query, &path),
        Route::Discovery(path) => return describe(&server, &parts, &path),
        Route::Resource(path) => path,
    };
    let input = Input {
        content_type: content_type(&parts).to_owned(),
        sending: Sending::of(&parts.headers),
        bytes: Bytes::new(),
    };
    if let Some(review) = reviews::find(&path) {
        if parts.method != Method::POST {
            return Err(ApiError::method_not_allowed());
        }
        let form = negotiate_review(&parts.headers)?;
        let asked = input.read(body).await?.decoded()?;
        let namespace = path.namespace.as_deref();
        return reviews::answer(review, &server, &user, namespace, asked, form);
    }
    let Some(served) = server
        .registry
        .find(&path.group, &path.version, &path.plural)
    else {
        return unserved::answer(&server.registry, &path);
    };
    if !is_in_scope(&served.resource, &path) {
        return Err(ApiError::no_such_resource());
    }
    let carrier = Carrier::of(&mut parts, &query, path.subresource.as_deref())?;
    let way_in = WayIn::of(&served.resource, path.subresource.as_deref());
    let call = call(server, user, served, &path, query, &parts)?;
    if let Some(way_in) = way_in {
        // On the heap, or every request would have room for it.
        return Box::pin(streams::answer(way_in, &call, parts, body)).await;
    }
    let client_gone = call.client_gone.clone();
    let input = input.read(body).await?;
    let (method, subresource) = (parts.method, path.subresource);
    let is_read = method == Method::GET;
    let answer = async move {
        let mut answer = dispatch(&method, subresource.as_deref(), &call, &input).await?;
        if call.served.custom.is_some() && !call.rendering.is_protobuf() {
            answer.extensions_mut().insert(NoMessage);
        }
        Ok(call.with_warnings(answer))
    };
    if is_read {
        Ok(carrier.carry(answer.await?))
    } else {
        // Dropped with this future, which the client's departure drops.
        let _client = client_gone.drop_guard();
        to_the_end(answer).await
    }
}

/// Answers about paths outside of groups and versions.
fn other(server: &Server, parts: &Parts, query: &Query, path: &str) -> Result<Response<ApiBody>> {
    if parts.method == Method::GET
        && let Some(document) = auth::document(&server.auth, path)?
    {
        return Ok(document);
    }
    let Some(path) = path.strip_prefix("openapi/") else {
        return Ok(discovery::other(&parts.method, path));
    };
    let request = openapi::Request {
        method: &parts.method,
        path,
        query,
        headers: &parts.headers,
    };
    openapi::answer(&server.openapi, &server.registry, &request)
}

/// Answers a request about the API groups themselves.
fn describe(server: &Server, parts: &Parts, path: &DiscoveryPath) -> Result<Response<ApiBody>> {
    match parts.method {
        Method::GET => discovery::describe(&server.registry, path, &parts.headers),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Runs a write to its end, also when the client disconnects in its middle: what follows from a
/// stored write must follow. A webhook call that is still under way before the write is stored ends
/// with the connection of the client.
async fn to_the_end(
    write: impl Future<Output = Result<Response<ApiBody>>> + Send + 'static,
) -> Result<Response<ApiBody>> {
    tokio::spawn(write).await.map_err(ApiError::internal)?
}

/// Lets a request in, or refuses it; returns the user for whom it acts.
fn admit(
    server: &Server,
    parts: &Parts,
    query: &Query,
    route: &Route,
) -> Result<Arc<UserInfo>, Refusal> {
    let authorizer = &server.authorizer;
    let user = acting_user(authorizer, sender(parts), &parts.headers, &parts.uri)?;
    let asked = Attributes::of(&parts.method, parts.uri.path(), route, query);
    authorizer.require(&user, &asked)?;
    Ok(user)
}

/// The sender of a request, whom the wire has found; the requests of this process are those of the administrator.
fn sender(parts: &Parts) -> Arc<UserInfo> {
    let found = parts.extensions.get::<Arc<UserInfo>>();
    found.map_or_else(|| Arc::new(UserInfo::admin()), Arc::clone)
}

fn content_type(parts: &Parts) -> &str {
    let header = parts.headers.get(CONTENT_TYPE);
    header.and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn call(
    server: Arc<Server>,
    user: Arc<UserInfo>,
    served: Served,
    path: &ResourcePath,
    query: Query,
    parts: &Parts,
) -> Result<Call> {
    let subresource = path.subresource.as_deref();
    let has_own_form =
        subresource == Some("log") || WayIn::of(&served.resource, subresource).is_some();
    let messages = match served.resource.custom {
        Some(_) => Messages::Metadata,
        None => Messages::Whole,
    };
    let (form, encoding) = if has_own_form {
        (Form::Whole, Encoding::Json)
    } else {
        negotiate(&parts.headers, messages)?
    };
    let row_object = RowObject::asked(&query)?;
    let warnings = Warnings::default();
    let custom = served.resource.custom.as_ref();
    warnings.add(custom.and_then(|custom| custom.deprecation.clone()));
    let clock = Arc::clone(&server.clock);
    Ok(Call {
        server,
        user,
        rendering: Rendering::new(form, row_object, Arc::clone(&served.resource), clock)
            .encoded_as(encoding),
        served: served.resource,
        collection: served.collection,
        namespace: path.namespace.clone(),
        name: path.name.clone().unwrap_or_default(),
        subresource: path.subresource.clone(),
        is_of_collection: false,
        query,
        warnings,
        client_gone: CancellationToken::new(),
    })
}

/// Objects of the whole cluster have no namespace; named ones inside a namespace do.
fn is_in_scope(resource: &Resource, path: &ResourcePath) -> bool {
    match (resource.is_namespaced(), &path.namespace, &path.name) {
        (false, Some(_), _) | (true, None, Some(_)) => false,
        (false, None, _) | (true, _, None) | (true, Some(_), Some(_)) => true,
    }
}

/// The body of a request.
struct Input {
    content_type: String,
    sending: Sending,
    bytes: Bytes,
}

impl Input {
    async fn read<B>(self, body: B) -> Result<Input>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let bytes = body::collect(body, self.sending).await?;
        Ok(Input { bytes, ..self })
    }

    fn decoded(&self) -> Result<Value> {
        body::decode(&self.content_type, &self.bytes)
    }

    /// Decodes the object in the body, and validates its fields as the request demands.
    fn object(&self, call: &Call) -> Result<Value> {
        let is_protobuf = protobuf::is_protobuf(&self.content_type);
        if is_protobuf && call.served.custom.is_some() {
            let accepted = ["application/json", "application/yaml"];
            return Err(ApiError::unsupported_media_type(&accepted));
        }
        let object = self.decoded()?;
        let is_yaml = self.content_type.starts_with("application/yaml");
        let json = (!is_yaml && !is_protobuf).then_some(&*self.bytes);
        let validation = FieldValidation::asked(&call.query)?;
        let oddities = schema::check_body(&call.served, validation, &object, json)?;
        call.warnings.add(oddities);
        Ok(object)
    }

    /// The options of a deletion.
    fn delete_options(&self, call: &Call) -> Result<DeleteOptions> {
        let body = if self.bytes.is_empty() {
            None
        } else {
            Some(self.decoded()?)
        };
        DeleteOptions::read(body, &call.query)
    }

    fn patch(&self) -> Result<(PatchType, Value)> {
        Ok((
            PatchType::of(&self.content_type)?,
            body::decode_json(&self.bytes)?,
        ))
    }
}

async fn dispatch(
    method: &Method,
    subresource: Option<&str>,
    call: &Call,
    input: &Input,
) -> Result<Response<ApiBody>> {
    match subresource {
        None if call.name.is_empty() => on_collection(method, call, input).await,
        None => on_object(method, call, input, Part::Main).await,
        Some("status") if call.resource().has_status() && *method != Method::DELETE => {
            on_object(method, call, input, Part::Status).await
        }
        Some("approval")
            if call.resource().strategy == Strategy::SigningRequest
                && *method != Method::DELETE =>
        {
            on_object(method, call, input, Part::Approval).await
        }
        Some("scale") if call.resource().has_scale => on_scale(method, call, input).await,
        Some(subresource) => on_subresource(method, subresource, call, input).await,
    }
}

async fn on_collection(method: &Method, call: &Call, input: &Input) -> Result<Response<ApiBody>> {
    let is_everywhere = call.resource().is_namespaced() && call.namespace.is_none();
    match *method {
        Method::GET if call.query.flag("watch")?.unwrap_or(false) => watch::watch(call).await,
        Method::GET => list::list(call).await,
        Method::POST if !is_everywhere => create::create(call, input.object(call)?).await,
        Method::DELETE if !is_everywhere => {
            delete_collection::delete_collection(call, input.delete_options(call)?).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn on_object(
    method: &Method,
    call: &Call,
    input: &Input,
    part: Part,
) -> Result<Response<ApiBody>> {
    match *method {
        Method::GET if call.query.flag("watch")?.unwrap_or(false) => watch::watch(call).await,
        Method::GET => get::get(call).await,
        Method::PUT => update::update(call, part, input.object(call)?).await,
        Method::PATCH => {
            let (patch_type, patch) = input.patch()?;
            patch::patch(call, part, patch_type, &patch).await
        }
        Method::DELETE => delete::delete(call, input.delete_options(call)?).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn on_scale(method: &Method, call: &Call, input: &Input) -> Result<Response<ApiBody>> {
    match *method {
        Method::GET => scale::get(call),
        Method::PUT => scale::update(call, &input.decoded()?).await,
        Method::PATCH => {
            let (patch_type, patch) = input.patch()?;
            scale::patch(call, patch_type, &patch).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn on_subresource(
    method: &Method,
    subresource: &str,
    call: &Call,
    input: &Input,
) -> Result<Response<ApiBody>> {
    let resource = call.resource();
    match (resource.qualified().as_str(), subresource, method.as_str()) {
        ("pods", "binding", "POST") => binding::bind(call, input.decoded()?).await,
        ("pods", "eviction", "POST") => eviction::evict(call, input.decoded()?).await,
        ("pods", "log", "GET") => log::log(call).await,
        ("serviceaccounts", "token", "POST") => token::request(call, input.decoded()?).await,
        ("pods", "ephemeralcontainers", "GET") => get::get(call).await,
        ("pods", "ephemeralcontainers", "PUT") => {
            let asked = input.decoded()?;
            let change = |pod: &Value| Ok(ephemeral::with_ephemeral_containers(pod, &asked));
            Ok(rewrite(call, Part::Ephemeral, change).await?.respond(call))
        }
        ("pods", "ephemeralcontainers", "PATCH") => {
            let (patch_type, patch) = input.patch()?;
            let change = |pod: &Value| {
                let asked = crate::server::patch::apply(patch_type, "Pod", pod, &patch)?;
                Ok(ephemeral::with_ephemeral_containers(pod, &asked))
            };
            Ok(rewrite(call, Part::Ephemeral, change).await?.respond(call))
        }
        ("namespaces", "finalize", "PUT") => {
            let asked = input.decoded()?;
            let change = |namespace: &Value| Ok(finalize::with_finalizers(namespace, &asked));
            Ok(rewrite(call, Part::Private, change).await?.respond(call))
        }
        ("certificatesigningrequests.certificates.k8s.io", "approval", _)
        | ("pods", "binding" | "eviction" | "log" | "ephemeralcontainers", _)
        | ("namespaces", "finalize", _)
        | ("serviceaccounts", "token", _) => Err(ApiError::method_not_allowed()),
        _ => Err(unserved::part(resource, subresource)),
    }
}
