//! Where a scenario plays: the embedded cluster in simulated time, or a namespace of a real API server in real time.

use std::{convert::Infallible, fmt};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use longshore_cluster::Cluster;
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::faults::FaultBody;

/// An API server as a service, whichever it is.
pub type AnyApi = BoxCloneSyncService<Request<Body>, Response<FaultBody>, BoxError>;

/// A namespace of an API server.
#[derive(Clone)]
pub struct Place {
    api: AnyApi,
    client: Client,
    namespace: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// The namespace `default` of an embedded cluster.
    pub fn embedded(cluster: &Cluster) -> Self {
        let service = cluster.service();
        let api = service_fn(move |request: Request<Body>| {
            let answer = service.clone().oneshot(request);
            async move {
                let response = answer.await.map_err(|never: Infallible| match never {})?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        });
        Self {
            api: BoxCloneSyncService::new(api),
            client: cluster.client(),
            namespace: "default".to_owned(),
        }
    }

    /// A namespace of the API server that this client speaks to.
    pub fn behind(client: Client, namespace: impl Into<String>) -> Self {
        Self {
            api: api_of(client.clone()),
            client,
            namespace: namespace.into(),
        }
    }

    /// The API server.
    pub fn api(&self) -> AnyApi {
        self.api.clone()
    }

    /// A client of it, without faults.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// The API server behind a client: its address, its credentials, its TLS.
pub(crate) fn api_of(client: Client) -> AnyApi {
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let response = client.send(request).await?;
            Ok::<_, BoxError>(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
    }))
}
