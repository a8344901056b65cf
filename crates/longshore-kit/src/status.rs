//! Writes the status of custom resources: optimistic, and safe to repeat.

use std::fmt::Display;

use longshore_core::{ObjectRef, PatchKind};
use serde_json::{Map, Value, json};

use crate::{
    apply::{Applier, ApplyError},
    round_writes::{self, version_of},
};

impl Applier {
    /// Makes `status` the status of an object that was decided upon as `seen`. Where the same plan has written the object
    /// before, that is what it is written upon: a plan may hold several records, one after the other.
    ///
    /// *Flow*: a merge patch on `/status` with the version of `seen` as its precondition. After a conflict the live
    /// object decides: it has the wanted status already (an answer was lost): done; its status is still the one of
    /// `seen` (only spec or metadata changed): written again upon the live version; else another client wrote it.
    ///
    /// *Guarantees*: never overwrites a status that was not decided upon; writes nothing where nothing differs.
    ///
    /// # Errors
    /// [`ApplyError::Changed`] where the object or its status is not the one decided upon.
    pub async fn write_status(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        seen: &Value,
        status: &Value,
    ) -> Result<(), ApplyError> {
        let latest = version_of(seen).and_then(|version| round_writes::latest(target, version));
        let seen = latest.as_ref().unwrap_or(seen);
        let Some(change) = difference(&seen["status"], status) else {
            return Ok(());
        };
        match self.patch_status(key, target, seen, &change).await {
            Err(ApplyError::Api(error)) if error.is_precondition_failure() => {}
            other => return other,
        }
        let live = self.requests().get(target).await?;
        let live =
            live.filter(|live| live.pointer("/metadata/uid") == seen.pointer("/metadata/uid"));
        let Some(live) = live else {
            return Err(self.gone(key, target));
        };
        if live["status"] == *status {
            self.wrote(key, target, &live.into());
            return Ok(());
        }
        if live["status"] != seen["status"] {
            return Err(self.gone(key, target));
        }
        self.patch_status(key, target, &live, &change).await
    }

    async fn patch_status(
        &self,
        key: &impl Display,
        target: &ObjectRef,
        base: &Value,
        change: &Value,
    ) -> Result<(), ApplyError> {
        let metadata = &base["metadata"];
        let body = json!({
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": change,
        });
        let answer = self
            .requests()
            .patch(target, Some("status"), PatchKind::Merge, body);
        let answer = answer.await?;
        round_writes::wrote(target, version_of(base), &answer);
        self.wrote(key, target, &answer);
        Ok(())
    }
}

/// The merge patch (RFC 7386) from `old` to `new`; `None` where they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (old, new) if old == new => None,
        (Value::Object(old), Value::Object(new)) => {
            let removed = old.keys().filter(|key| !new.contains_key(*key));
            let mut change: Map<String, Value> =
                removed.map(|key| (key.clone(), Value::Null)).collect();
            for (key, value) in new {
                let change_of_field = difference(old.get(key).unwrap_or(&Value::Null), value);
                change.extend(change_of_field.map(|value| (key.clone(), value)));
            }
            Some(Value::Object(change))
        }
        (_, new) => Some(new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_a_merge_patch() {
        let table = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (Value::Null, json!({"a": 1}), Some(json!({"a": 1}))),
            (
                json!({"a": 1, "b": {"c": 1, "d": 2}}),
                json!({"b": {"c": 1, "d": 3}, "e": [1]}),
                Some(json!({"a": null, "b": {"d": 3}, "e": [1]})),
            ),
        ];
        for (old, new, change) in table {
            assert_eq!(difference(&old, &new), change, "{old} -> {new}");
        }
    }
}
