//! What a TaskAction waits for, as far as its cluster says. Pure.

use longshore_api::flyte::{
    CONDITION_WAITING, LABEL_ATTEMPT, REASON_EXECUTING, REASON_PAUSED, REASON_REFUSED,
    REASON_STATUS_NOT_WRITTEN, REASON_STATUS_WRITTEN,
};
use longshore_k8s::metadata::is_deleting;
use serde_json::Value;

use super::view::Action;

/// What else the command has read of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// Pods of its attempts.
    pub(super) pods: Vec<Value>,
    /// Kubernetes Events about the action, in any order.
    pub(super) events: Vec<Value>,
}

/// What the action waits for; `None` where the action has ended and stays, or runs.
pub(super) fn why(object: &Value, action: &Action, around: &Around) -> Option<String> {
    if action.is_over && !action.is_deleting {
        return None;
    }
    if let Some(said) = held(object) {
        return Some(said.to_owned());
    }
    if action.is_deleting {
        return Some(its_end(object, around));
    }
    // The status is an old one, then.
    if action.phase.is_some()
        && let Some(refused) = unwritten(&around.events)
    {
        return Some(format!("the API server: {refused}"));
    }
    match action.phase.as_deref() {
        None => {
            // An executor that cannot write its status says why in an Event.
            return Some(match last_warning(&around.events) {
                Some(why) => format!("its first status: {why}"),
                None => {
                    "an executor: none has taken it up yet (longshore controller --enable tasks)"
                        .to_owned()
                }
            });
        }
        Some(REASON_EXECUTING) => return None,
        Some(REASON_PAUSED) => return Some("a person, who has to answer it".to_owned()),
        Some(_) => {}
    }
    if object["status"]["pluginPhase"] == "PhaseWaitingForCache" {
        let said = message(action, "another action is about to fill the same entry");
        return Some(format!("the cache: {said}"));
    }
    if let Some(pod) = current(action, around) {
        return Some(of_pod(pod));
    }
    if let Some(refused) = last_warning(&around.events) {
        return Some(format!("its resource, which was not made: {refused}"));
    }
    if !around.pods.is_empty() {
        return Some(format!("an earlier attempt to end{}", pods_left(around)));
    }
    Some(message(action, "its resource"))
}

/// What an action waits for that is being deleted.
fn its_end(object: &Value, around: &Around) -> String {
    let refused = newest(&around.events, &[REASON_REFUSED]);
    let refused = refused.map(|event| format!(" ({})", text(&event["note"])));
    let refused = refused.unwrap_or_default();
    let held_by = finalizers(object);
    if around.pods.is_empty() && !held_by.is_empty() {
        return format!("whoever is to remove its finalizers: {held_by}{refused}");
    }
    format!("the end of what it made{}{refused}", pods_left(around))
}

/// What its executor says of who holds it.
pub(super) fn held(object: &Value) -> Option<&str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let held = conditions
        .iter()
        .find(|it| it["type"] == CONDITION_WAITING && it["status"] == "True")?;
    held["message"].as_str()
}

fn message(action: &Action, otherwise: &str) -> String {
    let message = action.message.as_deref().map(str::trim);
    let message = message.filter(|message| !message.is_empty());
    message.unwrap_or(otherwise).to_owned()
}

/// The pod of the attempt that is under way.
fn current<'a>(action: &Action, around: &'a Around) -> Option<&'a Value> {
    let attempt = action.attempt.to_string();
    let mut pods = around.pods.iter();
    pods.find(|pod| pod["metadata"]["labels"][LABEL_ATTEMPT] == attempt)
}

fn of_pod(pod: &Value) -> String {
    let name = text(&pod["metadata"]["name"]);
    if is_deleting(pod) {
        return match finalizers(pod) {
            none if none.is_empty() => format!("pod {name} to be gone"),
            names => format!("pod {name} to be gone, which its finalizers hold: {names}"),
        };
    }
    let conditions = pod["status"]["conditions"].as_array();
    let scheduled = conditions.into_iter().flatten();
    let mut unscheduled = scheduled
        .filter(|it| it["type"] == "PodScheduled" && it["status"] == "False")
        .map(|it| format!("a node for pod {name}: {}", text(&it["message"])));
    if let Some(why) = unscheduled.next() {
        return why;
    }
    for kind in ["initContainerStatuses", "containerStatuses"] {
        let statuses = pod["status"][kind].as_array();
        for status in statuses.into_iter().flatten() {
            let waiting = &status["state"]["waiting"];
            let reason = text(&waiting["reason"]);
            if reason.is_empty() || matches!(reason, "PodInitializing" | "ContainerCreating") {
                continue;
            }
            let container = text(&status["name"]);
            let message = text(&waiting["message"]);
            let said = format!("container {container} of pod {name}: {reason}: {message}");
            return said.trim_end_matches(": ").to_owned();
        }
    }
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => format!("pod {name} to start on node {node}"),
        None => format!("a node for pod {name}"),
    }
}

