//! The part of webhooks in the health probes of a replica.
//!
//! A replica is ready once its webhooks are served, whether or not it leads: a Service sends API servers to it from
//! then on. Readiness depends on the API server alone, so that a rollout never waits for a leader.
//!
//! A missing webhook configuration is named, and does not make a replica unready. While the configuration is missing,
//! API servers send no requests, so there is nothing to keep from the replica. After a user restores the configuration,
//! API servers call the webhooks at once: a Service whose replicas had yet to become ready again would refuse the pods
//! of the whole cluster meanwhile.

use longshore_console::objects::Check;
use longshore_kit::Metrics;
use longshore_webhook::{Readiness, RoleWebhooks, Serving};

use super::{podops, roles::Role, webhook};

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
pub(super) fn checks(readiness: &Readiness) -> Vec<Check> {
    let known = readiness.known().into_iter();
    known
        .map(|(role, webhooks)| check(role, &webhooks))
        .collect()
}

/// The name of the check says what the replica waits for: the cause is not shown to unauthenticated readers.
fn check(role: &str, webhooks: &RoleWebhooks) -> Check {
    let missing: Vec<&str> = webhooks.missing.iter().map(String::as_str).collect();
    let (state, problem) = match webhooks.serving {
        Serving::NotYet => (
            "wait for their certificate".to_owned(),
            Some("there is no certificate to serve them with".to_owned()),
        ),
        Serving::Uninstalled => ("were uninstalled".to_owned(), None),
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
    fn a_replica_without_a_certificate_is_not_ready_and_one_without_configurations_says_so() {
        let with = |serving, missing: &[&str]| {
            let missing = missing.iter().map(|name| (*name).to_owned()).collect();
            let check = check("podops", &RoleWebhooks { serving, missing });
            (check.name, check.problem.is_none())
        };
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
        ] {
            assert_eq!(found, (expected.to_owned(), is_ready));
        }
    }
}
