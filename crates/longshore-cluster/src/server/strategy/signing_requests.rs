//! Requests for certificates: the server says who asks, and to approve and to sign are rights of their own.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::server::{auth::UserInfo, error::Cause, meta};

/// Conditions that stay once they are there.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
/// The conditions that only `/approval` writes.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
const CONDITIONS: &str = "status.conditions";

/// Says who asks, whatever the object says.
pub(crate) fn name_requester(request: &mut Value, user: &UserInfo) {
    let user = user.to_json();
    let spec = meta::member(request, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        meta::keep(spec, &user, key);
    }
}

/// A request never changes.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    meta::keep(meta::members(new), old, "spec");
}

/// Completes a status that was written. A decision is not written there: it stays as it was.
pub(super) fn prepare_status(new: &mut Value, old: &Value, now: Timestamp) {
    for kind in DECISIONS {
        let before: Vec<Value> = of_kind(old, kind).cloned().collect();
        if before.len() == of_kind(new, kind).count() {
            let now = conditions_mut(new).filter(|it| it["type"] == kind);
            now.zip(before).for_each(|(new, old)| *new = old);
        }
    }
    set_times(new, old, now);
}

/// Completes a decision: only the conditions are written.
pub(super) fn prepare_approval(new: &mut Value, old: &Value, now: Timestamp) {
    set_times(new, old, now);
    let conditions = new.pointer("/status/conditions").cloned();
    let mut status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    let members: &mut Map<String, Value> = meta::members(&mut status);
    match conditions {
        Some(conditions) => members.insert("conditions".into(), conditions),
        None => members.remove("conditions"),
    };
    new["status"] = status;
}

fn conditions(request: &Value) -> impl Iterator<Item = &Value> {
    let conditions = request.pointer("/status/conditions");
    conditions.and_then(Value::as_array).into_iter().flatten()
}

fn conditions_mut(request: &mut Value) -> impl Iterator<Item = &mut Value> {
    let conditions = request.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    conditions.into_iter().flatten()
}

fn of_kind<'a>(request: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    conditions(request).filter(move |it| it["type"] == kind)
}

/// Adds the times that conditions lack.
fn set_times(new: &mut Value, old: &Value, now: Timestamp) {
    let now = meta::seconds(now);
    for condition in conditions_mut(new).filter(|it| it.is_object()) {
        let is_same =
            |it: &&Value| it["type"] == condition["type"] && it["status"] == condition["status"];
        let changed_at = conditions(old).find(is_same);
        let changed_at = changed_at.and_then(|it| it["lastTransitionTime"].as_str());
        let changed_at = changed_at.unwrap_or(&now).to_owned();
        let members = meta::members(condition);
        for (key, time) in [
            ("lastUpdateTime", &now),
            ("lastTransitionTime", &changed_at),
        ] {
            if members.get(key).is_none_or(Value::is_null) {
                members.insert(key.into(), time.as_str().into());
            }
        }
    }
}

/// What is wrong with a status.
pub(super) fn status_violations(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = condition_violations(new);
    causes.extend(removed(new, old));
    for kind in DECISIONS {
        if of_kind(new, kind).count() > of_kind(old, kind).count() {
            let why = format!("updates may not add a condition of type {kind:?}");
            causes.push(Cause::forbidden(CONDITIONS, &why));
        }
    }
    let (before, after) = (&old["status"]["certificate"], &new["status"]["certificate"]);
    if !before.is_null() && before != after {
        let why = "updates may not modify existing certificate content";
        causes.push(Cause::forbidden("status.certificate", why));
    }
    causes
}

/// What is wrong with a decision.
pub(super) fn approval_violations(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = condition_violations(new);
    causes.extend(removed(new, old));
    causes
}

fn removed(new: &Value, old: &Value) -> Vec<Cause> {
    let is_removed = |kind: &&str| of_kind(new, kind).count() < of_kind(old, kind).count();
    let removed = LASTING.into_iter().filter(is_removed);
    let cause = |kind: &str| {
        let why = format!("updates may not remove a condition of type {kind:?}");
        Cause::forbidden(CONDITIONS, &why)
    };
    removed.map(cause).collect()
}

