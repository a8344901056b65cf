//! The cooperation side: a finalizer says that traffic is routed to a pod.

use k8s_openapi::api::core::v1::Pod;
use longshore_api::podops::{CONDITION_SERVICE_READY, PROTECTION_FINALIZER_PREFIX};
use md5::{Digest, Md5};

/// What whoever routes traffic has to do about a pod.
///
/// The order matters: a pod that holds the finalizer without traffic only waits, but one that has traffic without the
/// finalizer loses it unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficChange {
    /// Switch traffic on, then add the finalizer.
    On,
    /// Switch traffic off, then remove the finalizer.
    Off,
    /// It is as it should be.
    Nothing,
}

/// The finalizer of an employer of pods (a Service, as a rule), as upstream's ResourceConsist names it.
pub fn lifecycle_finalizer(employer: &str) -> String {
    let digest = Md5::digest(employer.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let middle = hex.get(8..24).unwrap_or_default();
    format!("{PROTECTION_FINALIZER_PREFIX}/{middle}")
}

/// Whether traffic may be routed to a pod: Ready, as far as its node says, and not about to be touched.
///
/// Both conditions count, because the node may be dead and never take Ready back. So does its deletion: a pod can be
/// deleted around the protocol.
pub fn is_lifecycle_ready(pod: &Pod) -> bool {
    let status_of = |kind: &str| {
        let conditions = pod.status.iter().flat_map(|status| &status.conditions);
        let mut conditions = conditions.flatten();
        let condition = conditions.find(|condition| condition.type_ == kind)?;
        Some(condition.status == "True")
    };
    let is_open = status_of(CONDITION_SERVICE_READY).unwrap_or(true);
    let is_ready = status_of("Ready") == Some(true);
    pod.metadata.deletion_timestamp.is_none() && is_ready && is_open
}

/// What has to be done about a pod with regard to this finalizer. Both steps may be repeated.
pub fn wanted_change(pod: &Pod, finalizer: &str) -> TrafficChange {
    let mut finalizers = pod.metadata.finalizers.iter().flatten();
    let is_held = finalizers.any(|held| held == finalizer);
    match (is_lifecycle_ready(pod), is_held) {
        (true, false) => TrafficChange::On,
        (false, true) => TrafficChange::Off,
        (true, true) | (false, false) => TrafficChange::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{PodCondition, PodStatus},
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    fn pod(conditions: &[(&str, &str)], finalizers: &[&str]) -> Pod {
        let condition = |(kind, status): &(&str, &str)| PodCondition {
            type_: (*kind).to_owned(),
            status: (*status).to_owned(),
            ..PodCondition::default()
        };
        let mut pod = Pod {
            status: Some(PodStatus {
                conditions: Some(conditions.iter().map(condition).collect()),
                ..PodStatus::default()
            }),
            ..Pod::default()
        };
        pod.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
        pod
    }

    #[test]
    fn traffic_follows_the_conditions() {
        let (gate, f) = (CONDITION_SERVICE_READY, "f");
        let cases: [(&[(&str, &str)], TrafficChange); 5] = [
            (&[], TrafficChange::Off),
            (&[("Ready", "True")], TrafficChange::Nothing),
            (&[("Ready", "True"), (gate, "True")], TrafficChange::Nothing),
            (&[("Ready", "True"), (gate, "False")], TrafficChange::Off),
            (&[("Ready", "False"), (gate, "True")], TrafficChange::Off),
        ];
        for (conditions, expected) in cases {
            assert_eq!(
                wanted_change(&pod(conditions, &[f]), f),
                expected,
                "{conditions:?}"
            );
        }
        let ready: &[(&str, &str)] = &[("Ready", "True")];
        assert_eq!(wanted_change(&pod(ready, &[]), f), TrafficChange::On);
        assert_eq!(wanted_change(&pod(&[], &[]), f), TrafficChange::Nothing);
        let mut deleted = pod(ready, &[f]);
        deleted.metadata.deletion_timestamp = Some(Time(Default::default()));
        assert_eq!(wanted_change(&deleted, f), TrafficChange::Off);
    }

    #[test]
    fn an_employers_finalizer_is_the_middle_of_a_hash() {
        // md5("") = d41d8cd98f00b204e9800998ecf8427e
        let expected = "prot.podopslifecycle.kusionstack.io/8f00b204e9800998";
        assert_eq!(lifecycle_finalizer(""), expected);
    }
}
