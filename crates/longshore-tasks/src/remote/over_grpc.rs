//! Connectors as the configuration names them, spoken to over gRPC (task action spec §11.11).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use longshore_connect::Code;
use longshore_outbound::Permit;
use longshore_plugins::{
    Answer, Call, Category, ConnectorConfig, Connectors, Deployment, MethodPolicy, Request, Teller,
};
use longshore_proto::flyteidl2::connector::{
    Connector, DeleteTaskResponse, ListConnectorsRequest, ListConnectorsResponse,
};
use prost::Message;
use tokio::sync::{Semaphore, watch};

use super::{
    connectors::{AskConnectors, ConnectorError},
    grpc::{GrpcClient, GrpcError, Transport},
};

/// Begins jobs, tells of them and ends them.
const JOBS: &str = "flyteidl2.connector.AsyncConnectorService";
/// Tells which task types a connector takes.
const METADATA: &str = "flyteidl2.connector.ConnectorMetadataService";
/// What the default connector is called.
const DEFAULT: &str = "defaultConnector";
/// How long a connector may take to tell what it takes, where nothing is configured: the others are waited for, too.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The connectors of the configuration. The rate limits of `webApi` are not kept here: the kit sends no question before its
/// rate allows it, and task types take turns (`questions::limits`).
#[derive(Debug)]
pub struct GrpcConnectors {
    config: ConnectorConfig,
    /// By endpoint.
    clients: BTreeMap<(String, Transport), GrpcClient>,
    known: Mutex<Discovered>,
    /// Whether all were asked once what they take.
    is_known: watch::Sender<bool>,
    /// `webApi.caching.workers` of each connector: a silent one keeps those of the others free.
    workers: BTreeMap<String, Semaphore>,
}

/// What connectors take.
#[derive(Debug, Default)]
struct Discovered {
    /// The last list of each: one that is down for the moment is not forgotten.
    listed: BTreeMap<String, Vec<Connector>>,
    connectors: Connectors,
}

/// A connector of the configuration.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    name: &'a str,
    deployment: &'a Deployment,
}

impl GrpcConnectors {
    /// The connectors whose endpoints are none, by name.
    pub(crate) fn bad_addresses(config: &ConnectorConfig) -> Vec<(&str, GrpcError)> {
        let bad = named(config).filter_map(|Named { name, deployment }| {
            let (endpoint, transport) = address(deployment);
            let error = GrpcClient::base(&endpoint, transport).err()?;
            Some((name, error))
        });
        bad.collect()
    }

    /// The connectors that are configured, to which requests are sent for as long as `permit` holds. None is connected
    /// to yet.
    ///
    /// # Errors
    /// An endpoint that is none.
    pub fn new(config: &ConnectorConfig, permit: &Permit) -> Result<Self, GrpcError> {
        let mut clients = BTreeMap::new();
        for Named { deployment, .. } in named(config) {
            let (endpoint, transport) = address(deployment);
            let client = GrpcClient::new(&endpoint, transport, permit.clone())?;
            clients.insert((endpoint, transport), client);
        }
        let n_workers = usize::try_from(config.web_api.workers).unwrap_or(Semaphore::MAX_PERMITS);
        let n_workers = n_workers.clamp(1, Semaphore::MAX_PERMITS);
        let workers = named(config)
            .map(|connector| (connector.name.to_owned(), Semaphore::new(n_workers)))
            .collect();
        Ok(Self {
            config: config.clone(),
            clients,
            known: Mutex::default(),
            is_known: watch::Sender::new(false),
            workers,
        })
    }

    /// Whether there is any connector.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    fn known(&self) -> MutexGuard<'_, Discovered> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every connector what it takes.
    async fn refresh(&self) {
        let asked = named(&self.config).map(|named| self.list(named));
        let listed = join_all(asked).await.into_iter().flatten();
        let mut known = self.known();
        known.listed.extend(listed);
        let mut connectors = Connectors::default();
        for Named { name, deployment } in named(&self.config) {
            if let Some(listed) = known.listed.get(name) {
                connectors.heard(name, deployment, listed);
            }
        }
        known.connectors = connectors;
        drop(known);
        self.is_known.send_replace(true);
    }

