//! Connectors as the configuration names them, spoken to over gRPC (task action spec §11.11).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use longshore_connect::Code;
use longshore_outbound::Permit;
use longshore_plugins::{
    Addressee, Answer, Call, Category, ConnectorConfig, Connectors, Deployment, Listed,
    MethodPolicy, Request, Route, Teller,
};
use longshore_proto::flyteidl2::connector::{
    Connector, DeleteTaskResponse, ListConnectorsRequest, ListConnectorsResponse,
};
use prost::Message;
use tokio::sync::{Semaphore, watch};

use super::{
    connectors::{AskConnectors, ConnectorError},
    grpc::{GrpcClient, GrpcError, MAX_ANSWER, Transport},
};

/// Begins jobs, tells of them and ends them.
const JOBS: &str = "flyteidl2.connector.AsyncConnectorService";
/// Tells which task types a connector takes.
const METADATA: &str = "flyteidl2.connector.ConnectorMetadataService";
/// What the default connector is called.
const DEFAULT: &str = "defaultConnector";
/// How long a connector may take to tell what it takes, where nothing is configured.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for GetTask and DeleteTask, which are sent again. CreateTask has no such limit: a job that began after all
/// would run beside the one of the next CreateTask.
const REPEATED_TIMEOUT: Duration = Duration::from_mins(1);
/// What is known of a list before it is requested, and while the first request is under way.
const NOT_REQUESTED: &str = "its list is requested next";
const REQUESTED: &str = "its list is requested, and there is no answer yet";
/// The host of requests while it is not known which connector takes their task type.
const UNROUTED: &str = "connectors";
/// The most bytes that are read of an answer to CreateTask: twice what a status can hold, so that a job which no status
/// can hold is deleted.
const MAX_CREATED: usize = 512 << 10;
/// The same for DeleteTask, which answers nothing.
const MAX_DELETED: usize = 16 << 10;
const CREATE: &str = "CreateTask";
const GET: &str = "GetTask";
const DELETE: &str = "DeleteTask";

/// The connectors of the configuration. The rate limits of `webApi` are not kept here: the kit sends no question before its
/// rate allows it, and connectors take turns (`questions::limits`).
#[derive(Debug)]
pub struct GrpcConnectors {
    config: ConnectorConfig,
    /// By endpoint.
    clients: BTreeMap<(String, Transport), GrpcClient>,
    known: Mutex<Discovered>,
    /// How often a list has changed.
    n_changes: watch::Sender<u64>,
    /// `webApi.caching.workers` of each connector: a silent one keeps those of the others free.
    workers: BTreeMap<String, Semaphore>,
}

/// What connectors take.
#[derive(Debug, Default)]
struct Discovered {
    /// The last list of each: one that is down for the moment is not forgotten.
    listed: BTreeMap<String, Vec<Connector>>,
    /// What is known of the lists that have not come yet. They may have any task type.
    unlisted: BTreeMap<String, String>,
    connectors: Connectors,
}

impl Discovered {
    /// Nothing is requested yet.
    fn new(config: &ConnectorConfig) -> Self {
        let unlisted = named(config).map(|it| (it.name.to_owned(), NOT_REQUESTED.to_owned()));
        let mut known = Self {
            unlisted: unlisted.collect(),
            ..Self::default()
        };
        known.connect(config);
        known
    }

    /// The list of a connector has come. Returns whether it has changed.
    fn note_list(&mut self, config: &ConnectorConfig, name: &str, list: Vec<Connector>) -> bool {
        if self.listed.get(name) == Some(&list) {
            return false;
        }
        self.unlisted.remove(name);
        self.listed.insert(name.to_owned(), list);
        self.connect(config);
        true
    }

    /// Remembers what is known of the list of a connector, where none has come yet.
    fn note_no_list(&mut self, config: &ConnectorConfig, name: &str, why: String) {
        if let Some(known) = self.unlisted.get_mut(name) {
            *known = why;
            self.connect(config);
        }
    }

    fn connect(&mut self, config: &ConnectorConfig) {
        let mut connectors = Connectors::default();
        for Named { name, deployment } in named(config) {
            if let Some(listed) = self.listed.get(name) {
                connectors.heard(name, deployment, listed);
            }
            if let Some(why) = self.unlisted.get(name) {
                connectors.not_heard(name, deployment, why);
            }
        }
        self.connectors = connectors;
    }
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
            known: Mutex::new(Discovered::new(config)),
            n_changes: watch::Sender::new(0),
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

    /// Keeps the list of one connector up to date. None waits for another one.
    async fn follow_one(&self, connector: Named<'_>) {
        // Zero would ask without a pause.
        let interval = self.config.poll_interval.max(Duration::from_secs(1));
        loop {
            self.refresh(connector).await;
            tokio::time::sleep(interval).await;
        }
    }