/// The names of the pods that are left, with a colon in front.
fn pods_left(around: &Around) -> String {
    let names: Vec<&str> = around
        .pods
        .iter()
        .map(|pod| text(&pod["metadata"]["name"]))
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(": pod {}", names.join(", "))
    }
}

fn finalizers(object: &Value) -> String {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let finalizers: Vec<&str> = finalizers.into_iter().flatten().map(text).collect();
    finalizers.join(", ")
}

/// Why the API server does not take the status, as far as Events say.
fn unwritten(events: &[Value]) -> Option<&str> {
    let newest = newest(events, &[REASON_STATUS_NOT_WRITTEN, REASON_STATUS_WRITTEN])?;
    (newest["reason"] == REASON_STATUS_NOT_WRITTEN).then(|| text(&newest["note"]))
}

/// The newest Event with one of these reasons.
fn newest<'a>(events: &'a [Value], reasons: &[&str]) -> Option<&'a Value> {
    let of_reason = |event: &&Value| reasons.contains(&text(&event["reason"]));
    events.iter().filter(of_reason).max_by_key(|it| time(it))
}

/// The text of the newest Event of type Warning.
fn last_warning(events: &[Value]) -> Option<&str> {
    let warnings = events.iter().filter(|event| event["type"] == "Warning");
    let newest = warnings.max_by_key(|it| time(it));
    newest.map(|event| text(&event["note"]))
}