fn condition_violations(request: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions(request).enumerate() {
        let field = |name: &str| format!("{CONDITIONS}[{index}].{name}");
        let kind = meta::text(condition, "/type");
        if kind.is_empty() {
            causes.push(Cause::required(&field("type"), ""));
        }
        let known: &[&str] = match LASTING.contains(&kind) {
            true => &["True"],
            false => &["False", "True", "Unknown"],
        };
        match meta::text(condition, "/status") {
            "" => causes.push(Cause::required(&field("status"), "")),
            status if known.contains(&status) => {}
            status => causes.push(Cause::unsupported(&field("status"), status, known)),
        }
        let others = DECISIONS.into_iter().filter(|other| *other != kind);
        if DECISIONS.contains(&kind) && others.clone().any(|other| seen.contains(other)) {
            let why = "Approved and Denied conditions are mutually exclusive";
            causes.push(Cause::invalid(CONDITIONS, &kind.into(), why));
        }
        if !seen.insert(kind) {
            causes.push(Cause::duplicate(&field("type"), kind));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn request(status: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"username": "jane"}, "status": status})
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "r"})
    }

    #[test]
    fn the_server_says_who_asks() {
        let mut asked = json!({"spec": {"username": "root", "groups": ["system:masters"], "uid": "0", "signerName": "a/b"}});
        let user = UserInfo {
            username: "jane".into(),
            groups: vec!["g".into()],
            ..UserInfo::default()
        };
        name_requester(&mut asked, &user);
        let expected = json!({"username": "jane", "groups": ["g"], "signerName": "a/b"});
        assert_eq!(asked["spec"], expected);
    }

    #[test]
    fn a_decision_writes_conditions_alone_and_gets_its_times() {
        let old = request(json!({"certificate": "old"}));
        let mut new = request(json!({"certificate": "new", "conditions": [condition("Approved")]}));
        prepare_approval(&mut new, &old, now());
        assert_eq!(new["status"]["certificate"], "old");
        let times = ["lastUpdateTime", "lastTransitionTime"]
            .map(|key| &new["status"]["conditions"][0][key]);
        assert_eq!(times, ["2026-01-01T00:00:00Z"; 2]);
        assert!(approval_violations(&new, &old).is_empty());
    }

    #[test]
    fn a_status_keeps_the_decision_and_the_time_of_its_conditions() {
        let mut approved = condition("Approved");
        approved["lastTransitionTime"] = "2025-01-01T00:00:00Z".into();
        let old = request(json!({"conditions": [approved]}));
        let mut changed = condition("Approved");
        changed["reason"] = "another".into();
        let mut new =
            request(json!({"certificate": "c", "conditions": [changed, condition("Other")]}));
        prepare_status(&mut new, &old, now());
        let found = &new["status"]["conditions"];
        assert_eq!(found[0]["reason"], "r");
        assert_eq!(found[0]["lastTransitionTime"], "2025-01-01T00:00:00Z");
        assert_eq!(found[1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(status_violations(&new, &old).is_empty());
    }

    #[test]
    fn what_may_not_be_written_is_refused() {
        let approved = json!({"conditions": [condition("Approved")]});
        let both = json!({"conditions": [condition("Approved"), condition("Denied")]});
        let twice = json!({"conditions": [condition("A"), condition("A")]});
        let bare = json!({"conditions": [{}]});
        let half = json!({"conditions": [{"type": "Denied", "status": "False"}]});
        let none = json!({});
        for (old, new, of_status, of_approval) in [
            (&none, &approved, 1, 0),
            (&approved, &none, 1, 1),
            (&none, &both, 3, 1),
            (&none, &twice, 1, 1),
            (&none, &bare, 2, 2),
            (&none, &half, 2, 1),
            (
                &json!({"certificate": "a"}),
                &json!({"certificate": "b"}),
                1,
                0,
            ),
        ] {
            let (old, new) = (request(old.clone()), request(new.clone()));
            let found = status_violations(&new, &old);
            assert_eq!(found.len(), of_status, "{new}: {found:?}");
            let found = approval_violations(&new, &old);
            assert_eq!(found.len(), of_approval, "{new}: {found:?}");
        }
    }
}
