//! The conditions of a deployment. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controllers::workloads::status::time;

/// Conditions in the order in which they last changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conditions(Vec<Value>);

/// Status, reason and message of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Word {
    pub(super) fn new(status: &'static str, reason: &'static str, message: String) -> Word {
        Word {
            status,
            reason,
            message,
        }
    }
}

impl Conditions {
    pub(super) fn of(conditions: &Value) -> Conditions {
        Conditions(conditions.as_array().cloned().unwrap_or_default())
    }

    pub(super) fn get(&self, kind: &str) -> Option<&Value> {
        self.0.iter().find(|it| it["type"] == kind)
    }

    pub(super) fn reason(&self, kind: &str) -> &str {
        let reason = self.get(kind).and_then(|it| it["reason"].as_str());
        reason.unwrap_or("")
    }

    pub(super) fn remove(&mut self, kind: &str) {
        self.0.retain(|it| it["type"] != kind);
    }

    /// Copies a condition of a ReplicaSet, with its times. A present condition with the same status
    /// and reason stays as it is.
    pub(super) fn take(&mut self, condition: Value) {
        let kind = condition["type"].as_str().unwrap_or("").to_owned();
        let is_same = self.get(&kind).is_some_and(|it| {
            it["status"] == condition["status"] && it["reason"] == condition["reason"]
        });
        if !is_same {
            self.remove(&kind);
            self.0.push(condition);
        }
    }

    /// Sets a condition, unless it has this status and reason already.
    pub(super) fn say(&mut self, kind: &str, word: Word, now: Timestamp) {
        let is_said = self
            .get(kind)
            .is_some_and(|it| it["status"] == word.status && it["reason"] == word.reason);
        if !is_said {
            self.say_again(kind, word, now);
        }
    }

    /// Sets a condition anew: its update time is now, its transition time changes only with the status.
    pub(super) fn say_again(&mut self, kind: &str, word: Word, now: Timestamp) {
        let old = self.get(kind).filter(|it| it["status"] == word.status);
        let since = old.map_or_else(|| time(now).into(), |it| it["lastTransitionTime"].clone());
        self.remove(kind);
        self.0.push(json!({
            "type": kind, "status": word.status, "reason": word.reason, "message": word.message,
            "lastUpdateTime": time(now), "lastTransitionTime": since,
        }));
    }

    /// As the status has them; `null` for none.
    pub(super) fn into_value(self) -> Value {
        if self.0.is_empty() {
            Value::Null
        } else {
            self.0.into()
        }
    }
}
