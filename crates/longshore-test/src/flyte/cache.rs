//! The cache service.

use std::{collections::BTreeMap, time::Duration};

use http::StatusCode;
use jiff::Timestamp;
use longshore_kit::{Clock, SystemClock};
use longshore_proto::flyteidl2::cacheservice::{
    CachedOutput, GetCacheResponse, GetOrExtendReservationResponse, PutCacheResponse,
    ReleaseReservationResponse, Reservation, v2,
};

use super::{Refused, scoped};

/// The longest interval of an owner's heartbeat, and how many without one end a reservation: the peer's defaults.
const MAX_HEARTBEAT: Duration = Duration::from_secs(10);
const GRACE: u32 = 3;

/// The cached outputs, and the reservations of those that are about to be cached.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) outputs: BTreeMap<String, CachedOutput>,
    reservations: BTreeMap<String, (Reservation, Timestamp)>,
}

impl Cache {
    pub(super) fn owners(&self) -> BTreeMap<String, String> {
        let held = self.reservations.iter();
        held.map(|(key, (held, _))| (key.clone(), held.owner_id.clone()))
            .collect()
    }

    pub(super) fn get(&self, request: v2::GetCacheRequest) -> Result<GetCacheResponse, Refused> {
        let base = request.base_request.unwrap_or_default();
        let key = scoped(request.identifier, &base.key)?;
        let output = self.outputs.get(&key).cloned();
        let none = || Refused {
            status: StatusCode::NOT_FOUND,
            code: "not_found",
            message: format!("nothing is cached under {key:?}"),
        };
        Ok(GetCacheResponse {
            output: Some(output.ok_or_else(none)?),
        })
    }

    pub(super) fn put(
        &mut self,
        request: v2::PutCacheRequest,
    ) -> Result<PutCacheResponse, Refused> {
        let base = request.base_request.unwrap_or_default();
        let key = scoped(request.identifier, &base.key)?;
        let output = base
            .output
            .ok_or_else(|| Refused::invalid("output is required"))?;
        if self.outputs.contains_key(&key) {
            return Err(Refused {
                status: StatusCode::CONFLICT,
                code: "already_exists",
                message: format!("something is cached under {key:?}"),
            });
        }
        self.outputs.insert(key, output);
        Ok(PutCacheResponse {})
    }

    pub(super) fn reserve(
        &mut self,
        request: v2::GetOrExtendReservationRequest,
    ) -> Result<GetOrExtendReservationResponse, Refused> {
        let base = request.base_request.unwrap_or_default();
        let key = scoped(request.identifier, &base.key)?;
        let now = SystemClock.now();
        let held = self.reservations.get(&key);
        let others = held.filter(|(held, until)| held.owner_id != base.owner_id && *until > now);
        if let Some((others, _)) = others {
            return Ok(answer(others.clone()));
        }
        let heartbeat = base.heartbeat_interval.unwrap_or_default();
        let heartbeat = Duration::try_from(heartbeat).unwrap_or_default();
        let heartbeat = heartbeat.min(MAX_HEARTBEAT);
        let until = now + heartbeat * GRACE;
        let reservation = Reservation {
            key: base.key,
            owner_id: base.owner_id,
            heartbeat_interval: prost_types::Duration::try_from(heartbeat).ok(),
            expires_at: Some(prost_types::Timestamp {
                seconds: until.as_second(),
                nanos: until.subsec_nanosecond(),
            }),
        };
        self.reservations.insert(key, (reservation.clone(), until));
        Ok(answer(reservation))
    }

    pub(super) fn release(
        &mut self,
        request: v2::ReleaseReservationRequest,
    ) -> Result<ReleaseReservationResponse, Refused> {
        let base = request.base_request.unwrap_or_default();
        let key = scoped(request.identifier, &base.key)?;
        let held = self.reservations.get(&key);
        if held.is_some_and(|(held, _)| held.owner_id == base.owner_id) {
            self.reservations.remove(&key);
        }
        Ok(ReleaseReservationResponse {})
    }
}

fn answer(reservation: Reservation) -> GetOrExtendReservationResponse {
    GetOrExtendReservationResponse {
        reservation: Some(reservation),
    }
}
