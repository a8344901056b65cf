//! Clients for addresses that the configuration of the process names.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Url, redirect::Policy};

/// How long a connection may take to come about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The beginning of a client for addresses that the operator names.
///
/// It may reach private addresses and loopback, follows no redirect, and uses no proxy of the
/// environment: either would send the data of tasks, and credentials, to a server that the operator
/// has not configured. The caller sets the limits of its requests.
pub fn operator_named() -> ClientBuilder {
    let builder = Client::builder();
    builder
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Whether a text is an `http://` or `https://` URL with a host.
pub fn is_service_url(text: &str) -> bool {
    let is_http = |url: Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    Url::parse(text).is_ok_and(is_http)
}
