//! The peer's cache service.

use std::time::Duration;

use async_trait::async_trait;
use longshore_connect::{Code, ConnectClient, ConnectError};
use longshore_plugins::CacheKey;
use longshore_proto::flyteidl2::cacheservice::{
    self as base, CachedOutput, GetCacheResponse, GetOrExtendReservationResponse, OverwriteOutput,
    PutCacheResponse, ReleaseReservationResponse, v2,
};

use super::{Catalog, CatalogError, Put, Replace, Reservation, from_proto};

/// The methods of `flyteidl2.cacheservice.v2.CacheService`.
pub(super) mod method {
    pub(crate) const GET: &str = "flyteidl2.cacheservice.v2.CacheService/Get";
    pub(crate) const PUT: &str = "flyteidl2.cacheservice.v2.CacheService/Put";
    pub(crate) const RESERVE: &str =
        "flyteidl2.cacheservice.v2.CacheService/GetOrExtendReservation";
    pub(crate) const RELEASE: &str = "flyteidl2.cacheservice.v2.CacheService/ReleaseReservation";
}

/// How long a task waits for an answer that it could begin without.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer's cache service, at `executor.cacheServiceURL`.
#[derive(Clone, Debug)]
pub struct RemoteCatalog {
    client: ConnectClient,
    /// The same for what an attempt that is to be launched waits for.
    look_up: ConnectClient,
}

impl RemoteCatalog {
    /// The service that this client asks.
    pub fn new(client: ConnectClient) -> Self {
        let look_up = client.clone().waiting(LOOK_UP_TIMEOUT);
        Self { client, look_up }
    }
}

fn identifier(key: &CacheKey) -> Option<v2::Identifier> {
    Some(v2::Identifier {
        org: key.org.clone(),
        project: key.project.clone(),
        domain: key.domain.clone(),
    })
}

fn failed(what: &'static str) -> impl FnOnce(ConnectError) -> CatalogError {
    move |source| CatalogError::Service { what, source }
}

#[async_trait]
impl Catalog for RemoteCatalog {
    async fn get(&self, key: &CacheKey) -> Result<Option<CachedOutput>, CatalogError> {
        let request = v2::GetCacheRequest {
            base_request: Some(base::GetCacheRequest {
                key: key.key.clone(),
            }),
            identifier: identifier(key),
        };
        let answer = self.look_up.call(method::GET, &request).await;
        match answer {
            Ok(GetCacheResponse { output }) => output.map_or_else(
                || Err(CatalogError::Incomplete("an output")),
                |it| Ok(Some(it)),
            ),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) => Err(failed("look a key up")(error)),
        }
    }

    async fn put(
        &self,
        key: &CacheKey,
        output: CachedOutput,
        replace: Replace,
    ) -> Result<Put, CatalogError> {
        let max_age = match replace {
            Replace::OlderThan(age) => prost_types::Duration::try_from(age).ok(),
            Replace::Nothing | Replace::Anything => None,
        };
        let overwrite = OverwriteOutput {
            overwrite: replace == Replace::Anything,
            delete_blob: false,
            max_age,
        };
        let request = v2::PutCacheRequest {
            base_request: Some(base::PutCacheRequest {
                key: key.key.clone(),
                output: Some(output),
                overwrite: (replace != Replace::Nothing).then_some(overwrite),
            }),
            identifier: identifier(key),
        };
        match self.client.call(method::PUT, &request).await {
            Ok(PutCacheResponse {}) => Ok(Put::Stored),
            Err(error) if error.code() == Some(Code::AlreadyExists) => Ok(Put::AlreadyThere),
            Err(error) => Err(failed("cache outputs")(error)),
        }
    }

    async fn get_or_extend_reservation(
        &self,
        key: &CacheKey,
        owner: &str,
        heartbeat: Duration,
    ) -> Result<Reservation, CatalogError> {
        let request = v2::GetOrExtendReservationRequest {
            base_request: Some(base::GetOrExtendReservationRequest {
                key: key.key.clone(),
                owner_id: owner.to_owned(),
                heartbeat_interval: prost_types::Duration::try_from(heartbeat).ok(),
            }),
            identifier: identifier(key),
        };
        let answer = self.look_up.call(method::RESERVE, &request).await;
        let answer: GetOrExtendReservationResponse = answer.map_err(failed("reserve a key"))?;
        let reservation = answer.reservation;
        let reservation = reservation.ok_or(CatalogError::Incomplete("a reservation"))?;
        reservation.try_into()
    }

    async fn release_reservation(&self, key: &CacheKey, owner: &str) -> Result<(), CatalogError> {
        let request = v2::ReleaseReservationRequest {
            base_request: Some(base::ReleaseReservationRequest {
                key: key.key.clone(),
                owner_id: owner.to_owned(),
            }),
            identifier: identifier(key),
        };
        match self.client.call(method::RELEASE, &request).await {
            Ok(ReleaseReservationResponse {}) => Ok(()),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(()),
            Err(error) => Err(failed("release a key")(error)),
        }
    }
}

impl TryFrom<base::Reservation> for Reservation {
    type Error = CatalogError;

    fn try_from(wire: base::Reservation) -> Result<Self, CatalogError> {
        let expires_at = wire.expires_at.and_then(from_proto);
        let heartbeat = wire.heartbeat_interval.unwrap_or_default();
        Ok(Self {
            owner: wire.owner_id,
            heartbeat: heartbeat.try_into().unwrap_or_default(),
            expires_at: expires_at.ok_or(CatalogError::Incomplete("the end of a reservation"))?,
        })
    }
}
