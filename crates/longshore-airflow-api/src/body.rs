//! Bodies of requests: read whole, within limits of size, time, and of all of them together.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use longshore_airflow::api::ApiError;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How large bodies may be, in bytes, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The value of an XCom; default 50 MiB.
    pub xcom: usize,
    /// Every other body; default 4 MiB. The largest hold rendered fields, or the arguments of triggers.
    pub other: usize,
    /// All bodies over 64 KiB that are held at the same time; default 100 MiB. Others wait for their turn.
    pub in_flight: usize,
    /// From the head of a request to the last byte of its body, its turn included; default 60 s.
    pub timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            xcom: 50 << 20,
            other: 4 << 20,
            in_flight: 100 << 20,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Bodies are counted in units of this many bytes. One unit costs nothing.
const UNIT: usize = 64 << 10;

/// Reads bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    pub(crate) limits: BodyLimits,
    units: Semaphore,
    n_units: usize,
}

/// A body, and its part of what all may take.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) bytes: Bytes,
    _units: Option<SemaphorePermit<'a>>,
}

impl Bodies {
    pub(crate) fn new(limits: BodyLimits) -> Self {
        let n_units = (limits.in_flight / UNIT).max(1);
        Self {
            limits,
            units: Semaphore::new(n_units),
            n_units,
        }
    }

    /// The whole body, of at most `limit` bytes. One whose announced length is larger is refused
    /// before it is read.
    pub(crate) async fn read(&self, body: Body, limit: usize) -> Result<Held<'_>, ApiError> {
        let announced = body.size_hint().exact();
        let announced = announced.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        if announced.is_some_and(|size| size > limit) {
            return Err(ApiError::body_too_large(limit));
        }
        let size = announced.unwrap_or(limit);
        let reading = async {
            let units = self.take(size).await;
            collect(body, size, limit).await.map(|bytes| Held {
                bytes,
                _units: units,
            })
        };
        let read = tokio::time::timeout(self.limits.timeout, reading).await;
        read.unwrap_or_else(|_| Err(ApiError::no_answer_in_time()))
    }

    /// The turn of a body of this size. One that is larger than all may be waits until it is alone.
    async fn take(&self, size: usize) -> Option<SemaphorePermit<'_>> {
        let n = (size / UNIT).min(self.n_units);
        let n = u32::try_from(n).ok().filter(|n| *n > 0)?;
        // The semaphore is never closed.
        self.units.acquire_many(n).await.ok()
    }
}

async fn collect(body: Body, size: usize, limit: usize) -> Result<Bytes, ApiError> {
    let mut chunks = body
        .into_data_stream()
        .map_err(|_| ApiError::incomplete_body());
    let Some(first) = chunks.next().await.transpose()? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        return Err(ApiError::body_too_large(limit));
    }
    let Some(second) = chunks.next().await.transpose()? else {
        return Ok(first);
    };
    let mut bytes = Vec::with_capacity(size.min(limit));
    bytes.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::body_too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
        next = chunks.next().await.transpose()?;
    }
    Ok(bytes.into())
}