/// When what an Event says happened last.
fn time(event: &Value) -> &str {
    let last = &event["series"]["lastObservedTime"];
    text(if last.is_null() {
        &event["eventTime"]
    } else {
        last
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn action(reason: &str, plugin_phase: &str, deleting: bool) -> Value {
        let mut object = json!({
            "metadata": {"name": "r-a0", "namespace": "flyte"},
            "spec": {"runName": "r", "actionName": "a0"},
            "status": {
                "attempts": 2, "pluginPhase": plugin_phase,
                "conditions": [{"type": "Progressing", "status": "True", "reason": reason, "message": "said",
                                "lastTransitionTime": "2026-11-22T00:00:00Z"}],
            },
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:01Z".into();
        }
        object
    }

    fn pod(attempt: &str, rest: Value) -> Value {
        let mut pod = json!({"metadata": {"name": format!("r-a0-{attempt}"), "labels": {"attempt": attempt}}});
        for (key, value) in rest.as_object().unwrap() {
            pod[key] = value.clone();
        }
        pod
    }

    fn asked(object: &Value, pods: Vec<Value>, events: Vec<Value>) -> String {
        let around = Around { pods, events };
        why(object, &Action::of(object), &around).unwrap_or_default()
    }

    fn queued() -> Value {
        action("Queued", "PhaseQueued", false)
    }

    fn unscheduled() -> Value {
        let message = "0/3 nodes are available";
        let scheduled = json!({"type": "PodScheduled", "status": "False", "message": message});
        json!({"status": {"conditions": [scheduled]}})
    }

    #[test]
    fn an_action_without_a_status_says_what_was_last_complained_of() {
        let mut object = queued();
        object["status"] = json!({});
        let nobody = asked(&object, vec![], vec![]);
        assert!(
            nobody.starts_with("an executor: none has taken it up"),
            "{nobody}"
        );
        let event =
            json!({"type": "Warning", "note": "no room", "eventTime": "2026-11-22T00:00:00Z"});
        assert_eq!(
            asked(&object, vec![], vec![event]),
            "its first status: no room"
        );
    }

    #[test]
    fn whoever_holds_an_action_is_named_whatever_else_it_waits_for() {
        let said = "no answer from the store of s3://b/in since 2026-11-22T00:00:05Z";
        let held = json!({"type": "Waiting", "status": "True", "message": said});
        for mut object in [
            queued(),
            action("Executing", "PhaseRunning", false),
            action("Executing", "PhaseRunning", true),
            json!({"metadata": {"name": "n"}, "status": {"conditions": []}}),
        ] {
            let conditions = object["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(held.clone());
            assert_eq!(asked(&object, vec![pod("2", unscheduled())], vec![]), said);
        }
    }

    #[test]
    fn a_pod_that_does_not_start_says_why() {
        let waiting = |waiting: Value| {
            let status = json!({"name": "main", "state": {"waiting": waiting}});
            json!({"spec": {"nodeName": "n1"}, "status": {"containerStatuses": [status]}})
        };
        let no_image = waiting(json!({"reason": "ImagePullBackOff", "message": "no such image"}));
        let creating = waiting(json!({"reason": "ContainerCreating"}));
        for (expected, rest) in [
            (
                "a node for pod r-a0-2: 0/3 nodes are available",
                unscheduled(),
            ),
            (
                "container main of pod r-a0-2: ImagePullBackOff: no such image",
                no_image,
            ),
            ("pod r-a0-2 to start on node n1", creating),
            ("a node for pod r-a0-2", json!({})),
        ] {
            let pods = vec![pod("1", json!({})), pod("2", rest)];
            assert_eq!(asked(&queued(), pods, vec![]), expected);
        }
    }

    #[test]
    fn the_first_decisive_fact_is_the_reason() {
        let quota = vec![
            json!({"type": "Normal", "eventTime": "2026-11-22T00:00:09Z", "note": "fine"}),
            json!({"type": "Warning", "eventTime": "2026-11-22T00:00:02Z", "note": "exceeded quota"}),
            json!({"type": "Warning", "eventTime": "2026-11-22T00:00:01Z", "note": "older"}),
        ];
        let first = || vec![pod("1", json!({}))];
        let second = || vec![pod("2", unscheduled())];
        let running = action("Executing", "PhaseRunning", false);
        let deleted = action("Executing", "PhaseRunning", true);
        let paused = action("Paused", "", false);
        let cached = action("Queued", "PhaseWaitingForCache", false);
        let of_pod = "a node for pod r-a0-2: 0/3 nodes are available";
        let refused = "its resource, which was not made: exceeded quota";
        for (expected, object, pods, events) in [
            ("", running, second(), vec![]),
            ("a person, who has to answer it", paused, vec![], vec![]),
            ("the cache: said", cached, vec![], vec![]),
            (
                "the end of what it made: pod r-a0-2",
                deleted,
                second(),
                vec![],
            ),
            (of_pod, queued(), second(), quota.clone()),
            (refused, queued(), first(), quota),
            (
                "an earlier attempt to end: pod r-a0-1",
                queued(),
                first(),
                vec![],
            ),
            ("said", queued(), vec![], vec![]),
        ] {
            assert_eq!(asked(&object, pods, events), expected);
        }
        let new = json!({"metadata": {"name": "n"}});
        assert!(asked(&new, vec![], vec![]).starts_with("an executor"));
    }

    #[test]
    fn a_status_that_is_not_written_is_told_of_until_one_is() {
        let event = |reason: &str, second: u32| {
            let at = format!("2026-11-22T00:00:{second:02}.000000Z");
            json!({"type": "Warning", "reason": reason, "note": "denied", "eventTime": at})
        };
        let not_written = || event("StatusNotWritten", 5);
        let running = || action("Executing", "PhaseRunning", false);
        for (events, expected) in [
            (vec![not_written()], "the API server: denied"),
            (vec![event("StatusWritten", 6), not_written()], ""),
            (
                vec![event("StatusWritten", 4), not_written()],
                "the API server: denied",
            ),
            (vec![event("Refused", 9)], ""),
        ] {
            assert_eq!(asked(&running(), vec![], events), expected);
        }
        let queued = asked(&queued(), vec![pod("2", json!({}))], vec![not_written()]);
        assert_eq!(queued, "the API server: denied");
    }

    #[test]
    fn what_holds_an_object_that_is_being_deleted_is_named() {
        let mut ended = action("Completed", "PhaseSuccess", true);
        let succeeded = json!({"type": "Succeeded", "status": "True", "reason": "Completed", "message": "",
                               "lastTransitionTime": "2026-11-22T00:00:00Z"});
        let conditions = ended["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(succeeded);
        ended["metadata"]["finalizers"] = json!(["example.test/a", "example.test/b"]);
        let refused = json!({"type": "Warning", "reason": "Refused", "note": "denied"});
        let held = "whoever is to remove its finalizers: example.test/a, example.test/b";
        assert_eq!(asked(&ended, vec![], vec![]), held);
        assert_eq!(
            asked(&ended, vec![], vec![refused]),
            format!("{held} (denied)")
        );
        let mut deleted = pod("2", json!({}));
        deleted["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:01Z".into();
        let going = asked(&queued(), vec![deleted.clone()], vec![]);
        assert_eq!(going, "pod r-a0-2 to be gone");
        deleted["metadata"]["finalizers"] = json!(["example.test/a"]);
        let held = asked(&queued(), vec![deleted], vec![]);
        assert_eq!(
            held,
            "pod r-a0-2 to be gone, which its finalizers hold: example.test/a"
        );
    }
}
