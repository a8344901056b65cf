//! Authentication: requests must name a known host (against DNS rebinding) and show the token.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, Uri, header, uri::Authority};

use super::{Hosts, Shared};
use crate::{connections::Connection, problem::Problem};

/// Lets only requests through whose `Host` is a loopback name or one that was configured: a foreign page that has its
/// own name resolve to 127.0.0.1 gets nothing.
pub(super) async fn host(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let Hosts::Known(hosts) = hosts else {
        return next.run(request).await;
    };
    match asked_host(request.headers(), request.uri()) {
        Some(host) if is_known(&host, &hosts) => next.run(request).await,
        host => {
            let found = host.map_or("none".to_owned(), |host| format!("{host:?}"));
            Problem::new(
                StatusCode::FORBIDDEN,
                "LS1802",
                format!("the service is not known by this name: expected localhost, found {found}"),
                "use the address that `longshore standalone` prints",
            )
            .into_response()
        }
    }
}

/// Host without port, from the only `Host` header or the request's own authority.
fn asked_host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let mut named = headers.get_all(header::HOST).iter();
    let authority: Authority = match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok()?.parse().ok()?,
        (None, None) => uri.authority()?.clone(),
        _ => return None,
    };
    Some(authority.host().to_ascii_lowercase())
}

fn is_known(host: &str, configured: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => address == Ipv6Addr::LOCALHOST,
        Err(_) => host == "localhost",
    };
    is_loopback
        || configured
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host))
}

/// Lets only requests through that show the token.
pub(super) async fn token(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let detail = match shown {
        Some(token) if shared.access.token.is(token) => {
            if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
                connection.admit();
            }
            return next.run(request).await;
        }
        Some(_) => "the token is not the one of this service",
        None => "the request has no bearer token",
    };
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "LS1801",
        detail,
        "the token is in client.yaml in the data directory of the service",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_configured_names_are_known_and_nothing_else() {
        let configured = ["longshore.internal".to_owned()];
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("[::1]", true),
            ("longshore.internal", true),
            ("Longshore.Internal", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
            ("[::2]", false),
            ("0.0.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_known(host, &configured), expected, "{host}");
        }
    }
}