    /// Asks a connector what it takes.
    async fn refresh(&self, connector: Named<'_>) {
        let (config, name) = (&self.config, connector.name);
        let is_first = self
            .known()
            .unlisted
            .get(name)
            .is_some_and(|it| it == NOT_REQUESTED);
        if is_first {
            self.known()
                .note_no_list(config, name, REQUESTED.to_owned());
        }
        match self.list(connector).await {
            Ok(list) => {
                if self.known().note_list(config, name, list) {
                    self.n_changes.send_modify(|n| *n += 1);
                }
            }
            Err(error) => {
                let why = error.to_string();
                self.known().note_no_list(config, name, why);
            }
        }
    }

    /// What a connector takes.
    async fn list(&self, connector: Named<'_>) -> Result<Vec<Connector>, ConnectorError> {
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
            Ok(listed) => Ok(listed.connectors),
            // It has no list: the configuration says what it takes. A list that came before counts.
            Err(ConnectorError::Refused {
                code: Code::Unimplemented,
                ..
            }) => {
                tracing::debug!(name, "a connector does not say what it takes");
                let known = self.known();
                Ok(known.listed.get(name).cloned().unwrap_or_default())
            }
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(name, error = why, "a connector does not say what it takes");
                Err(error)
            }
        }
    }

    fn route(&self, to: &Addressee) -> Route<'_> {
        self.known().connectors.of(to, &self.config)
    }

    /// The connector that a request is for, once that is known.
    async fn of(&self, to: &Addressee) -> Result<(Teller, &Deployment), ConnectorError> {
        let mut changes = self.n_changes.subscribe();
        loop {
            changes.mark_unchanged();
            match self.route(to) {
                Route::To(teller, deployment) => return Ok((teller, deployment)),
                Route::Nobody(why) => return Err(ConnectorError::NoConnector(why)),
                Route::Unlisted(_) => {}
            }
            // The sender is ours: it does not go before the question.
            let _ = changes.changed().await;
        }
    }

    async fn job<A: Message + Default>(
        &self,
        connector: Named<'_>,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, ConnectorError> {
        let policy = policy_of(connector.deployment, method);
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
        let client = client.reading(match method {
            CREATE => MAX_CREATED,
            DELETE => MAX_DELETED,
            _ => MAX_ANSWER,
        });
        let path = format!("{service}/{method}");
        let answered = client.call(&path, request, policy).await;
        answered.map_err(|error| match error {
            GrpcError::TooLarge { most, .. } if method == CREATE => {
                ConnectorError::TooLarge { most }
            }
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
            | GrpcError::TooLarge { .. }
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
        let followed = named(&self.config).map(|connector| self.follow_one(connector));
        join_all(followed).await;
    }

    fn awaits(&self, to: &Addressee) -> Option<String> {
        match self.route(to) {
            Route::Unlisted(words) => Some(words),
            Route::To(..) | Route::Nobody(_) => None,
        }
    }

    fn host(&self, to: &Addressee) -> String {
        match self.route(to) {
            Route::To(_, deployment) => deployment.endpoint.clone(),
            Route::Nobody(_) | Route::Unlisted(_) => UNROUTED.to_owned(),
        }
    }

    fn lists(&self, category: &Category) -> Listed {
        self.known().connectors.lists(category, &self.config)
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.n_changes.subscribe(), |mut changes| async move {
            changes.changed().await.ok()?;
            Some(((), changes))
        });
        changes.boxed()
    }

    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let (by, deployment) = self.of(&call.addressee()).await?;
        let connector = Named {
            name: &by.name,
            deployment,
        };
        match &call.request {
            Request::Create(request) => {
                let created = self.job(connector, CREATE, &**request).await;
                match created {
                    Ok(response) => Ok(Some(Answer::Created { response, by })),
                    Err(ConnectorError::TooLarge { most }) => {
                        Ok(Some(Answer::CreatedTooLarge(most)))
                    }
                    Err(error) => Err(error),
                }
            }
            Request::Get(request) => {
                let _worker = match self.workers.get(connector.name) {
                    Some(workers) => workers.acquire().await.ok(), // It is never closed.
                    None => None,
                };
                let response = Box::new(self.job(connector, GET, &**request).await?);
                Ok(Some(Answer::Told {
                    response,
                    is_cut: false,
                    by,
                }))
            }
            Request::Delete(request) => {
                // Not found means that there is no such connector: one whose job is gone has to say yes.
                let _: DeleteTaskResponse = self.job(connector, DELETE, &**request).await?;
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

/// How a method about a job is called.
fn policy_of(deployment: &Deployment, method: &str) -> MethodPolicy {
    let mut policy = deployment.policy(JOBS, method);
    if method != CREATE {
        policy.timeout = policy.timeout.or(Some(REPEATED_TIMEOUT));
    }
    policy
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
