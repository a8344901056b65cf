//! The part of webhooks in the health probes of a replica.
//!
//! A replica is ready once its webhooks are served, whether or not it leads: a Service sends API servers to it from
//! then on. Readiness depends on the API server alone, so that a rollout never waits for a leader.
//!
//! A replica that has had no answer of the API server for some seconds is not ready until the next answer: it cannot
//! read the pods that API servers ask it about, and the other replicas can. Replicas without webhooks stay ready,
//! because their HTTP API needs no API server.
//!
//! A missing webhook configuration is named, and does not make a replica unready. While the configuration is missing,
//! API servers send no requests, so there is nothing to keep from the replica. After a user restores the configuration,
//! API servers call the webhooks at once: a Service whose replicas had yet to become ready again would refuse the pods
//! of the whole cluster meanwhile.

use std::time::Duration;

use kube::Client;
use longshore_console::objects::Check;
use longshore_kit::{CUT_OFF, Contact, Metrics};
use longshore_webhook::{Readiness, RoleWebhooks, Serving};
use tokio::time::{sleep, timeout};

use super::{podops, roles::Role, webhook};

/// How often a replica asks an API server that it doubts to reach, and how long it waits for the answer. Replicas that
/// renew a lease, or wait for one, ask as often.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Expects the webhooks of these roles, so that a replica is not ready before they are served.
pub(super) fn expecting(roles: &[&'static Role], metrics: &Metrics) -> Readiness {
    let readiness = Readiness::new(metrics);
    for role in [podops::ROLE, webhook::ROLE] {
        if roles.iter().any(|enabled| enabled.name == role) {
            readiness.of(role);
        }
    }
    readiness
}

/// One check for the webhooks of each role.
pub(super) fn checks(readiness: &Readiness, contact: &Contact) -> Vec<Check> {
    let known = readiness.known().into_iter();
    known
        .map(|(role, webhooks)| check(role, &webhooks, contact.is_cut_off()))
        .collect()
}

/// Asks the API server while it is doubtful that it answers, without end. A replica without leases that is not ready
/// gets no requests, and would send none: it would never hear that the API server is back.
pub(super) async fn ask_while_doubted(contact: &Contact, client: Client) {
    loop {
        sleep(ASK_EVERY).await;
        if contact.is_doubted() {
            // The contact notes the answer.
            let _ = timeout(ASK_EVERY, client.apiserver_version()).await;
        }
    }
}

/// The name of the check says what the replica waits for: the cause is not shown to unauthenticated readers.
fn check(role: &str, webhooks: &RoleWebhooks, is_cut_off: bool) -> Check {
    let missing: Vec<&str> = webhooks.missing.iter().map(String::as_str).collect();
    let (state, problem) = match webhooks.serving {
        Serving::NotYet => (
            "wait for their certificate".to_owned(),
            Some("there is no certificate to serve them with".to_owned()),
        ),
        Serving::Uninstalled => ("were uninstalled".to_owned(), None),
        Serving::Served if is_cut_off => {
            let without = format!(
                "no answer of the API server for {} s or more",
                CUT_OFF.as_secs()
            );
            let state = format!("are served, and this replica has had {without}");
            (state, Some(without))
        }
        Serving::Served if missing.is_empty() => ("are served".to_owned(), None),
        Serving::Served => (
            format!(
                "are served, and no API server asks them without {}",
                missing.join(" and ")
            ),
            None,
        ),
    };
    Check {
        name: format!("webhooks of {role} {state}"),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_a_certificate_or_api_server_is_not_ready_and_missing_ones_are_named() {
        let found = |serving, missing: &[&str], is_cut_off| {
            let missing = missing.iter().map(|name| (*name).to_owned()).collect();
            let webhooks = RoleWebhooks { serving, missing };
            let check = check("podops", &webhooks, is_cut_off);
            (check.name, check.problem.is_none())
        };
        let with = |serving, missing: &[&str]| found(serving, missing, false);
        let cut_off = |serving| found(serving, &["a"], true);
        for (found, expected, is_ready) in [
            (
                with(Serving::NotYet, &["a", "b"]),
                "webhooks of podops wait for their certificate",
                false,
            ),
            (
                with(Serving::Served, &["a", "b"]),
                "webhooks of podops are served, and no API server asks them without a and b",
                true,
            ),
            (
                with(Serving::Served, &[]),
                "webhooks of podops are served",
                true,
            ),
            (
                with(Serving::Uninstalled, &[]),
                "webhooks of podops were uninstalled",
                true,
            ),
            (
                cut_off(Serving::Served),
                "webhooks of podops are served, and this replica has had no answer of the API server for 10 s or more",
                false,
            ),
            (
                cut_off(Serving::NotYet),
                "webhooks of podops wait for their certificate",
                false,
            ),
            (
                cut_off(Serving::Uninstalled),
                "webhooks of podops were uninstalled",
                true,
            ),
        ] {
            assert_eq!(found, (expected.to_owned(), is_ready));
        }
    }
}
