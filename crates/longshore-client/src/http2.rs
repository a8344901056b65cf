//! HTTP/2 to an API server.
//!
//! kube-rs speaks HTTP/1.1, where every request under way has a connection of its own: a burst of writes begins with a
//! TLS handshake for each, which costs more than the writes, and each connection keeps its buffers. Over HTTP/2, which
//! client-go speaks, too, the requests share one connection, or a few where they are many ([`Connections`]). Everything
//! else is as in kube-rs: authentication, the verification of TLS, and retries.

use std::{error::Error, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody, retry::RetryPolicy},
};
use longshore_outbound::{GatedConnector, Permit};
use tower::{
    BoxError, ServiceBuilder, ServiceExt, retry::RetryLayer, service_fn, util::BoxService,
};

use crate::connections::{Connections, Server};

/// After this time without a frame of the server the client sends a ping (as client-go does). A
/// watch may be silent for minutes, and without a ping a dead connection looks the same.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A ping that is not answered within this time ends the connection (as client-go does).
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The service that sends requests to an API server.
pub type Requests = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// What in a kubeconfig keeps a client from being made: a certificate that is none, a name that cannot be one.
#[derive(Debug, thiserror::Error)]
#[error("the configuration of the API server {url} cannot be used")]
pub struct UnusableConfig {
    /// The address of the API server.
    pub url: String,
    /// What is wrong with the configuration.
    pub source: Box<dyn Error + Send + Sync>,
}

/// The beginning of a client for the API server of `config`.
///
/// The client falls back to HTTP/1.1 where that is all that the server speaks. It sends, and connects, for as long as
/// `permit` holds: also what waits inside of a connection leaves the process only then. Through a proxy, the client is
/// kube-rs's own, which knows no permit.
///
/// # Errors
/// The configuration cannot be used. The builder sends no request yet.
pub fn client_builder(
    config: &Config,
    permit: Permit,
) -> Result<ClientBuilder<Requests>, UnusableConfig> {
    builder(config, permit).map_err(|source| UnusableConfig {
        url: config.cluster_url.to_string(),
        source,
    })
}

fn builder(config: &Config, permit: Permit) -> Result<ClientBuilder<Requests>, BoxError> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config.clone())?);
    }
    let requests = requests(config, permit)?;
    Ok(ClientBuilder::new(
        requests,
        config.default_namespace.clone(),
    ))
}

fn requests(config: &Config, permit: Permit) -> Result<Requests, BoxError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tcp = GatedConnector::new(tcp, permit);
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into()?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let mut client = legacy::Client::builder(TokioExecutor::new());
    client
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT);
    let connect = move |server| {
        let mut client = client.clone();
        client.http2_only(server == Server::SpeaksHttp2);
        client.build::<_, Body>(connector.clone())
    };
    let connections = Arc::new(Connections::new(connect));
    let client = service_fn(move |request: Request<Body>| {
        let (client, stream) = connections.stream();
        let connections = Arc::clone(&connections);
        async move {
            let answer = client.request(request).await?;
            connections.answered(answer.version());
            let answer = answer.map(|body| {
                body.map_frame(move |frame| {
                    let _under_way = &stream;
                    frame
                })
            });
            Ok::<_, legacy::Error>(answer)
        }
    });

    let retried = config.default_retry.then(RetryPolicy::server_retry);
    let authenticated = config.auth_layer()?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retried.map(RetryLayer::new))
        .option_layer(authenticated)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|answer| {
            answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(service.boxed())
}

#[cfg(test)]
mod tests;
