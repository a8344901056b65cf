//! `pods/proxy` and `services/proxy`: hands an HTTP request to a port of a pod, and upgraded connections with it.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONNECTION, HOST, LOCATION, UPGRADE},
    request::Parts,
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tower::BoxError;

use crate::server::{
    Server,
    error::{ApiError, Result},
    http::body::{self, ApiBody, Live},
    hub::Key,
    meta,
    streams::{Place, PodConnection},
    verbs::Call,
    wire::upgrade::{Upgrade, asked_protocol},
};

const LABEL_SERVICE: &str = "kubernetes.io/service-name";

/// Headers that are about one connection and not about the request.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Hands the request to the pod or service on the URL.
pub(super) async fn proxy<B>(call: &Call, mut parts: Parts, body: B) -> Result<Response<ApiBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (prefix, rest) = split(parts.uri.path());
    if rest.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
        return redirect(&parts.uri);
    }
    let prefix = prefix.to_owned();
    let path = path_and_query(rest, parts.uri.query())?;
    let (pod, port) = match call.resource().plural.as_str() {
        "services" => service_port(call, &Asked::parse("service", &call.name)?)?,
        _ => pod_port(call, &Asked::parse("pod", &call.name)?)?,
    };
    if meta::text(&pod, "/status/podIP").is_empty() {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let target = call.target(pod)?;
    let (connection, place) = target.connect(port).await.map_err(unreachable)?;
    let upgrade = match asked_protocol(&parts.headers) {
        Some(_) => Some(Upgrade::take(&mut parts.extensions)?),
        None => None,
    };
    let mut request = Request::new(body.map_err(Into::into).boxed_unsync());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = Uri::from(path);
    *request.headers_mut() = to_pod(&parts.headers, upgrade.is_some());
    let mut response = exchange(connection, place, request, upgrade).await?;
    relocate(response.headers_mut(), &prefix);
    Ok(response)
}

/// The path up to `/proxy`, and what is behind it.
fn split(path: &str) -> (&str, &str) {
    // `/api/v1/namespaces/<ns>/<plural>/<name>/proxy`: seven slashes.
    let mut slashes = path.match_indices('/').skip(7).map(|(at, _)| at);
    path.split_at(slashes.next().unwrap_or(path.len()))
}

/// Sends browsers to the path with a slash at its end, so that relative links work.
fn redirect(uri: &Uri) -> Result<Response<ApiBody>> {
    let query = uri
        .query()
        .map_or(String::new(), |query| format!("?{query}"));
    let location = format!("{}/{query}", uri.path());
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_str(&location).map_err(ApiError::internal)?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

fn path_and_query(rest: &str, query: Option<&str>) -> Result<PathAndQuery> {
    let rest = if rest.is_empty() { "/" } else { rest };
    let text = match query {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    PathAndQuery::try_from(text)
        .map_err(|error| ApiError::bad_request(format!("expected a path behind /proxy: {error}")))
}

fn unreachable(mut error: ApiError) -> ApiError {
    if error.code == 503 {
        error
            .message
            .insert_str(0, "error trying to reach service: ");
    }
    error
}

/// `name`, `name:port`, `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    name: &'a str,
    port: &'a str,
}

impl<'a> Asked<'a> {
    fn parse(kind: &str, text: &'a str) -> Result<Asked<'a>> {
        let (scheme, name, port) = match text.split(':').collect::<Vec<_>>().as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        match scheme {
            "" | "http" if !name.is_empty() => Ok(Asked { name, port }),
            "https" => Err(ApiError::bad_request(format!(
                "this server's proxy speaks plain HTTP to pods, found {text:?}: use kubectl port-forward for TLS"
            ))),
            _ => Err(ApiError::bad_request(format!(
                "invalid {kind} request {text:?}"
            ))),
        }
    }
}

/// The pod on the URL, and the named port or its first one.
fn pod_port(call: &Call, asked: &Asked<'_>) -> Result<(Value, u16)> {
    let object = call
        .collection
        .get(&Key::new(call.namespace.as_deref(), asked.name));
    let pod = object
        .ok_or_else(|| ApiError::not_found(call.resource(), asked.name))?
        .value();
    let port = match asked.port {
        "" => first_port(&pod).unwrap_or(80),
        number => number.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "expected the number of a port of pod {:?}, found {number:?}",
                asked.name
            ))
        })?,
    };
    Ok((pod, port))
}

fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let port = containers
        .iter()
        .find_map(|it| it.pointer("/ports/0/containerPort")?.as_u64());
    u16::try_from(port?).ok()
}

/// A pod behind the service on the URL, and its port.
fn service_port(call: &Call, asked: &Asked<'_>) -> Result<(Value, u16)> {
    let key = Key::new(call.namespace.as_deref(), asked.name);
    let service = call.collection.get(&key);
    let service = service
        .ok_or_else(|| ApiError::not_found(call.resource(), asked.name))?
        .value();
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let ports = ports.map_or(&[][..], Vec::as_slice);
    let number = asked.port.parse::<u16>().ok().map(Value::from);
    let named = |it: &&Value| {
        it["name"].as_str() == Some(asked.port) || Some(&it["port"]) == number.as_ref()
    };
    let port = match (asked.port, ports) {
        ("", [only]) => Some(only),
        ("", _) => ports.iter().find(|it| meta::text(it, "/name").is_empty()),
        _ => ports.iter().find(named),
    };
    let port = port.ok_or_else(|| {
        let (name, port) = (asked.name, asked.port);
        ApiError::unavailable(format!(
            "no service port {port:?} found for service {name:?}"
        ))
    })?;
    let found = behind(call, asked.name, meta::text(port, "/name"));
    found.ok_or_else(|| {
        let name = asked.name;
        ApiError::unavailable(format!("no endpoints available for service {name:?}"))
    })
}

/// One of the ready pods of a service, another one each time.
fn behind(call: &Call, service: &str, port: &str) -> Option<(Value, u16)> {
    let server = &call.server;
    let slices = server
        .registry
        .find("discovery.k8s.io", "v1", "endpointslices")?;
    let pods = server.registry.find("", "v1", "pods")?;
    let namespace = call.namespace.as_deref();
    let (objects, _) = slices.collection.snapshot(0);
    let prefix = format!("{}/", namespace.unwrap_or_default());
    let of_service = objects.values().filter(|slice| {
        let label = slice.facets.labels.get(LABEL_SERVICE);
        slice.key.as_str().starts_with(&prefix) && label.is_some_and(|it| it == service)
    });
    let ready: Vec<(String, u16)> = of_service
        .flat_map(|slice| ready_pods(&slice.value(), port))
        .collect();
    let chosen = pick(server, ready.len())?;
    let (name, number) = ready.get(chosen)?;
    let pod = pods.collection.get(&Key::new(namespace, name))?;
    Some((pod.value(), *number))
}

fn pick(server: &Server, n: usize) -> Option<usize> {
    let random = usize::try_from(server.random.next() % (1 << 30)).unwrap_or_default();
    random.checked_rem(n)
}

/// The names of the ready pods of a slice, with the number of the port of this name.
fn ready_pods(slice: &Value, port: &str) -> Vec<(String, u16)> {
    let list = |key: &str| slice[key].as_array().cloned().unwrap_or_default();
    let number = list("ports")
        .iter()
        .filter(|it| meta::text(it, "/name") == port)
        .find_map(|it| u16::try_from(it["port"].as_u64()?).ok());
    let Some(number) = number else {
        return Vec::new();
    };
    list("endpoints")
        .iter()
        .filter(|it| it.pointer("/conditions/ready") != Some(&Value::Bool(false)))
        .map(|it| meta::text(it, "/targetRef/name").to_owned())
        .filter(|name| !name.is_empty())
        .map(|name| (name, number))
        .collect()
}

/// What the pod gets of the client's headers: not who the client is, and nothing about the client's connection.
fn to_pod(headers: &HeaderMap, is_upgrade: bool) -> HeaderMap {
    let mut sent = without_hops(headers);
    sent.remove(AUTHORIZATION);
    let impersonation = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
    let names: Vec<HeaderName> = sent.keys().filter(impersonation).cloned().collect();
    for name in names {
        sent.remove(name);
    }
    if is_upgrade {
        sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        for protocol in headers.get_all(UPGRADE) {
            sent.append(UPGRADE, protocol.clone());
        }
    }
    sent.entry(HOST)
        .or_insert(HeaderValue::from_static("localhost"));
    sent
}

fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named = headers.get_all(CONNECTION).into_iter();
    let named = named.filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).map(str::trim);
    for name in HOP_BY_HOP.into_iter().chain(named) {
        kept.remove(name);
    }
    kept
}

