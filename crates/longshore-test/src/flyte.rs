//! The services of Flyte's control plane that an executor asks, in this process: the events service and the cache
//! service, over Connect. They keep what they are told, so that a test can look at it, and live through the crashes of
//! whoever asks them.

mod cache;
mod events;
pub mod outputs;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use longshore_proto::flyteidl2::{
    cacheservice::{CachedOutput, v2},
    workflow::{ActionEvent, RecordRequest},
};
use prost::Message;
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use cache::Cache;

/// The running services. Dropping them ends them.
#[derive(Debug)]
pub struct FlyteServices {
    address: SocketAddr,
    known: Arc<Mutex<Known>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Known {
    /// In the order in which they were told.
    events: Vec<ActionEvent>,
    cache: Cache,
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

impl FlyteServices {
    /// Starts them on a port of this machine.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let known = Arc::<Mutex<Known>>::default();
        let asked = Arc::clone(&known);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        let asked = Arc::clone(&asked);
                        let service = service_fn(move |request| answer(request, Arc::clone(&asked)));
                        let connection = http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service);
                        connections.spawn(connection);
                    }
                    // Who asks may be killed at any time.
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            known,
            task: task.abort_handle(),
        })
    }

    /// Where both of them are.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every event that was told, in that order; those that were told twice are here twice.
    pub fn events(&self) -> Vec<ActionEvent> {
        self.known().events.clone()
    }

    /// What is cached, by key.
    pub fn cached(&self) -> BTreeMap<String, CachedOutput> {
        self.known().cache.outputs.clone()
    }

    /// Who has the reservation of which key, whether its time is over or not.
    pub fn reservations(&self) -> BTreeMap<String, String> {
        self.known().cache.owners()
    }

    /// How often each method was called.
    pub fn n_calls(&self) -> BTreeMap<String, u64> {
        self.known().n_calls.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

impl Drop for FlyteServices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(
    request: Request<Incoming>,
    known: Arc<Mutex<Known>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let answered = match body.collect().await {
        Ok(body) => lock(&known).answer(parts.uri.path(), &body.to_bytes()),
        Err(error) => Err(Refused::invalid(error.to_string())),
    };
    let (status, kind, body) = match answered {
        Ok(message) => (StatusCode::OK, "application/proto", message),
        Err(Refused {
            status,
            code,
            message,
        }) => {
            let error = json!({"code": code, "message": message}).to_string();
            (status, "application/json", error.into_bytes())
        }
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

impl Known {
    fn answer(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, Refused> {
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

/// A key as it is told apart from those of other projects.
fn scoped(identifier: Option<v2::Identifier>, key: &str) -> Result<String, Refused> {
    let missing = || Refused::invalid("identifier is required");
    let v2::Identifier {
        org,
        project,
        domain,
    } = identifier.ok_or_else(missing)?;
    Ok(format!("{org}/{project}/{domain}/{key}"))
}
