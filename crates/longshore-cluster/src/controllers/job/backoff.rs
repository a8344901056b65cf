//! How long a Job waits after pods that have failed. Pure.
//!
//! Failures are read from the pods that are still there, so a restart of the controller forgets none.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_k8s::Backoff;

use super::{model::Desired, pod};

const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(10),
    max: Duration::from_secs(600),
};

/// What is left of the wait after some failures in a row, of which the last was then.
fn left(n_failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    let elapsed = now.duration_since(last);
    let elapsed = Duration::try_from(elapsed).unwrap_or(Duration::ZERO);
    BACKOFF.wait(n_failures).saturating_sub(elapsed)
}

/// What is left of the wait after the pods that have failed since the last success.
pub(super) fn of_job(desired: &Desired, pods: &[&Pod], now: Timestamp) -> Duration {
    let succeeded = pods.iter().filter(|it| pod::has_succeeded(it));
    let last_success = succeeded.map(|it| pod::finished_at(it)).max();
    let failed = pods.iter().filter(|it| pod::has_failed(desired, it));
    let times = failed.map(|it| pod::finished_at(it));
    let since: Vec<Timestamp> = times
        .filter(|at| last_success.is_none_or(|it| *at > it))
        .collect();
    let Some(last) = since.iter().max() else {
        return Duration::ZERO;
    };
    left(u32::try_from(since.len()).unwrap_or(u32::MAX), *last, now)
}

/// What is left of the wait for an index whose last pod has failed.
pub(super) fn of_index(failed: Option<&Pod>, now: Timestamp) -> Duration {
    let Some(failed) = failed else {
        return Duration::ZERO;
    };
    let (counted, ignored) = pod::failures_before(failed);
    let n_failures = counted.saturating_add(ignored).saturating_add(1);
    left(n_failures, pod::finished_at(failed), now)
}
