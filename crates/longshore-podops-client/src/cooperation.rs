//! The cooperation side: a finalizer says that traffic is routed to a pod.

use k8s_openapi::api::core::v1::Pod;
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, CONDITION_SERVICE_READY, PROTECTION_FINALIZER_PREFIX,
};
use md5::{Digest, Md5};
use serde_json::{Map, Value, json};

use crate::operation::Written;

/// What a controller that routes traffic has to do about a pod.
///
/// The order matters: a pod that holds the finalizer without traffic only waits, but one that has traffic without the
/// finalizer loses it unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficChange {
    /// Switch traffic on, then add the finalizer.
    On,
    /// Switch traffic off, then remove the finalizer.
    Off,
    /// The traffic is as it should be.
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

/// The annotation of a pod that says what it waits for before it serves says nothing that can be followed.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected a JSON object in the annotation {ANNOTATION_AVAILABLE_CONDITIONS}, found {found}"
)]
pub struct MalformedConditions {
    found: String,
}

/// As which an employer is expected by its pods: `<Kind>/<namespace>/<name>`.
pub fn holder(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// Whether a pod does not serve before it has the finalizer of this holder.
pub fn expects_finalizer(pod: &Pod, holder: &str) -> bool {
    let conditions = conditions(pod).unwrap_or_default();
    conditions[EXPECTED].get(holder).is_some()
}

/// Lets a pod not serve before it has this finalizer. Best while it is created, in a mutating webhook: a moment later it may
/// serve already.
///
/// # Errors
/// What the pod says about that already cannot be followed.
pub fn expect_finalizer(
    pod: &mut Pod,
    holder: &str,
    finalizer: &str,
) -> Result<Written, MalformedConditions> {
    let mut conditions = conditions(pod)?;
    if conditions[EXPECTED][holder] == finalizer {
        return Ok(Written::Unchanged);
    }
    if !conditions[EXPECTED].is_object() {
        conditions[EXPECTED] = json!({});
    }
    conditions[EXPECTED][holder] = json!(finalizer);
    set_conditions(pod, &conditions);
    Ok(Written::Changed)
}

/// Takes [`expect_finalizer`] back.
///
/// # Errors
/// What the pod says about that cannot be followed.
pub fn forget_finalizer(pod: &mut Pod, holder: &str) -> Result<Written, MalformedConditions> {
    let mut conditions = conditions(pod)?;
    let expected = conditions[EXPECTED].as_object_mut();
    if expected
        .and_then(|expected| expected.remove(holder))
        .is_none()
    {
        return Ok(Written::Unchanged);
    }
    set_conditions(pod, &conditions);
    Ok(Written::Changed)
}

/// The field of the annotation's object.
const EXPECTED: &str = "expectedFinalizers";

/// What the annotation says, with whatever others have written there.
fn conditions(pod: &Pod) -> Result<Value, MalformedConditions> {
    let annotations = pod.metadata.annotations.as_ref();
    let text = annotations.and_then(|it| it.get(ANNOTATION_AVAILABLE_CONDITIONS));
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Value::Object(Map::new()));
    };
    let conditions = serde_json::from_str(text).ok();
    let is_right = |conditions: &Value| {
        let expected = conditions.get(EXPECTED).unwrap_or(&Value::Null);
        conditions.is_object() && (expected.is_object() || expected.is_null())
    };
    conditions
        .filter(is_right)
        .ok_or_else(|| MalformedConditions {
            found: text.clone(),
        })
}

fn set_conditions(pod: &mut Pod, conditions: &Value) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let key = ANNOTATION_AVAILABLE_CONDITIONS.to_owned();
    annotations.insert(key, conditions.to_string());
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

    #[test]
    fn what_a_pod_waits_for_is_added_to_and_taken_from_what_others_wrote() {
        let mut pod = Pod::default();
        let said = |pod: &Pod| {
            let annotations = pod.metadata.annotations.clone().unwrap_or_default();
            annotations.get(ANNOTATION_AVAILABLE_CONDITIONS).cloned()
        };
        let a = holder("Service", "default", "a");
        assert_eq!(forget_finalizer(&mut pod, &a).unwrap(), Written::Unchanged);
        assert_eq!(said(&pod), None);
        assert_eq!(
            expect_finalizer(&mut pod, &a, "f").unwrap(),
            Written::Changed
        );
        assert_eq!(
            expect_finalizer(&mut pod, &a, "f").unwrap(),
            Written::Unchanged
        );
        let both = r#"{"expectedFinalizers":{"Service/default/a":"f","other":"g"},"new":1}"#;
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations.insert(ANNOTATION_AVAILABLE_CONDITIONS.to_owned(), both.to_owned());
        assert!(expects_finalizer(&pod, &a) && !expects_finalizer(&pod, "b"));
        assert_eq!(forget_finalizer(&mut pod, &a).unwrap(), Written::Changed);
        let left = r#"{"expectedFinalizers":{"other":"g"},"new":1}"#;
        assert_eq!(said(&pod).as_deref(), Some(left));
        for malformed in ["x", "[]", r#"{"expectedFinalizers":[]}"#] {
            let annotations = pod.metadata.annotations.as_mut().unwrap();
            let key = ANNOTATION_AVAILABLE_CONDITIONS.to_owned();
            annotations.insert(key, malformed.to_owned());
            assert!(expect_finalizer(&mut pod, &a, "f").is_err(), "{malformed}");
            assert_eq!(said(&pod).as_deref(), Some(malformed));
        }
    }
}
