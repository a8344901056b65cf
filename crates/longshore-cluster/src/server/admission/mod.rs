//! Admission webhooks: who else is asked before a write is stored.
//!
//! `configuration` says which registrations are taken, `webhook` and `rules` which requests they
//! are about, `question` is a request as they are told of it, and `ask` what verbs do with one.
//! `review` is question and answer on the wire, `caller` and `services` carry them.
//!
//! **Invariant:** nothing is locked while a webhook thinks. A verb reads an object, asks, and
//! commits with the revision that it has read; when that has changed meanwhile it starts again,
//! and so asks again. Without registrations a verb pays for one look at an empty collection.

mod ask;
mod caller;
mod configuration;
mod identity;
mod question;
mod registered;
mod review;
mod rules;
mod services;
mod webhook;

use std::sync::Arc;

pub(crate) use configuration::{selector_violations, set_defaults, violations};
pub(crate) use question::{Operation, Question};

use super::hub::Collection;
use super::registry::Registry;
use caller::Caller;
use registered::Registered;
use services::Services;

const GROUP: &str = "admissionregistration.k8s.io";

/// Everything that webhooks need of a server.
pub(crate) struct Admission {
    mutating: Registered,
    validating: Registered,
    namespaces: Arc<Collection>,
    caller: Caller,
}

impl Admission {
    /// The webhooks that are registered in the built-in collections.
    #[expect(clippy::expect_used, reason = "rows of the built-in table")]
    pub(crate) fn new(registry: &Registry) -> Admission {
        let collection = |group: &str, version: &str, plural: &str| {
            let served = registry.find(group, version, plural);
            served.expect("find a built-in resource").collection
        };
        Admission {
            mutating: Registered::new(collection(GROUP, "v1", "mutatingwebhookconfigurations")),
            validating: Registered::new(collection(GROUP, "v1", "validatingwebhookconfigurations")),
            namespaces: collection("", "v1", "namespaces"),
            caller: Caller::new(Services {
                services: collection("", "v1", "services"),
                slices: collection("discovery.k8s.io", "v1", "endpointslices"),
            }),
        }
    }

    /// The authority of the certificate with which the server asks webhooks, in PEM.
    pub(crate) fn client_authority(&self) -> Result<String, rcgen::Error> {
        self.caller.client_authority()
    }
}
