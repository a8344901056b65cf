//! Objects as sentences: `pod("a").running().labelled("app", "x")`.

use serde_json::{Value, json};

/// The namespace of every object, unless the fixture sets another one.
const NAMESPACE: &str = "default";

/// A pod with one container.
pub fn pod(name: &str) -> Fixture {
    Fixture(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "base", "image": "example.test/image:1"}],
        },
    }))
}

/// A ConfigMap without data.
pub fn config_map(name: &str) -> Fixture {
    Fixture(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {},
    }))
}

/// An object that adjectives are added to.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Fixture(Value);

impl Fixture {
    /// The object.
    pub fn build(self) -> Value {
        self.0
    }

    /// The object as one of kube's types.
    ///
    /// # Panics
    /// Where it is none.
    #[expect(clippy::expect_used, reason = "a fixture is a test's own")]
    pub fn typed<K: serde::de::DeserializeOwned>(self) -> K {
        serde_json::from_value(self.0).expect("a fixture of this type")
    }

    /// In another namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.with("/metadata/namespace", json!(namespace))
    }

    /// With a label.
    pub fn labelled(self, key: &str, value: &str) -> Self {
        self.with(&format!("/metadata/labels/{}", escaped(key)), json!(value))
    }

    /// With an annotation.
    pub fn annotated(self, key: &str, value: &str) -> Self {
        let path = format!("/metadata/annotations/{}", escaped(key));
        self.with(&path, json!(value))
    }

    /// With this incarnation and version, as the API server would answer.
    pub fn stored(self, uid: &str, version: u64) -> Self {
        self.with("/metadata/uid", json!(uid))
            .with("/metadata/resourceVersion", json!(version.to_string()))
    }

    /// Being deleted.
    pub fn deleting(self) -> Self {
        let at = json!("2026-01-01T00:00:00Z");
        self.with("/metadata/deletionTimestamp", at)
            .with("/metadata/deletionGracePeriodSeconds", json!(30))
    }

    /// With a script for the scripted node.
    pub fn scripted(self, script: &str) -> Self {
        self.annotated(crate::scripted_node::ANNOTATION_SCRIPT, script)
    }

    /// With an entry in its `data`.
    pub fn holding(self, key: &str, value: &str) -> Self {
        self.with(&format!("/data/{}", escaped(key)), json!(value))
    }

    /// A pod that waits for its node or its image.
    pub fn pending(self) -> Self {
        self.with("/status/phase", json!("Pending"))
    }

    /// A pod whose container runs.
    pub fn running(self) -> Self {
        self.container(true, "Running", json!({"running": {}}))
    }

    /// A pod whose container ended with 0.
    pub fn succeeded(self) -> Self {
        let state = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        self.container(false, "Succeeded", state)
    }

    /// A pod whose container ended with this code.
    pub fn failed(self, exit_code: i32) -> Self {
        let state = json!({"terminated": {"exitCode": exit_code, "reason": "Error"}});
        self.container(false, "Failed", state)
    }

    /// With any value at a JSON pointer; missing objects on the way are made.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut at = &mut self.0;
        for part in pointer.split('/').skip(1) {
            at = &mut at[part.replace("~1", "/").replace("~0", "~")];
        }
        *at = value;
        self
    }

    fn container(self, is_ready: bool, phase: &str, state: Value) -> Self {
        let status = json!({"phase": phase, "containerStatuses": [
            {"name": "base", "ready": is_ready, "restartCount": 0, "state": state}
        ]});
        self.with("/status", status)
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjectives_add_up() {
        let object = pod("a")
            .labelled("x/y", "z")
            .stored("u", 7)
            .failed(3)
            .build();
        assert_eq!(object["metadata"]["labels"]["x/y"], "z");
        assert_eq!(object["metadata"]["resourceVersion"], "7");
        let code = object.pointer("/status/containerStatuses/0/state/terminated/exitCode");
        assert_eq!(code, Some(&json!(3)));
    }
}
