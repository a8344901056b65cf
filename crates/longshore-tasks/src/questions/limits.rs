//! The limits of questions: how many are in flight, how long they may take, and how often connectors are asked.

use std::time::Duration;

use longshore_k8s::Backoff;
use longshore_kit::{AskLimits, KindLimits, RateLimit};
use longshore_plugins::{Limit, WebApi};

use super::{CACHED, CREATE, DELETE, GET, LARGE_OUTPUTS, PUT, RELEASE, REPORT, RESERVE, STATUS};

/// Longer than a store's client takes with its retries: its own error says more than a time limit of ours.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for the catalog's client, which is asked twice.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(70);
/// The same for what a task waits for that could run without its cache: a look-up, and the read of cached outputs.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(25);
/// A connector's client has time limits of its own, by configuration, which may be long. For CreateTask it has none by
/// default: a job that begins late would run beside the one of the next CreateTask.
const CONNECTOR_TIMEOUT: Duration = Duration::from_hours(1);
/// Longer than a batch of events takes, with the one before it: its own error says more than a time limit of ours.
const REPORT_TIMEOUT: Duration = Duration::from_secs(70);
/// How many reports wait for a batch, or are in one.
const REPORTS_IN_FLIGHT: usize = 4096;
/// How many questions of one kind reach the clients of connectors, and how many of them may be to one connector. The kit
/// gives each further connector that does not answer a share of the rest: 33 of them would have to be silent.
const CONNECTOR_IN_FLIGHT: usize = 4096;
const CONNECTOR_IN_FLIGHT_PER_HOST: usize = CONNECTOR_IN_FLIGHT / 4;
/// From one DeleteTask of an action that failed to the next one.
const DELETE_AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_mins(1),
};
/// The rates of requests to connectors, as the configuration names them.
const READS: &str = "plugins.connector-service.webApi.readRateLimiter";
const WRITES: &str = "plugins.connector-service.webApi.writeRateLimiter";
/// Questions of one kind that are in flight to one endpoint of a store, or to the catalog.
const IN_FLIGHT_PER_HOST: usize = 32;
/// The kinds of questions to stores and the catalog.
const N_OTHER_KINDS: usize = 13;
/// Outputs that are not held are read again and written at once: so many at a time, of up to 8 MiB each, and so many of
/// them to one store. A store that never answers leaves places to others.
const LARGE_IN_FLIGHT: usize = 8;
const LARGE_IN_FLIGHT_PER_HOST: usize = 2;
/// A request to a connector, and one to a store.
const LARGE_TIMEOUT: Duration = Duration::from_secs(130);

/// How many questions are in flight, how long they may take, and how often connectors are asked.
pub(crate) fn limits(connectors: &WebApi) -> AskLimits {
    let of_store = KindLimits {
        in_flight: 256,
        in_flight_per_host: IN_FLIGHT_PER_HOST,
        timeout: STORE_TIMEOUT,
        ..KindLimits::default()
    };
    let of_catalog = KindLimits {
        timeout: CATALOG_TIMEOUT,
        ..of_store
    };
    let of_look_up = KindLimits {
        timeout: LOOK_UP_TIMEOUT,
        ..of_store
    };
    let limits = AskLimits {
        // All of each kind: none takes the places of another one.
        in_flight: 3 * CONNECTOR_IN_FLIGHT + REPORTS_IN_FLIGHT + N_OTHER_KINDS * of_store.in_flight,
        each: of_store,
        ..AskLimits::default()
    };
    let of_writes = KindLimits {
        in_flight: CONNECTOR_IN_FLIGHT,
        in_flight_per_host: CONNECTOR_IN_FLIGHT_PER_HOST,
        timeout: CONNECTOR_TIMEOUT,
        rate: Some(WRITES),
        ..of_store
    };
    let n_workers = usize::try_from(connectors.workers).unwrap_or(CONNECTOR_IN_FLIGHT_PER_HOST);
    let of_reads = KindLimits {
        // One that waited for a worker beside the kit would have a place that it does not use.
        in_flight_per_host: n_workers.clamp(1, CONNECTOR_IN_FLIGHT_PER_HOST),
        rate: Some(READS),
        ..of_writes
    };
    let of_deletes = KindLimits {
        backoff: DELETE_AGAIN,
        ..of_writes
    };
    let of_reports = KindLimits {
        in_flight: REPORTS_IN_FLIGHT,
        in_flight_per_host: REPORTS_IN_FLIGHT,
        timeout: REPORT_TIMEOUT,
        ..of_store
    };
    let of_large = KindLimits {
        in_flight: LARGE_IN_FLIGHT,
        in_flight_per_host: LARGE_IN_FLIGHT_PER_HOST,
        timeout: LARGE_TIMEOUT,
        ..of_store
    };
    let limits = limits
        .rate(READS, rate(connectors.reads))
        .rate(WRITES, rate(connectors.writes))
        .kind(CREATE, of_writes)
        .kind(STATUS, of_reads)
        .kind(DELETE, of_deletes)
        .kind(REPORT, of_reports)
        .kind(LARGE_OUTPUTS, of_large);
    let look_up = [GET, CACHED].map(|kind| (kind, of_look_up));
    let catalog = [RESERVE, PUT, RELEASE].map(|kind| (kind, of_catalog));
    let kinds = look_up.into_iter().chain(catalog);
    kinds.fold(limits, |limits, (kind, of_kind)| limits.kind(kind, of_kind))
}

fn rate(limit: Limit) -> RateLimit {
    RateLimit {
        per_second: limit.per_second,
        burst: limit.burst,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COPY, DIRECTORY, EXISTS, INPUTS, KEY, OUTCOME, OUTPUTS};
    use super::*;

    /// What is asked of one connector, whatever that does, leaves room for others.
    #[test]
    fn a_connector_has_a_share_of_what_all_connectors_have() {
        let limits = limits(&longshore_plugins::ConnectorConfig::default().web_api);
        for (kind, rate) in [(CREATE, WRITES), (DELETE, WRITES), (STATUS, READS)] {
            let of_kind = limits.of(kind);
            assert!(
                of_kind.in_flight_per_host * 4 <= of_kind.in_flight,
                "{kind}"
            );
            assert_eq!(of_kind.rate, Some(rate), "{kind}");
            let limit = limits.rates[rate];
            assert_eq!((limit.per_second, limit.burst), (10, 100), "{kind}");
        }
    }

    #[test]
    fn no_kind_takes_the_places_of_another_one() {
        let limits = limits(&longshore_plugins::ConnectorConfig::default().web_api);
        let kinds = [
            INPUTS,
            DIRECTORY,
            OUTCOME,
            OUTPUTS,
            LARGE_OUTPUTS,
            KEY,
            CACHED,
            COPY,
            EXISTS,
            GET,
            RESERVE,
            PUT,
            RELEASE,
            CREATE,
            STATUS,
            DELETE,
            REPORT,
        ];
        let all: usize = kinds.iter().map(|kind| limits.of(kind).in_flight).sum();
        assert!(all <= limits.in_flight, "{all}");
    }
}
