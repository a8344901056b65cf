//! What can be chosen.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_kit::Metrics;
use longshore_outbound::Boundaries;

use crate::{measures::PodMeasures, rule::RuleKind};

/// How long a pod is held after it has left all EndpointSlices, by default: proxies and ingresses see that within a
/// second or two, and short requests end.
pub const DRAIN_DELAY: Duration = Duration::from_secs(5);

/// The longest time for which a delete is held: API servers wait 30 s for a webhook, and no longer.
pub const MAX_HOLD: Duration = Duration::from_secs(20);

/// How pods are admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitConfig {
    /// Deletes and evictions of controlled pods become operations: upstream's feature gate `GraceDeleteWebhook`.
    /// Default: false.
    pub grace_delete: bool,
    /// A delete with `gracePeriodSeconds: 0` passes. Default: false, as upstream.
    pub force_delete_passes: bool,
    /// Retry time of the answer to an eviction, in seconds, where no budget holds the pod. Default: 5.
    pub eviction_retry_after_seconds: u32,
    /// How long a delete of a person is held until the pod may go, at most [`MAX_HOLD`]. Default: `None`, refused at once,
    /// as upstream.
    pub hold_deletes: Option<Duration>,
}

impl Default for AdmitConfig {
    fn default() -> Self {
        Self {
            grace_delete: false,
            force_delete_passes: false,
            eviction_retry_after_seconds: 5,
            hold_deletes: None,
        }
    }
}

/// What an API server does with a request where no replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Refuses the request.
    Fail,
    /// Goes on as without the webhook.
    Ignore,
}

impl FailurePolicy {
    /// The policy as the Kubernetes API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The failure policy of each group of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePolicies {
    /// Creates, updates and deletes of pods that take part. Default: `Fail`, as upstream.
    pub pods: FailurePolicy,
    /// Writes of their status. Default: `Ignore`: the controller makes up for those that no webhook saw.
    pub statuses: FailurePolicy,
    /// Evictions, of all pods. Default: `Ignore`: no rule can spare the pods that do not take part.
    pub evictions: FailurePolicy,
    /// Creates and updates of PodTransitionRules. Default: `Fail`, as upstream.
    pub rules: FailurePolicy,
}

impl FailurePolicies {
    /// The same policy for all groups.
    pub const fn all(policy: FailurePolicy) -> Self {
        Self {
            pods: policy,
            statuses: policy,
            evictions: policy,
            rules: policy,
        }
    }
}

impl Default for FailurePolicies {
    fn default() -> Self {
        Self {
            statuses: FailurePolicy::Ignore,
            evictions: FailurePolicy::Ignore,
            ..Self::all(FailurePolicy::Fail)
        }
    }
}

/// How the webhooks are registered with API servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// What they do where no replica answers.
    pub failure_policies: FailurePolicies,
    /// Namespaces whose pods and rules they never ask about, beside those of the cluster itself and our own. Default:
    /// none.
    pub excluded_namespaces: Vec<String>,
}

/// How the controllers run.
#[derive(Clone, Debug)]
pub struct PodOpsConfig {
    /// Only this namespace; all where it is `None`. Default: all.
    pub namespace: Option<String>,
    /// Rounds at the same time, of each controller. Default: 4, because deletes are answered by the same API server
    /// meanwhile: with more rounds, clients that delete wait twice as long, and pods go hardly sooner.
    pub concurrency: usize,
    /// Deletes become operations, as [`AdmitConfig::grace_delete`] says: all pods of a namespace that goes begin theirs at
    /// once. Default: false.
    pub grace_delete: bool,
    /// Rules of these kinds hold no pod: upstream's `SKIP_POD_TRANSITION_RULES`. Default: none.
    pub skipped_rules: BTreeSet<RuleKind>,
    /// How long operations wait for the finalizers that protect traffic, unless the pod says otherwise. Default: for
    /// ever.
    pub protection_deadline: Option<Duration>,
    /// Pods that Services select are protected while EndpointSlices have them as ready, and that long after, unless a
    /// Service says otherwise. `None`: Services protect no pods. Default: 5 s.
    pub drain_delay: Option<Duration>,
    /// Where the URLs of rules' webhooks may lead. Default: to no address of this machine, its link or a metadata service.
    pub boundaries: Arc<Boundaries>,
    /// Where rounds are counted. Default: metrics that are not exported.
    pub metrics: Metrics,
    /// Where pods are counted. Default: measures that are not exported.
    pub measures: PodMeasures,
}

impl Default for PodOpsConfig {
    fn default() -> Self {
        Self {
            namespace: None,
            concurrency: 4,
            grace_delete: false,
            skipped_rules: BTreeSet::new(),
            protection_deadline: None,
            drain_delay: Some(DRAIN_DELAY),
            boundaries: Arc::default(),
            metrics: Metrics::default(),
            measures: PodMeasures::default(),
        }
    }
}
