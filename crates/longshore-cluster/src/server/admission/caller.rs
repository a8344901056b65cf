//! HTTPS to webhooks.

use std::{
    collections::BTreeMap,
    error::Error,
    io,
    net::{SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, Client, RequestBuilder, StatusCode, redirect};
use serde_json::Value;

use super::{
    identity::Identity,
    inside::{Answer, Call, PodNetwork},
    services::Services,
    webhook::{Target, Webhook},
};
use crate::{chain::chain, server::hub::lock};

/// Authorities that clients are kept for; more than that is not at work, but left behind.
const KEPT_CLIENTS: usize = 16;
/// No answer is read beyond this, in bytes: a patch of the largest object is smaller.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// Parts of a path that are as long as this may be secrets.
const SECRET: usize = 32;
/// Longest part of a webhook's own words that is passed on.
const QUOTED: usize = 1024;

/// The HTTP client of webhooks; it keeps connections open.
pub(super) struct Caller {
    services: Services,
    /// By the authorities that they trust.
    clients: Mutex<BTreeMap<Vec<u8>, Client>>,
    identity: Identity,
    pod_network: RwLock<Option<Arc<dyn PodNetwork>>>,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
enum NoClient {
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

impl Caller {
    pub(super) fn new(services: Services) -> Caller {
        Caller {
            services,
            clients: Mutex::default(),
            identity: Identity::default(),
            pod_network: RwLock::default(),
        }
    }

    pub(super) fn set_pod_network(&self, network: Arc<dyn PodNetwork>) {
        let known = self.pod_network.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(network);
    }

    /// The authority of the certificate that all requests show, in PEM.
    pub(super) fn client_authority(&self) -> Result<String, rcgen::Error> {
        Ok(self.identity.get()?.authority)
    }

    /// Sends a review. Returns the body of the response. The error is the text that follows `failed calling webhook`.
    pub(super) async fn call(&self, webhook: &Webhook, review: &Value) -> Result<Bytes, String> {
        let client = self
            .client(&webhook.ca_bundle)
            .map_err(|error| format!("could not get REST client: {}", chain(&error)))?;
        let seconds = webhook.timeout.as_secs();
        let shown = format!("{}?timeout={seconds}s", shown(&webhook.target));
        let failed = |why: &str| format!("failed to call webhook: {why}");
        let url = match self.url(&webhook.target) {
            Ok(url) => format!("{url}?timeout={seconds}s"),
            Err(why) => return Err(failed(&format!("Post {shown:?}: {why}"))),
        };
        let request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .body(review.to_string());
        let asked = async {
            match self.inside(&webhook.target) {
                Some((network, address)) => {
                    self.ask_inside(&*network, address, webhook, review).await
                }
                None => ask(request).await.map_err(|error| reason(&error)),
            }
        };
        match tokio::time::timeout(webhook.timeout, asked).await {
            Ok(Ok((_, _, None))) => Err(failed(&format!(
                "Post {shown:?}: its answer has more than {MAX_ANSWER} bytes"
            ))),
            Ok(Ok((status, _, Some(body)))) if status.is_success() => Ok(body),
            Ok(Ok((status, is_text, Some(body)))) => {
                let said = if is_text { &*body } else { b"unknown" };
                Err(failed(&refusal(status, said)))
            }
            Ok(Err(why)) => Err(failed(&format!("Post {shown:?}: {why}"))),
            Err(_) => Err(failed(&format!(
                "Post {shown:?}: context deadline exceeded"
            ))),
        }
    }

    /// The pod behind a Service that has a network of its own, and the way to it.
    fn inside(&self, target: &Target) -> Option<(Arc<dyn PodNetwork>, SocketAddrV4)> {
        let Target::Service {
            namespace,
            name,
            port,
            path: _,
        } = target
        else {
            return None;
        };
        let known = self.pod_network.read();
        let network = known.unwrap_or_else(PoisonError::into_inner).clone()?;
        let endpoints = self.services.endpoints(namespace, name, *port).ok()?;
        let mut pods = endpoints.into_iter().filter_map(|it| match it {
            SocketAddr::V4(pod) if network.has(*pod.ip()) => Some(pod),
            SocketAddr::V4(_) | SocketAddr::V6(_) => None,
        });
        let pod = pods.next()?;
        Some((network.clone(), pod))
    }

    async fn ask_inside(
        &self,
        network: &dyn PodNetwork,
        address: SocketAddrV4,
        webhook: &Webhook,
        review: &Value,
    ) -> Result<Answer, String> {
        let (host, path) = match &webhook.target {
            Target::Url(_) => return Err("a URL names no pod".to_owned()),
            Target::Service {
                namespace,
                name,
                port: _,
                path,
            } => (format!("{name}.{namespace}.svc"), path),
        };
        let identity = self.identity.get().map_err(|error| chain(&error))?;
        let call = Call {
            network,
            address,
            host: &host,
            path: &format!("{path}?timeout={}s", webhook.timeout.as_secs()),
            ca_bundle: &webhook.ca_bundle,
            identity: identity.client.as_bytes(),
            max_answer: MAX_ANSWER,
        };
        call.post(review.to_string()).await
    }

    fn url(&self, target: &Target) -> Result<String, String> {
        let (namespace, name, port, path) = match target {
            Target::Url(url) => return Ok(url.clone()),
            Target::Service {
                namespace,
                name,
                port,
                path,
            } => (namespace, name, *port, path),
        };
        let endpoints = self.services.endpoints(namespace, name, port);
        let endpoints = endpoints.map_err(|error| error.to_string())?;
        // The certificate is for the name of the service, the port is that of its pods.
        let port = endpoints.first().map_or(0, SocketAddr::port);
        Ok(format!("https://{name}.{namespace}.svc:{port}{path}"))
    }

    fn client(&self, ca_bundle: &[u8]) -> Result<Client, NoClient> {
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(ca_bundle) {
            return Ok(client.clone());
        }
        let identity = self.identity.get()?;
        let builder = Client::builder()
            .identity(reqwest::Identity::from_pem(identity.client.as_bytes())?)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .dns_resolver(Arc::new(self.services.clone()));
        let client = match ca_bundle {
            [] => builder,
            bundle => builder.tls_certs_only(Certificate::from_pem_bundle(bundle)?),
        }
        .build()?;
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        clients.insert(ca_bundle.to_vec(), client.clone());
        Ok(client)
    }
}

async fn ask(request: RequestBuilder) -> reqwest::Result<Answer> {
    let mut response = request.send().await?;
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok());
    let is_text = content_type.is_some_and(|it| it.starts_with("text/"));
    let mut body = Some(BytesMut::new());
    while let Some(read) = &mut body
        && let Some(chunk) = response.chunk().await?
    {
        read.extend_from_slice(&chunk);
        if read.len() > MAX_ANSWER {
            body = None;
        }
    }
    Ok((response.status(), is_text, body.map(BytesMut::freeze)))
}

/// The address for messages to clients about a webhook that does not answer. Path segments that are
/// long enough to be a secret are replaced by `…`.
fn shown(target: &Target) -> String {
    let url = full(target);
    // Scheme and host stay.
    let part = |(at, part)| match at > 2 && str::len(part) >= SECRET {
        true => "…",
        false => part,
    };
    let parts: Vec<&str> = url.split('/').enumerate().map(part).collect();
    parts.join("/")
}

fn full(target: &Target) -> String {
    match target {
        Target::Url(url) => url.clone(),
        Target::Service {
            namespace,
            name,
            port,
            path,
        } => format!("https://{name}.{namespace}.svc:{port}{path}"),
    }
}

/// What an answer without success means, in upstream's words.
fn refusal(status: StatusCode, said: &[u8]) -> String {
    let text = String::from_utf8_lossy(&said[..said.len().min(QUOTED)]);
    let text = text.trim();
    match status {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        status if status.is_server_error() => {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        status => format!(
            "the server responded with the status code {} but did not return more information",
            status.as_u16()
        ),
    }
}

/// Why there is no answer: what the system says, if it says something.
fn reason(error: &reqwest::Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let refused = cause
            .downcast_ref::<io::Error>()
            .is_some_and(|it| it.kind() == io::ErrorKind::ConnectionRefused);
        if refused && let Some(url) = error.url() {
            let host = url.host_str().unwrap_or("");
            let port = url.port_or_known_default().unwrap_or(0);
            return format!("dial tcp {host}:{port}: connect: connection refused");
        }
        source = cause.source();
    }
    // Its own words name the whole address.
    error.source().map_or_else(|| "no answer".to_owned(), chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_in_the_path_of_a_webhook_is_not_shown() {
        let secret = "0".repeat(64);
        let url = Target::Url(format!(
            "https://a-very-long-name-of-a-machine.example:9443/ask/{secret}"
        ));
        assert_eq!(
            shown(&url),
            "https://a-very-long-name-of-a-machine.example:9443/ask/…"
        );
        let service = Target::Service {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            path: format!("/ask/{secret}"),
        };
        assert_eq!(shown(&service), "https://s.n.svc:443/ask/…");
        assert_eq!(shown(&Target::Url("https://h/x".to_owned())), "https://h/x");
    }
}
