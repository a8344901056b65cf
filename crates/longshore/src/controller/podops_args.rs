//! What Kuperator's manager takes on its command line, as flags of `longshore controller` (podops spec §14), and the
//! flags of the role `podops` that upstream does not have.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::{ArgAction, Args};
use longshore_outbound::{Boundaries, Network};
use longshore_podops::{
    AdmitConfig, DRAIN_DELAY, FailurePolicies, FailurePolicy, MAX_HOLD, RegistrationConfig,
    rule::RuleKind,
};
use longshore_webhook::ClientAuthority;

use super::Election;
use crate::{
    cmd::run::duration,
    service::podops::{PodOpsSettings, ServiceName},
};

mod unused;

/// Where the webhooks listen, unless a flag says otherwise.
const WEBHOOK_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);

// All hidden: the help has to fit the first screen, and docs/podops.md has them.
/// About the role `podops`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PodOpsArgs {
    /// Upstream's feature gates, as GraceDeleteWebhook=true
    #[arg(long, hide = true, value_name = "GATES", default_value = "", value_parser = gates)]
    feature_gates: FeatureGates,
    /// Where the webhooks listen; on loopback, API servers call this address instead of a Service
    /// of podops [default: 0.0.0.0:9443]
    #[arg(long, hide = true, value_name = "IP:PORT")]
    webhook_address: Option<SocketAddr>,
    /// The Service in front of the webhooks, as NAME.NAMESPACE.svc
    #[arg(long, hide = true, value_name = "NAME", value_parser = service)]
    dns_name: Option<ServiceName>,
    /// Upstream's; not used, because certificates are kept in a Secret only
    #[arg(long, hide = true, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Authorities in PEM: API servers show client certificates of theirs to the webhooks of all roles
    #[arg(long, hide = true, value_name = "FILE")]
    webhook_client_ca: Option<PathBuf>,
    /// Upstream's --metrics-address
    #[arg(long, hide = true, value_name = "ADDRESS", value_parser = bind)]
    metrics_bind_address: Option<SocketAddr>,
    /// Serve health at this address as well
    #[arg(long, hide = true, value_name = "ADDRESS", value_parser = bind)]
    health_probe_bind_address: Option<SocketAddr>,
    /// Upstream's; false is --lease-duration 0
    #[arg(
        long,
        hide = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    leader_elect: Option<bool>,
    /// How long operations wait for controllers that protect traffic [default: for ever]
    #[arg(long, hide = true, value_name = "DURATION", value_parser = duration)]
    protection_deadline: Option<Duration>,
    /// Pods that Services select are protected while EndpointSlices have them as ready
    #[arg(
        long,
        hide = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    protect_services: bool,
    /// How long a pod is protected after it has left its EndpointSlices, unless a Service says otherwise [default: 5s]
    #[arg(long, hide = true, value_name = "DURATION", value_parser = duration)]
    drain_delay: Option<Duration>,
    /// Ranges of addresses that the webhooks of rules may have although they are refused otherwise, as 127.0.0.0/8
    #[arg(long, hide = true, value_name = "CIDRS", value_delimiter = ',')]
    allow_webhook_cidr: Vec<Network>,
    /// How long a delete is held until the pod may go, at most 20s [default: refused at once]
    #[arg(long, hide = true, value_name = "DURATION", default_value = "0s", value_parser = hold)]
    hold_deletes: Duration,
    /// Deletes with gracePeriodSeconds 0 pass
    #[arg(long, hide = true)]
    allow_force_delete: bool,
    /// What API servers do while no replica answers: Fail or Ignore for all webhooks, or GROUP=POLICY for some of pods,
    /// statuses, evictions, rules
    #[arg(
        long,
        hide = true,
        value_name = "POLICIES",
        default_value = "",
        value_parser = failure_policies
    )]
    webhook_failure_policy: FailurePolicies,
    /// Namespaces that never wait for the webhooks, beside those of the cluster and ours; may be repeated
    #[arg(
        long,
        hide = true,
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = namespace
    )]
    exclude_namespaces: Vec<String>,
    /// Kinds of rules that hold no pod
    #[arg(
        long,
        hide = true,
        value_name = "KINDS",
        env = "SKIP_POD_TRANSITION_RULES",
        hide_env = true,
        default_value = "",
        value_parser = kinds
    )]
    skip_pod_transition_rules: SkippedRules,
}

/// Upstream's feature gates, as far as they mean something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FeatureGates {
    grace_delete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SkippedRules(BTreeSet<RuleKind>);

