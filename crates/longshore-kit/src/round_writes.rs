//! Whose round it is that writes, and what it has written so far.
//!
//! A controller's `persist` writes through an applier that other controllers may share, and knows nothing of the round
//! that it is called from. What it writes belongs to that round all the same: to its controller, and to the plan whose
//! next write comes upon it. So a round carries this along as a value of its task.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use longshore_core::ObjectRef;
use serde_json::Value;

use crate::requests::Answer;

tokio::task_local! {
    static ROUND: RoundWrites;
}

/// The writes of one round.
#[derive(Debug)]
struct RoundWrites {
    controller: &'static str,
    written: Mutex<Vec<Written>>,
}

/// A write upon a version of an object.
#[derive(Debug)]
struct Written {
    target: ObjectRef,
    /// The version that the write had as its precondition.
    upon: String,
    /// The object that it made of it.
    answer: Answer,
}

/// Does the work of a round of this controller.
pub(crate) async fn within<T>(controller: &'static str, work: impl Future<Output = T>) -> T {
    let round = RoundWrites {
        controller,
        written: Mutex::default(),
    };
    ROUND.scope(round, work).await
}

/// The controller whose round this is; empty outside of rounds.
pub(crate) fn controller() -> &'static str {
    ROUND.try_with(|round| round.controller).unwrap_or_default()
}

/// A write with the version `upon` as its precondition was answered so.
pub(crate) fn wrote(target: &ObjectRef, upon: Option<&str>, answer: &Answer) {
    let Some(upon) = upon else {
        return;
    };
    // Outside of a round nothing comes upon it.
    let _ = ROUND.try_with(|round| {
        round.written().push(Written {
            target: target.clone(),
            upon: upon.to_owned(),
            answer: answer.clone(),
        });
    });
}

/// The object of which `version` was decided upon, as the earlier writes of this round have left it; `None` where they
/// did not write it.
pub(crate) fn latest(target: &ObjectRef, version: &str) -> Option<Value> {
    let latest = ROUND.try_with(|round| {
        let written = round.written();
        let mut latest: Option<Value> = None;
        for write in written.iter().filter(|it| is_same(&it.target, target)) {
            let current = latest.as_ref().map_or(Some(version), version_of);
            if current == Some(&write.upon) {
                latest = write.answer.object_of(target).ok();
            }
        }
        latest
    });
    latest.ok().flatten()
}

/// The `resourceVersion` of an object.
pub(crate) fn version_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}

fn is_same(one: &ObjectRef, other: &ObjectRef) -> bool {
    one.resource == other.resource && one.namespace == other.namespace && one.name == other.name
}

impl RoundWrites {
    fn written(&self) -> MutexGuard<'_, Vec<Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::Resource;
    use serde_json::json;

    use super::*;

    fn target(name: &str) -> ObjectRef {
        ObjectRef {
            resource: Resource::POD,
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: None,
        }
    }

    fn answer(version: &str) -> Answer {
        json!({"metadata": {"resourceVersion": version}}).into()
    }

    fn latest_version(name: &str, version: &str) -> Option<String> {
        let latest = latest(&target(name), version)?;
        version_of(&latest).map(str::to_owned)
    }

    #[tokio::test]
    async fn writes_of_one_round_come_upon_each_other() {
        within("c", async {
            assert_eq!(controller(), "c");
            wrote(&target("a"), Some("1"), &answer("4"));
            wrote(&target("a"), Some("4"), &answer("7"));
            wrote(&target("b"), Some("1"), &answer("5"));
            wrote(&target("b"), None, &answer("9"));
            assert_eq!(latest_version("a", "1").as_deref(), Some("7"));
            assert_eq!(latest_version("a", "4").as_deref(), Some("7"));
            assert_eq!(latest_version("b", "1").as_deref(), Some("5"));
            assert_eq!(latest_version("a", "2"), None, "another client's version");
            assert_eq!(latest_version("c", "1"), None);
        })
        .await;
        wrote(&target("a"), Some("1"), &answer("4"));
        assert_eq!(latest_version("a", "1"), None, "of no round");
        assert_eq!(controller(), "");
    }
}
