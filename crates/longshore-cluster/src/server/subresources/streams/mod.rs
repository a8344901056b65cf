//! The way into pods: `exec`, `attach`, `portforward` and `proxy`.
//!
//! `channels` and `spdy` are the protocols, `relay`, `forward` and `tunnel` carry them over a WebSocket, `proxy` speaks
//! HTTP to pods. All of them reach a pod through [`PodStreams`].

mod channels;
mod dictionary;
mod forward;
mod options;
mod proxy;
mod relay;
mod spdy;
mod tunnel;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, request::Parts};
use serde_json::Value;
use tower::BoxError;

use self::{
    channels::{OF_PORTS, OF_PROCESSES, Protocol},
    forward::Target,
    options::Options,
};
use super::log;
use crate::server::{
    error::{ApiError, Result},
    http::body::ApiBody,
    meta,
    registry::Resource,
    streams::PodStreams,
    verbs::Call,
    wire::{upgrade::asked_protocol, websocket::Handshake},
};

/// What is wanted of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WayIn {
    Exec,
    Attach,
    PortForward,
    Proxy,
}

impl WayIn {
    /// The way in that a subresource is.
    pub(crate) fn of(resource: &Resource, subresource: Option<&str>) -> Option<WayIn> {
        let subresource = subresource?;
        let is_proxy = subresource == "proxy" || subresource.starts_with("proxy/");
        match (resource.qualified().as_str(), subresource) {
            ("pods", "exec") => Some(WayIn::Exec),
            ("pods", "attach") => Some(WayIn::Attach),
            ("pods", "portforward") => Some(WayIn::PortForward),
            ("pods" | "services", _) if is_proxy => Some(WayIn::Proxy),
            _ => None,
        }
    }
}

/// Serves a way in.
pub(crate) async fn answer<B>(
    way: WayIn,
    call: &Call,
    mut parts: Parts,
    body: B,
) -> Result<Response<ApiBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if way != WayIn::Proxy && !matches!(parts.method, Method::GET | Method::POST) {
        return Err(ApiError::method_not_allowed());
    }
    let options = Options::admitted(way, call).await?;
    match way {
        WayIn::Exec | WayIn::Attach => process(way, call, &options, &mut parts).await,
        WayIn::PortForward => port_forward(call, &mut parts).await,
        WayIn::Proxy => proxy::proxy(call, parts, body).await,
    }
}

impl Call {
    fn pod_streams(&self) -> Result<Arc<dyn PodStreams>> {
        let streams = self.server.pod_streams();
        streams.ok_or_else(|| ApiError::unavailable("no node of this cluster lets clients in"))
    }

    fn target(&self, pod: Value) -> Result<Target> {
        Ok(Target {
            source: self.pod_streams()?,
            pod: Arc::new(pod),
            places: self.server.places.clone(),
        })
    }
}

async fn process(
    way: WayIn,
    call: &Call,
    options: &Options,
    parts: &mut Parts,
) -> Result<Response<ApiBody>> {
    let pod = call.stored()?.value();
    let container = log::choose_container(call, &pod, options.container())?;
    check_bound(&pod)?;
    let streams = options.streams()?;
    let command = options.command();
    if way == WayIn::Exec && command.is_empty() {
        let message = "expected a command in the query parameter \"command\", found none";
        return Err(ApiError::bad_request(message));
    }
    let target = call.target(pod)?;
    let Some(handshake) = Handshake::of(parts)? else {
        // The fitting error first: clients that were refused a WebSocket ask again for SPDY, and show what that says.
        target.source.check(&target.pod, &container).await?;
        return Err(no_websocket(&parts.headers));
    };
    let protocol = Protocol::choose(&handshake, &OF_PROCESSES)?;
    let place = target.place()?;
    let process = if way == WayIn::Exec {
        let source = &target.source;
        source.exec(&target.pod, &container, command, streams).await
    } else {
        let source = &target.source;
        source.attach(&target.pod, &container, streams).await
    };
    let process = process?;
    Ok(
        handshake.serve(protocol.agreed(), move |receiver, sender| async move {
            let _place = place;
            relay::relay(receiver, sender, protocol, process).await
        }),
    )
}

/// A pod that no node has yet has nothing to enter.
fn check_bound(pod: &Value) -> Result<()> {
    if meta::text(pod, "/spec/nodeName").is_empty() {
        let message = format!("pod {} does not have a host assigned", meta::name(pod));
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

async fn port_forward(call: &Call, parts: &mut Parts) -> Result<Response<ApiBody>> {
    let pod = call.stored()?.value();
    check_bound(&pod)?;
    let target = call.target(pod)?;
    let Some(handshake) = Handshake::of(parts)? else {
        return Err(no_websocket(&parts.headers));
    };
    let mut names = vec![tunnel::PROTOCOL];
    names.extend(OF_PORTS.iter().filter_map(|it| it.agreed()));
    let place = target.place()?;
    if handshake.choose(&names)? == Some(tunnel::PROTOCOL) {
        let name = Some(tunnel::PROTOCOL);
        return Ok(handshake.serve(name, move |receiver, sender| async move {
            let _place = place;
            tunnel::tunnel(receiver, sender, target).await
        }));
    }
    let ports = forward::ports(call.query.all("ports"))?;
    let protocol = Protocol::choose(&handshake, &OF_PORTS)?;
    Ok(
        handshake.serve(protocol.agreed(), move |receiver, sender| async move {
            let _place = place;
            forward::forward(receiver, sender, protocol, ports, target).await
        }),
    )
}

/// The answer to a request that asks for SPDY, or for no upgrade at all.
fn no_websocket(headers: &HeaderMap) -> ApiError {
    match asked_protocol(headers).as_deref() {
        None => ApiError::bad_request("Upgrade request required"),
        Some(other) => ApiError::bad_request(format!(
            "this server speaks with clients of exec, attach and port-forward over WebSockets only, found an upgrade to \
             {other:?}: use kubectl 1.31 or later (with neither KUBECTL_REMOTE_COMMAND_WEBSOCKETS nor \
             KUBECTL_PORT_FORWARD_WEBSOCKETS set to false), or another client that does"
        )),
    }
}