impl PodOpsArgs {
    /// The settings of the role, from the flags.
    pub(crate) fn settings(&self) -> PodOpsSettings {
        PodOpsSettings {
            boundaries: Arc::new(Boundaries::allowing(self.allow_webhook_cidr.clone())),
            admit: AdmitConfig {
                grace_delete: self.feature_gates.grace_delete,
                force_delete_passes: self.allow_force_delete,
                hold_deletes: Some(self.hold_deletes).filter(|time| !time.is_zero()),
                ..AdmitConfig::default()
            },
            registration: RegistrationConfig {
                failure_policies: self.webhook_failure_policy,
                excluded_namespaces: self.exclude_namespaces.clone(),
            },
            address: self.webhook_address.unwrap_or(WEBHOOK_ADDRESS),
            service: self.dns_name.clone(),
            skipped_rules: self.skip_pod_transition_rules.0.clone(),
            protection_deadline: self.protection_deadline,
            drain_delay: self
                .protect_services
                .then(|| self.drain_delay.unwrap_or(DRAIN_DELAY)),
            unused_flags: self.unused_flags(),
        }
    }

    /// Where the role `webhook` listens, where Longshore's own flag says this.
    pub(crate) fn webhook_address(&self) -> Option<SocketAddr> {
        self.webhook_address
    }

    /// Which client certificates the webhooks of all roles take; `None`: they take tokens.
    pub(crate) fn client_authority(&self) -> Option<ClientAuthority> {
        self.webhook_client_ca.clone().map(ClientAuthority::File)
    }

    /// Whether there may be other replicas, where Longshore's own flag says this.
    pub(crate) fn election(&self, election: Election) -> Election {
        match self.leader_elect {
            Some(false) => Election::None,
            Some(true) | None => election,
        }
    }

    /// Where health and metrics are, where Longshore's own flag says this.
    pub(crate) fn metrics_address(&self, address: SocketAddr) -> SocketAddr {
        self.metrics_bind_address.unwrap_or(address)
    }

    /// The second address of health, where a flag names one.
    pub(crate) fn health_address(&self) -> Option<SocketAddr> {
        self.health_probe_bind_address
    }
}

/// `GraceDeleteWebhook=true,AlibabaCloudSlb=false`.
fn gates(text: &str) -> Result<FeatureGates, String> {
    /// Gates of features that Longshore does not have: they can only be off.
    const ABSENT: [&str; 2] = ["AlibabaCloudSlb", "ReclaimScaleStrategy"];
    let mut gates = FeatureGates::default();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (gate, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let is_on = match value {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
            "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
            other => return Err(format!("{gate}: expected true or false, found {other:?}")),
        };
        match gate {
            // The only alpha gate that means something here.
            "GraceDeleteWebhook" | "AllAlpha" => gates.grace_delete = is_on,
            "AllBeta" => {}
            _ if ABSENT.contains(&gate) && !is_on => {}
            _ if ABSENT.contains(&gate) => {
                return Err(format!("{gate} is about something that is not here"));
            }
            _ => return Err(format!("expected GraceDeleteWebhook, found {gate:?}")),
        }
    }
    Ok(gates)
}

/// `Ignore`, or `evictions=Fail,rules=Ignore`.
fn failure_policies(text: &str) -> Result<FailurePolicies, String> {
    let policy = |text: &str| match text {
        "Fail" => Ok(FailurePolicy::Fail),
        "Ignore" => Ok(FailurePolicy::Ignore),
        other => Err(format!("expected Fail or Ignore, found {other:?}")),
    };
    let (mut of_all, mut of_groups) = (None, BTreeMap::new());
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let (group, before) = match part.split_once('=') {
            None => ("all webhooks", of_all.replace(policy(part)?)),
            Some((group, value)) => (group, of_groups.insert(group, policy(value)?)),
        };
        if before.is_some() {
            return Err(format!("expected one policy for {group}, found two"));
        }
    }
    let mut policies = of_all.map_or_else(FailurePolicies::default, FailurePolicies::all);
    for (group, value) in of_groups {
        match group {
            "pods" => policies.pods = value,
            "statuses" => policies.statuses = value,
            "evictions" => policies.evictions = value,
            "rules" => policies.rules = value,
            other => {
                return Err(format!(
                    "expected one of pods, statuses, evictions, rules, found {other:?}"
                ));
            }
        }
    }
    Ok(policies)
}

/// The name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !text.is_empty() && text.len() <= 63 && text.bytes().all(is_of_name) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected the name of a namespace, found {text:?}"))
    }
}

/// `availablePolicy,labelCheck,webhook`.
fn kinds(text: &str) -> Result<SkippedRules, String> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let kind = |name: &str| {
        RuleKind::named(name).ok_or_else(|| {
            let known = RuleKind::ALL.map(RuleKind::as_str);
            format!("expected one of {}, found {name:?}", known.join(", "))
        })
    };
    Ok(SkippedRules(names.map(kind).collect::<Result<_, _>>()?))
}

/// A time for which API servers can wait.
fn hold(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time > MAX_HOLD {
        let seconds = MAX_HOLD.as_secs();
        return Err(format!(
            "expected at most {seconds}s, because API servers wait no longer for a webhook; found {text:?}"
        ));
    }
    Ok(time)
}

