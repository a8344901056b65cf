//! Admission: what is completed, and which webhooks are called, before a write is stored. The rest is about webhooks but
//! for `service_accounts` and `runtime_classes`.
//!
//! `configuration` reads registrations, `webhook` and `rules` decide which requests a registration
//! matches, `question` is one request as webhooks receive it, and `ask` is the entry point of the
//! verbs. `review` is request and response on the wire; `caller`, `services` and `inside` send them.
//!
//! **Invariant:** no lock is held during a call of a webhook. A verb reads an object, calls the
//! webhooks, and commits with the revision that it has read; when that revision has changed
//! meanwhile, the verb starts again, and so calls the webhooks again. Without registrations a verb
//! pays for one look at an empty collection.

mod ask;
mod caller;
mod configuration;
mod identity;
mod inside;
mod question;
mod registered;
mod review;
mod rules;
mod runtime_classes;
mod service_accounts;
mod services;
mod webhook;

use std::sync::Arc;

pub use inside::PodNetwork;

pub(crate) use configuration::{selector_violations, set_defaults, violations};
pub(crate) use question::{Operation, Question};
pub(crate) use runtime_classes::{admit as admit_runtime_class, check as check_runtime_class};
pub use service_accounts::PodIdentity;
pub(crate) use service_accounts::admit as admit_service_account;

use caller::Caller;
use registered::Registered;
use service_accounts::shown_name;
use services::Services;

use super::{hub::Collection, registry::Registry};

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

    /// Webhooks in pods of this network are called through it.
    pub(crate) fn set_pod_network(&self, network: Arc<dyn PodNetwork>) {
        self.caller.set_pod_network(network);
    }

    /// The authority of the client certificate that the server shows to webhooks, in PEM.
    pub(crate) fn client_authority(&self) -> Result<String, rcgen::Error> {
        self.caller.client_authority()
    }
}
