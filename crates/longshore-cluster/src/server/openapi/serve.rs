//! Requests below `/openapi`.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES,
        IF_NONE_MATCH, LOCATION, VARY,
    },
};
use serde_json::{Map, Value, json};

use super::{Document, Documents, binary, document, document_name, document_names, resources, tag};
use crate::server::{
    error::{ApiError, Result},
    http::{
        accept::{takes, takes_json},
        body::{self, ApiBody},
        query::Query,
    },
    registry::{Registry, Resource},
};

/// Serves a path below `/openapi/`.
pub(crate) fn answer(
    documents: &Documents,
    registry: &Registry,
    request: &Request<'_>,
) -> Result<Response<ApiBody>> {
    if *request.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let resources = resources(registry);
    match request.path {
        "v2" => version_2(documents, &resources, request),
        "v3" => Ok(index(&resources)),
        path => match path.strip_prefix("v3/") {
            Some(name) => group_version(documents, &resources, name, request),
            None => Ok(not_found()),
        },
    }
}

/// Everything in one document, as JSON or in protobuf.
fn version_2(
    documents: &Documents,
    resources: &[Arc<Resource>],
    request: &Request<'_>,
) -> Result<Response<ApiBody>> {
    let all: Vec<&Resource> = resources.iter().map(Arc::as_ref).collect();
    let tag = tag(&all);
    if takes_json(request.headers) {
        let make = || encoded(document::version_2(&all));
        let document = documents.get("v2", resources, &tag, make)?;
        return send(request.headers, &document, false);
    }
    if !takes(request.headers, binary::ASKED_TYPE) {
        return Err(ApiError::not_acceptable());
    }
    let make = || Ok(binary::encode(&document::version_2(&all)?));
    let document = documents.get("v2 in protobuf", resources, &tag, make)?;
    let mut response = send(request.headers, &document, false)?;
    let content_type = HeaderValue::from_static(binary::SENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

fn encoded(document: Result<Value>) -> Result<Vec<u8>> {
    Ok(document?.to_string().into_bytes())
}

/// The parts of a request for a document.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Below `/openapi/`.
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
}

fn not_found() -> Response<ApiBody> {
    body::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Every document of version 3, under an address that changes with it.
fn index(resources: &[Arc<Resource>]) -> Response<ApiBody> {
    let mut paths = Map::new();
    for name in document_names(resources) {
        let tag = tag(&of(resources, &name));
        let url = json!({"serverRelativeURL": address(&name, &tag)});
        paths.insert(name, url);
    }
    body::json(StatusCode::OK, &json!({"paths": paths}))
}

fn address(name: &str, tag: &str) -> String {
    format!("/openapi/v3/{name}?hash={tag}")
}

/// The resources of one document.
fn of<'a>(resources: &'a [Arc<Resource>], name: &str) -> Vec<&'a Resource> {
    let in_document = resources
        .iter()
        .filter(|resource| document_name(resource) == name);
    in_document.map(Arc::as_ref).collect()
}

fn group_version(
    documents: &Documents,
    resources: &[Arc<Resource>],
    name: &str,
    request: &Request<'_>,
) -> Result<Response<ApiBody>> {
    let described = of(resources, name);
    if described.is_empty() {
        return Ok(not_found());
    }
    let tag = tag(&described);
    let asked = request.query.text("hash");
    if !asked.is_empty() && asked != tag {
        let mut response = body::text(StatusCode::MOVED_PERMANENTLY, "");
        if let Ok(location) = HeaderValue::from_str(&address(name, &tag)) {
            response.headers_mut().insert(LOCATION, location);
        }
        return Ok(response);
    }
    let document = documents.get(name, resources, &tag, || {
        encoded(document::version_3(&described))
    })?;
    send(request.headers, &document, !asked.is_empty())
}

/// Sends a document; under an address that names its content it never changes.
fn send(headers: &HeaderMap, document: &Document, is_immutable: bool) -> Result<Response<ApiBody>> {
    let tag = format!("\"{}\"", document.tag);
    let says = |name, what: &str| {
        let value = headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.contains(what))
    };
    let takes_gzip = says(ACCEPT_ENCODING, "gzip");
    let mut response = match (says(IF_NONE_MATCH, &tag), takes_gzip) {
        (true, _) => body::not_modified(),
        (false, true) => {
            let mut response = body::json_bytes(StatusCode::OK, document.compressed.clone());
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(CONTENT_ENCODING, gzip);
            response
        }
        (false, false) => body::json_bytes(StatusCode::OK, document.decompressed()?),
    };
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    if is_immutable {
        let forever = HeaderValue::from_static("public, immutable, max-age=31536000");
        headers.insert(CACHE_CONTROL, forever);
        // Clients that only know this header take any moment far away.
        let never = HeaderValue::from_static("Fri, 31 Dec 2100 00:00:00 GMT");
        headers.insert(EXPIRES, never);
    }
    Ok(response)
}