/// `NAME.NAMESPACE`, and what may follow in a cluster.
fn service(text: &str) -> Result<ServiceName, String> {
    let mut parts = text.split('.').map(str::to_owned);
    match (parts.next(), parts.next()) {
        (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
            Ok(ServiceName { name, namespace })
        }
        _ => Err(format!("expected NAME.NAMESPACE.svc, found {text:?}")),
    }
}

/// An address as Go has it: `:8080` is every address of this machine.
fn bind(text: &str) -> Result<SocketAddr, String> {
    let expected = || format!("expected IP:PORT or :PORT, found {text:?}");
    match text.strip_prefix(':') {
        Some(port) => {
            let port: u16 = port.parse().map_err(|_| expected())?;
            Ok((Ipv4Addr::UNSPECIFIED, port).into())
        }
        None => text
            .replace("localhost:", "127.0.0.1:")
            .parse()
            .map_err(|_| expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_upstreams_and_one_of_them_means_something() {
        let on = FeatureGates { grace_delete: true };
        for (text, expected) in [
            ("", Ok(FeatureGates::default())),
            ("GraceDeleteWebhook=true", Ok(on)),
            ("AlibabaCloudSlb=false,GraceDeleteWebhook=true", Ok(on)),
            (
                "AllAlpha=true,GraceDeleteWebhook=false",
                Ok(FeatureGates::default()),
            ),
            (
                "GraceDeleteWebhook=maybe",
                Err("GraceDeleteWebhook: expected true or false"),
            ),
            (
                "AlibabaCloudSlb=true",
                Err("AlibabaCloudSlb is about something that is not here"),
            ),
            (
                "Grace=true",
                Err("expected GraceDeleteWebhook, found \"Grace\""),
            ),
        ] {
            match (gates(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn failure_policies_are_for_all_webhooks_or_for_those_of_a_group() {
        let default = FailurePolicies::default();
        for (text, expected) in [
            ("", Ok(default)),
            ("Fail", Ok(FailurePolicies::all(FailurePolicy::Fail))),
            (
                "evictions=Fail",
                Ok(FailurePolicies {
                    evictions: FailurePolicy::Fail,
                    ..default
                }),
            ),
            (
                "Ignore, pods=Fail",
                Ok(FailurePolicies {
                    pods: FailurePolicy::Fail,
                    ..FailurePolicies::all(FailurePolicy::Ignore)
                }),
            ),
            (
                "pods=Fail, Ignore",
                Ok(FailurePolicies {
                    pods: FailurePolicy::Fail,
                    ..FailurePolicies::all(FailurePolicy::Ignore)
                }),
            ),
            (
                "pods=Fail,pods=Ignore",
                Err("expected one policy for pods, found two"),
            ),
            (
                "rules=Fail,pods=Fail,rules=Fail",
                Err("expected one policy for rules, found two"),
            ),
            (
                "Fail,Ignore",
                Err("expected one policy for all webhooks, found two"),
            ),
            ("fail", Err("expected Fail or Ignore, found \"fail\"")),
            (
                "nodes=Fail",
                Err("expected one of pods, statuses, evictions, rules, found \"nodes\""),
            ),
        ] {
            assert_eq!(
                failure_policies(text),
                expected.map_err(str::to_owned),
                "{text}"
            );
        }
        assert_eq!(namespace("legacy-1").unwrap(), "legacy-1");
        assert!(namespace("Legacy").is_err());
    }

    #[test]
    fn addresses_are_those_of_go_and_services_those_of_clusters() {
        assert_eq!(bind(":8080").unwrap(), "0.0.0.0:8080".parse().unwrap());
        assert_eq!(bind("localhost:1").unwrap(), "127.0.0.1:1".parse().unwrap());
        assert!(bind("8080").is_err());
        let manager = service("kusionstack-controller-manager.kusionstack-system.svc").unwrap();
        assert_eq!(manager.name, "kusionstack-controller-manager");
        assert_eq!(manager.namespace, "kusionstack-system");
        assert!(service("manager").is_err());
    }

    #[test]
    fn a_delete_is_held_no_longer_than_api_servers_wait() {
        assert_eq!(hold("0"), Ok(Duration::ZERO));
        assert_eq!(hold("20s"), Ok(Duration::from_secs(20)));
        assert!(hold("21s").unwrap_err().starts_with("expected at most 20s"));
        assert!(hold("soon").is_err());
    }

    #[test]
    fn kinds_of_rules_are_skipped_by_their_names() {
        let skipped = kinds("labelCheck, webhook").unwrap();
        assert_eq!(skipped.0, [RuleKind::LabelCheck, RuleKind::Webhook].into());
        assert_eq!(kinds("").unwrap(), SkippedRules::default());
        assert!(kinds("labels").is_err());
    }
}
