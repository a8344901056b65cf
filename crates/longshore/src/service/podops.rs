//! PodOpsLifecycle as it is set up here: its controllers, and its webhooks for API servers.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use longshore_kit::{Contact, Metrics, Requests, SystemClock};
use longshore_outbound::Boundaries;
use longshore_podops::{
    AdmitConfig, DRAIN_DELAY, PodMeasures, PodOps, PodOpsConfig, RegistrationConfig,
    rule::RuleKind,
    webhooks::{self, Reach},
};
use longshore_webhook::{Certificates, ClientAuthority, Identity, Measures};
use tokio_util::sync::CancellationToken;

use super::webhooks::Webhooks;

/// The name of this part in error messages.
pub(crate) const PART: &str = "the webhooks of pods";
/// The Service in front of the webhooks, unless a flag names another one.
pub(crate) const SERVICE: &str = "longshore-podops";
/// The port of that Service.
const SERVICE_PORT: u16 = 443;

/// The settings of PodOpsLifecycle.
#[derive(Clone, Debug)]
pub(crate) struct PodOpsSettings {
    /// Where the URLs of rules' webhooks may lead: one value for the controllers and the webhooks.
    pub(crate) boundaries: Arc<Boundaries>,
    /// The settings of the admission of pods.
    pub(crate) admit: AdmitConfig,
    /// The settings of the webhook configurations.
    pub(crate) registration: RegistrationConfig,
    /// Where the webhooks listen.
    pub(crate) address: SocketAddr,
    /// The Service through which API servers reach the webhooks; `None` for the default Service.
    pub(crate) service: Option<ServiceName>,
    /// Kinds of rules that hold no pod.
    pub(crate) skipped_rules: BTreeSet<RuleKind>,
    /// How long operations wait for controllers that protect traffic; `None`: for ever.
    pub(crate) protection_deadline: Option<Duration>,
    /// How long pods are held after they have left the EndpointSlices of Services; `None`: Services protect no pods.
    pub(crate) drain_delay: Option<Duration>,
    /// Notes for the start, about flags that change nothing without another flag.
    pub(crate) unused_flags: Vec<&'static str>,
}

/// A Service in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceName {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl PodOpsSettings {
    /// The settings for this machine: webhooks on loopback at any free port. Deletes become
    /// operations: a user who labels pods wants that.
    ///
    /// The author of a rule is the user who runs this program, so the webhook of a rule may be on this machine.
    pub(crate) fn of_this_machine() -> Self {
        let loopback = ["127.0.0.0/8", "::1"].iter();
        let loopback = loopback.filter_map(|network| network.parse().ok());
        Self {
            boundaries: Arc::new(Boundaries::allowing(loopback.collect()).allowing_own_addresses()),
            admit: AdmitConfig {
                grace_delete: true,
                ..AdmitConfig::default()
            },
            registration: RegistrationConfig::default(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            service: None,
            skipped_rules: BTreeSet::new(),
            protection_deadline: None,
            drain_delay: Some(DRAIN_DELAY),
            unused_flags: Vec::new(),
        }
    }

    /// The controllers of the whole cluster.
    pub(crate) fn controllers(&self, metrics: &Metrics, measures: &PodMeasures) -> PodOps {
        let config = PodOpsConfig {
            grace_delete: self.admit.grace_delete,
            skipped_rules: self.skipped_rules.clone(),
            protection_deadline: self.protection_deadline,
            drain_delay: self.drain_delay,
            boundaries: Arc::clone(&self.boundaries),
            metrics: metrics.clone(),
            measures: measures.clone(),
            ..PodOpsConfig::default()
        };
        PodOps::new(config, Arc::new(SystemClock))
    }

    /// The webhooks, which listen at `address`. Their certificates are kept in `namespace`. API servers show client
    /// certificates of `client_authority`; without one they send the token of the webhook configuration.
    ///
    /// With a loopback address the API server runs on the same host and calls that address; with any other address the
    /// webhooks run in a pod behind a Service. After `stopping` no delete is held.
    pub(crate) fn webhooks(
        &self,
        client: Client,
        namespace: &str,
        address: SocketAddr,
        client_authority: Option<ClientAuthority>,
        measures: (&Measures, &PodMeasures),
        stopping: CancellationToken,
    ) -> Webhooks {
        let requests = Requests::new(client);
        let clock = Arc::new(SystemClock);
        let service = self.service.clone().unwrap_or_else(|| ServiceName {
            name: SERVICE.to_owned(),
            namespace: namespace.to_owned(),
        });
        let mut identity =
            Identity::of_service(&service.namespace, webhooks::SECRET, &service.name);
        namespace.clone_into(&mut identity.namespace);
        let reach = if address.ip().is_loopback() {
            identity.names.push(address.ip().to_string());
            Reach::Url(format!("https://{address}"))
        } else {
            Reach::Service {
                namespace: service.namespace,
                name: service.name,
                port: SERVICE_PORT,
            }
        };
        let mut certificates =
            Certificates::new(requests.clone(), clock.clone(), identity).trusting(client_authority);
        for registration in webhooks::registrations(&self.admit, &self.registration, &reach) {
            certificates = certificates.publishing(registration);
        }
        Webhooks {
            part: PART,
            certificates,
            webhooks: webhooks::webhooks(
                self.admit.clone(),
                requests,
                clock,
                Arc::clone(&self.boundaries),
                stopping,
                measures.1,
            )
            .into(),
            measures: measures.0.clone(),
            contact: Contact::default(),
        }
    }
}
