//! The foreign systems of an executor of TaskActions, in this process: the events service and the cache service over
//! Connect, a connector over gRPC, and a store that speaks S3. They keep the requests that they get, so that a test can
//! look at them, and they survive the crashes of the executor.

mod cache;
pub mod connector;
mod events;
pub mod outputs;
pub mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::StatusCode;
use longshore_proto::flyteidl2::{
    cacheservice::{CachedOutput, v2},
    workflow::{ActionEvent, RecordRequest},
};
use prost::Message;
use serde_json::json;

use crate::foreign_server::{Answer, Conduct, ForeignServer, Received};

use cache::Cache;

/// The running services. Dropping them ends them.
#[derive(Debug)]
pub struct FlyteServices {
    server: ForeignServer,
    known: Arc<Mutex<ServicesState>>,
}

#[derive(Debug, Default)]
struct ServicesState {
    /// In the order in which they arrived.
    events: Vec<ActionEvent>,
    cache: Cache,
    /// The jobs that the connector has begun, by the directory of their outputs.
    jobs: BTreeSet<String>,
    /// The objects of the store, by `/bucket/key`.
    objects: BTreeMap<String, Bytes>,
    /// By the name of the method.
    n_calls: BTreeMap<String, u64>,
}

/// A call that is not answered with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    status: StatusCode,
    /// Connect's name of the error.
    code: &'static str,
    message: String,
}

impl Refused {
    fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "invalid_argument",
            message: message.into(),
        }
    }
}

/// Which of the systems a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// The events service.
    Events,
    /// The cache service.
    Catalog,
    /// The connector.
    Connector,
    /// The store.
    Store,
}

impl System {
    /// The system that a request is for.
    pub fn of(received: &Received) -> Self {
        let begins = |beginning: &str| received.path.starts_with(beginning);
        if begins("/flyteidl2.workflow.") {
            Self::Events
        } else if begins("/flyteidl2.cacheservice.") {
            Self::Catalog
        } else if begins("/flyteidl2.connector.") {
            Self::Connector
        } else {
            Self::Store
        }
    }
}

impl FlyteServices {
    /// Starts them on a port of this machine.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(|_, _| None).await
    }

    /// The same, where `conduct` says what is done with a request; `None`: what the systems do otherwise.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start_with(
        conduct: impl Fn(System, &Received) -> Option<Conduct> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let known = Arc::<Mutex<ServicesState>>::default();
        let asked = Arc::clone(&known);
        let server = ForeignServer::start(move |received| {
            let conduct = conduct(System::of(received), received);
            conduct.unwrap_or_else(|| Conduct::Answers(lock(&asked).answer(received)))
        });
        let server = server.await?;
        Ok(Self { server, known })
    }

    /// The base URL of all these systems.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The server that they are on.
    pub fn server(&self) -> &ForeignServer {
        &self.server
    }

    /// The configuration of an executor that calls these systems: the sections `executor`,
    /// `plugins` and `storage`. Files of this machine can be named, too.
    pub fn config(&self) -> serde_json::Value {
        let url = self.url();
        let connector = json!({
            "defaultConnector": {
                "endpoint": self.server.address().to_string(), "insecure": true, "defaultTimeout": "60s",
            },
            "pollInterval": "1s",
            "webApi": {"caching": {"resyncInterval": "1s"}},
        });
        json!({
            "executor": {"EventsServiceURL": url, "cacheServiceURL": url},
            "plugins": {"connector-service": connector},
            "storage": {
                "type": "s3", "files-root": "/",
                "connection": {
                    "endpoint": url, "auth-type": "accesskey", "access-key": "id", "secret-key": "secret",
                    "region": "us-east-1", "disable-ssl": true,
                },
            },
        })
    }

    /// Every event that arrived, in that order; an event that arrived twice is here twice.
    pub fn events(&self) -> Vec<ActionEvent> {
        self.known().events.clone()
    }

    /// The cached outputs, by key.
    pub fn cached(&self) -> BTreeMap<String, CachedOutput> {
        self.known().cache.outputs.clone()
    }

    /// The owner of the reservation of each key, whether its time is over or not.
    pub fn reservations(&self) -> BTreeMap<String, String> {
        self.known().cache.owners()
    }

    /// The jobs that the connector has begun, by the directory of their outputs.
    pub fn jobs(&self) -> BTreeSet<String> {
        self.known().jobs.clone()
    }

    /// The objects of the store, by `/bucket/key`.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.known().objects.clone()
    }

    /// How often each method of a service was called.
    pub fn n_calls(&self) -> BTreeMap<String, u64> {
        self.known().n_calls.clone()
    }

    fn known(&self) -> MutexGuard<'_, ServicesState> {
        lock(&self.known)
    }
}

/// The events of a request to the events service.
///
/// # Errors
/// The request is none.
pub fn events_of(received: &Received) -> Result<Vec<ActionEvent>, prost::DecodeError> {
    let request = RecordRequest::decode(received.body.clone())?;
    Ok(request.events)
}

/// An answer in which a service refuses with this code of Connect.
pub fn refusal(status: StatusCode, code: &str, message: &str) -> Answer {
    let error = json!({"code": code, "message": message}).to_string();
    Answer::new(status, "application/json", error)
}

fn lock(known: &Mutex<ServicesState>) -> MutexGuard<'_, ServicesState> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServicesState {
    fn answer(&mut self, received: &Received) -> Answer {
        let path = received.path.as_str();
        match System::of(received) {
            System::Store => return self.ask_store(received),
            System::Connector => return self.ask_connector(received),
            System::Events | System::Catalog => {}
        }
        match self.call(path, &received.body) {
            Ok(message) => Answer::new(StatusCode::OK, "application/proto", message),
            Err(Refused {
                status,
                code,
                message,
            }) => refusal(status, code, &message),
        }
    }

    fn call(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let (service, method) = path.rsplit_once('/').unwrap_or_default();
        *self.n_calls.entry(method.to_owned()).or_default() += 1;
        match (service, method) {
            ("/flyteidl2.workflow.EventsProxyService", "Record") => {
                let RecordRequest { events } = read(body)?;
                Ok(self.record(events)?.encode_to_vec())
            }
            ("/flyteidl2.cacheservice.v2.CacheService", method) => self.ask_cache(method, body),
            _ => Err(unknown(path)),
        }
    }

    fn ask_cache(&mut self, method: &str, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let cache = &mut self.cache;
        Ok(match method {
            "Get" => cache.get(read(body)?)?.encode_to_vec(),
            "Put" => cache.put(read(body)?)?.encode_to_vec(),
            "GetOrExtendReservation" => cache.reserve(read(body)?)?.encode_to_vec(),
            "ReleaseReservation" => cache.release(read(body)?)?.encode_to_vec(),
            other => return Err(unknown(other)),
        })
    }
}

fn unknown(path: &str) -> Refused {
    Refused {
        status: StatusCode::NOT_FOUND,
        code: "unimplemented",
        message: format!("there is no {path} here"),
    }
}

fn read<M: Message + Default>(body: &[u8]) -> Result<M, Refused> {
    M::decode(body).map_err(|error| Refused::invalid(error.to_string()))
}

/// The key of a cache entry in all projects: organisation, project and domain in front of `key`.
fn scoped(identifier: Option<v2::Identifier>, key: &str) -> Result<String, Refused> {
    let missing = || Refused::invalid("identifier is required");
    let v2::Identifier {
        org,
        project,
        domain,
    } = identifier.ok_or_else(missing)?;
    Ok(format!("{org}/{project}/{domain}/{key}"))
}