/// A redirection to a path of the pod is one to a path below `/proxy` for the client.
fn relocate(headers: &mut HeaderMap, prefix: &str) {
    let location = headers.get(LOCATION).and_then(|it| it.to_str().ok());
    let Some(path) = location.filter(|it| it.starts_with('/') && !it.starts_with("//")) else {
        return;
    };
    if let Ok(moved) = HeaderValue::from_str(&format!("{prefix}{path}")) {
        headers.insert(LOCATION, moved);
    }
}

/// Sends the request on this connection.
async fn exchange(
    connection: PodConnection,
    place: Place,
    request: Request<UnsyncBoxBody<Bytes, BoxError>>,
    upgrade: Option<Upgrade>,
) -> Result<Response<ApiBody>> {
    let failed = |error: hyper::Error| {
        ApiError::unavailable(format!("error trying to reach service: {error}"))
    };
    let (mut sender, driver) = http1::handshake(TokioIo::new(connection))
        .await
        .map_err(failed)?;
    let place = Arc::new(place);
    let held = Arc::clone(&place);
    tokio::spawn(async move {
        // Ends with the answer, or with the client that does not want it any more.
        let _place = held;
        if let Err(error) = driver.with_upgrades().await {
            tracing::debug!(%error, "a proxied connection ended");
        }
    });
    let mut response = sender.send_request(request).await.map_err(failed)?;
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let (upgrade, is_upgraded) = match (upgrade, is_upgraded) {
        (Some(upgrade), true) => (Some(upgrade), true),
        (None, true) => {
            let message =
                "error trying to reach service: it changed the protocol without being asked";
            return Err(ApiError::unavailable(message));
        }
        (_, false) => (None, false),
    };
    let mut headers = without_hops(response.headers());
    if is_upgraded {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        for protocol in response.headers().get_all(UPGRADE) {
            headers.append(UPGRADE, protocol.clone());
        }
    }
    if let Some(upgrade) = upgrade {
        let pod = hyper::upgrade::on(&mut response);
        upgrade.spawn(|mut client| async move {
            let _place = place;
            let pod = pod.await.map_err(std::io::Error::other)?;
            let mut pod = TokioIo::new(pod);
            tokio::io::copy_bidirectional(&mut client, &mut pod).await?;
            Ok::<_, std::io::Error>(())
        });
    }
    let status = response.status();
    let mut answer = Response::new(response.into_body().map_err(Into::into).boxed_unsync());
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer.extensions_mut().insert(Live);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_a_scheme_and_a_port() {
        for (text, expected) in [
            ("a", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            ("a:http", Some(("a", "http"))),
            ("http:a:80", Some(("a", "80"))),
            ("http:a:", Some(("a", ""))),
            ("https:a:443", None),
            ("ftp:a:21", None),
            (":80", None),
            ("a:b:c:d", None),
        ] {
            let found = Asked::parse("pod", text).ok();
            assert_eq!(found.map(|it| (it.name, it.port)), expected, "{text}");
        }
    }

    #[test]
    fn the_path_behind_proxy_is_taken_as_it_is() {
        let prefix = "/api/v1/namespaces/a/pods/b:80/proxy";
        for (rest, query, expected) in [
            ("", None, "/"),
            ("/", None, "/"),
            ("/x%2Fy//z/", Some("q=1"), "/x%2Fy//z/?q=1"),
        ] {
            let path = format!("{prefix}{rest}");
            assert_eq!(split(&path), (prefix, rest));
            let found = path_and_query(rest, query).unwrap();
            assert_eq!(found.as_str(), expected);
        }
    }

    #[test]
    fn a_pod_does_not_learn_the_credentials_of_the_client() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("impersonate-user", "jane"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("accept", "text/html"),
            ("host", "localhost:7443"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let sent = to_pod(&headers, false);
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host"]);
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        assert_eq!(to_pod(&headers, true)[UPGRADE], "websocket");
    }

    #[test]
    fn redirections_stay_below_the_proxy() {
        for (location, expected) in [
            ("/login", "/p/proxy/login"),
            ("login", "login"),
            ("//elsewhere/", "//elsewhere/"),
            ("https://elsewhere/", "https://elsewhere/"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(location));
            relocate(&mut headers, "/p/proxy");
            assert_eq!(headers[LOCATION], expected);
        }
    }
}
