//! A catalog as `flyteidl2.cacheservice.v2.CacheService`, so that clients of the peer's service can use this one.

use std::sync::Arc;

use axum::{Router, body::Bytes, extract::State, response::Response, routing::post};
use http::HeaderMap;
use longshore_connect::{
    Code,
    server::{Refusal, answer},
};
use longshore_plugins::CacheKey;
use longshore_proto::flyteidl2::cacheservice::{
    self as base, GetCacheResponse, GetOrExtendReservationResponse, PutCacheResponse,
    ReleaseReservationResponse, v2,
};

use super::{Catalog, CatalogError, Put, Replace, Reservation, remote::method, to_proto};

/// The catalog that answers.
type Asked = State<Arc<dyn Catalog>>;

/// The service.
pub fn router(catalog: Arc<dyn Catalog>) -> Router {
    let at = |method: &str| format!("/{method}");
    Router::new()
        .route(&at(method::GET), post(get))
        .route(&at(method::PUT), post(put))
        .route(&at(method::RESERVE), post(reserve))
        .route(&at(method::RELEASE), post(release))
        .with_state(catalog)
}

async fn get(State(catalog): Asked, headers: HeaderMap, body: Bytes) -> Response {
    let work = async |request: v2::GetCacheRequest| {
        let base = required(request.base_request, "base_request")?;
        let key = cache_key(request.identifier, base.key)?;
        let found = catalog.get(&key).await.map_err(failed)?;
        let none = || {
            Refusal::new(
                Code::NotFound,
                format!("nothing is cached under {:?}", key.key),
            )
        };
        Ok(GetCacheResponse {
            output: Some(found.ok_or_else(none)?),
        })
    };
    answer(&headers, &body, work).await
}

async fn put(State(catalog): Asked, headers: HeaderMap, body: Bytes) -> Response {
    let work = async |request: v2::PutCacheRequest| {
        let base = required(request.base_request, "base_request")?;
        let key = cache_key(request.identifier, base.key)?;
        let output = required(base.output, "base_request.output")?;
        required(output.output.as_ref(), "base_request.output.output")?;
        let overwrite = base.overwrite.unwrap_or_default();
        let max_age = overwrite.max_age.and_then(|age| age.try_into().ok());
        let replace = match (overwrite.overwrite, max_age) {
            (true, _) => Replace::Anything,
            (false, Some(age)) => Replace::OlderThan(age),
            (false, None) => Replace::Nothing,
        };
        match catalog.put(&key, output, replace).await.map_err(failed)? {
            Put::Stored => Ok(PutCacheResponse {}),
            Put::AlreadyThere => Err(Refusal::new(
                Code::AlreadyExists,
                format!("something is cached under {:?}", key.key),
            )),
        }
    };
    answer(&headers, &body, work).await
}

async fn reserve(State(catalog): Asked, headers: HeaderMap, body: Bytes) -> Response {
    let work = async |request: v2::GetOrExtendReservationRequest| {
        let base = required(request.base_request, "base_request")?;
        let heartbeat = base.heartbeat_interval.unwrap_or_default();
        let heartbeat = heartbeat.try_into().unwrap_or_default();
        let owner = named(base.owner_id, "base_request.owner_id")?;
        let key = cache_key(request.identifier, base.key)?;
        let reserved = catalog.get_or_extend_reservation(&key, &owner, heartbeat);
        let reservation = to_wire(reserved.await.map_err(failed)?, key.key);
        Ok(GetOrExtendReservationResponse {
            reservation: Some(reservation),
        })
    };
    answer(&headers, &body, work).await
}

async fn release(State(catalog): Asked, headers: HeaderMap, body: Bytes) -> Response {
    let work = async |request: v2::ReleaseReservationRequest| {
        let base = required(request.base_request, "base_request")?;
        let owner = named(base.owner_id, "base_request.owner_id")?;
        let key = cache_key(request.identifier, base.key)?;
        let released = catalog.release_reservation(&key, &owner).await;
        released.map_err(failed)?;
        Ok(ReleaseReservationResponse {})
    };
    answer(&headers, &body, work).await
}

/// A reservation as it is on the wire.
pub(super) fn to_wire(reservation: Reservation, key: String) -> base::Reservation {
    base::Reservation {
        key,
        owner_id: reservation.owner,
        heartbeat_interval: prost_types::Duration::try_from(reservation.heartbeat).ok(),
        expires_at: Some(to_proto(reservation.expires_at)),
    }
}

fn cache_key(identifier: Option<v2::Identifier>, key: String) -> Result<CacheKey, Refusal> {
    let v2::Identifier {
        org,
        project,
        domain,
    } = required(identifier, "identifier")?;
    Ok(CacheKey {
        org,
        project,
        domain,
        key: named(key, "base_request.key")?,
    })
}

fn named(text: String, field: &str) -> Result<String, Refusal> {
    required((!text.is_empty()).then_some(text), field)
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, Refusal> {
    let missing = || Refusal::new(Code::InvalidArgument, format!("{field} is required"));
    value.ok_or_else(missing)
}

fn failed(error: CatalogError) -> Refusal {
    tracing::warn!(%error, "the catalog cannot answer");
    Refusal::new(Code::Unavailable, error.to_string())
}
