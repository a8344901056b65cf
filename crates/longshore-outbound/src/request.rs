//! Requests, and URLs in the form in which they may be shown.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, header::AUTHORIZATION};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use url::Url;

/// Expected an `http://` or `https://` URL with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an http:// or https:// URL with a host")]
pub struct BadUrl;

/// A request to a URL. The user and the password of the URL become its `Authorization`.
///
/// # Errors
/// [`BadUrl`].
pub fn request(method: Method, url: &str, body: Bytes) -> Result<Request<Full<Bytes>>, BadUrl> {
    let mut url = parse(url)?;
    let credentials = credentials(&url);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let mut request = Request::builder().method(method).uri(url.as_str());
    if let Some(credentials) = credentials {
        request = request.header(AUTHORIZATION, credentials);
    }
    request.body(Full::new(body)).map_err(|_| BadUrl)
}

/// Whether a text is an `http://` or `https://` URL with a host.
pub fn is_service_url(text: &str) -> bool {
    parse(text).is_ok()
}

pub(crate) fn parse(url: &str) -> Result<Url, BadUrl> {
    let url = Url::parse(url).map_err(|_| BadUrl)?;
    let is_http = ["http", "https"].contains(&url.scheme()) && url.has_host();
    if is_http { Ok(url) } else { Err(BadUrl) }
}

/// What `https://user:password@host` says, as `Basic`.
fn credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
    let mut pair = decoded(url.username());
    pair.push(b':');
    pair.extend(decoded(url.password().unwrap_or_default()));
    let header = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut header = HeaderValue::from_str(&header).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// A URL as it may be shown: its scheme, host, port and path. The user and the password are left out, and of a query,
/// which may have a key of the API, there is `?…`.
pub fn shown(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let has_host = |url: &Url| url.host_str().is_some_and(|host| !host.is_empty());
    let Some(mut parsed) = parsed.filter(has_host) else {
        return without_secrets(url);
    };
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    let has_query = parsed.query().is_some();
    if !has_user && !has_query && parsed.fragment().is_none() {
        return url.to_owned();
    }
    // Only URLs without a host refuse: those have no user either.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.set_query(None);
    parsed.set_fragment(None);
    let query = if has_query { "?…" } else { "" };
    format!("{parsed}{query}")
}

/// The same of a text that is no URL: the part before the last `@` may be a user and a password, and the part behind
/// the first `?` or `#` may be a key.
fn without_secrets(text: &str) -> String {
    let at = text.find(['?', '#']).unwrap_or(text.len());
    let (address, rest) = text.split_at(at);
    let is_scheme = |it: &&str| !it.contains([':', '@', '/']);
    let scheme = address.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.filter(is_scheme).map(|it| format!("{it}://"));
    let scheme = scheme.unwrap_or_default();
    // The password may have a `?`: then all of the address is a part of it.
    if rest.contains('@') {
        return format!("{scheme}…");
    }
    let address = match address.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}…@{host}"),
        None => address.to_owned(),
    };
    let query = if rest.starts_with('?') { "?…" } else { "" };
    format!("{address}{query}")
}