    /// What a connector takes; `None` where it does not say.
    async fn list(&self, connector: Named<'_>) -> Option<(String, Vec<Connector>)> {
        let Named { name, deployment } = connector;
        let mut policy = deployment.policy(METADATA, "ListConnectors");
        policy.timeout = policy.timeout.or(Some(LIST_TIMEOUT));
        let request = ListConnectorsRequest::default();
        let listed = self.call::<ListConnectorsResponse>(
            connector,
            METADATA,
            "ListConnectors",
            &request,
            &policy,
        );
        match listed.await {
            Ok(listed) => Some((name.to_owned(), listed.connectors)),
            Err(ConnectorError::Refused {
                code: Code::Unimplemented,
                ..
            }) => {
                tracing::debug!(name, "a connector does not say what it takes");
                None
            }
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(name, error, "a connector does not say what it takes");
                None
            }
        }
    }

    /// The connector that takes a task, once all were asked.
    async fn of(&self, category: &Category) -> Result<(Teller, &Deployment), ConnectorError> {
        // The sender is ours: it does not go before the question.
        let _ = self
            .is_known
            .subscribe()
            .wait_for(|is_known| *is_known)
            .await;
        let found = self.known().connectors.of(category, &self.config);
        found.map_err(ConnectorError::NoConnector)
    }

    async fn job<A: Message + Default>(
        &self,
        connector: Named<'_>,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, ConnectorError> {
        let policy = connector.deployment.policy(JOBS, method);
        self.call(connector, JOBS, method, request, &policy).await
    }

    async fn call<A: Message + Default>(
        &self,
        connector: Named<'_>,
        service: &str,
        method: &'static str,
        request: &impl Message,
        policy: &MethodPolicy,
    ) -> Result<A, ConnectorError> {
        let Named { name, deployment } = connector;
        let Some(client) = self.clients.get(&address(deployment)) else {
            let why = format!("connector {name} has no endpoint");
            return Err(ConnectorError::NoConnector(why));
        };
        let path = format!("{service}/{method}");
        let answered = client.call(&path, request, policy).await;
        answered.map_err(|error| match error {
            GrpcError::Refused { code, message, .. } => ConnectorError::Refused {
                connector: name.to_owned(),
                operation: method,
                code,
                message,
            },
            error @ (GrpcError::BadEndpoint(_)
            | GrpcError::NoClient(_)
            | GrpcError::NotConnected { .. }
            | GrpcError::Broken { .. }
            | GrpcError::TimedOut { .. }
            | GrpcError::Garbage { .. }) => ConnectorError::NoAnswer {
                connector: name.to_owned(),
                operation: method,
                why: longshore_core::error::chain(&error),
            },
        })
    }
}

#[async_trait]
impl AskConnectors for GrpcConnectors {
    async fn follow(&self) {
        if self.is_empty() {
            self.refresh().await;
            return;
        }
        loop {
            self.refresh().await;
            // Zero would ask without a pause.
            let interval = self.config.poll_interval.max(Duration::from_secs(1));
            tokio::time::sleep(interval).await;
        }
    }

    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let (by, deployment) = self.of(&call.category).await?;
        let connector = Named {
            name: &by.name,
            deployment,
        };
        match &call.request {
            Request::Create(request) => {
                let created = self.job(connector, "CreateTask", &**request).await?;
                Ok(Some(Answer::Created(created)))
            }
            Request::Get(request) => {
                let _worker = match self.workers.get(connector.name) {
                    Some(workers) => workers.acquire().await.ok(), // It is never closed.
                    None => None,
                };
                let response = Box::new(self.job(connector, "GetTask", &**request).await?);
                Ok(Some(Answer::Told { response, by }))
            }
            Request::Delete(request) => {
                // Not found means that there is no such connector: one whose job is gone has to say yes.
                let _: DeleteTaskResponse = self.job(connector, "DeleteTask", &**request).await?;
                Ok(None)
            }
        }
    }
}

/// All connectors that have an endpoint: the default one first, which is upstream's order.
fn named(config: &ConnectorConfig) -> impl Iterator<Item = Named<'_>> {
    let default = (DEFAULT, &config.default_connector);
    let others = config.connectors.iter().chain(&config.apps);
    let others = others.map(|(name, deployment)| (name.as_str(), deployment));
    let all = std::iter::once(default).chain(others);
    all.filter(|(_, deployment)| !deployment.endpoint.is_empty())
        .map(|(name, deployment)| Named { name, deployment })
}

fn address(deployment: &Deployment) -> (String, Transport) {
    let transport = if deployment.is_insecure {
        Transport::Plain
    } else {
        Transport::Tls
    };
    (deployment.endpoint.clone(), transport)
}

#[cfg(test)]
mod tests;
