//! Writes to the pod object: its status, and its final removal.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// The object does not exist any more, or another one has its name.
    Gone,
    Failed(String),
}

/// A request that takes longer is tried again: its answer is lost, and every write here can be repeated.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// As many bytes as Linux takes in the name of a file.
const LONGEST_FILE_NAME: usize = 255;

/// The address of a pod object.
#[derive(Clone, Debug)]
pub(crate) struct PodRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodRef {
    fn api(&self, client: Client) -> Api<Pod> {
        Api::namespaced(client, &self.namespace)
    }

    /// The name of the directory with the logs. Of a name that is too long for a directory, the beginning is there.
    pub(crate) fn log_directory(&self) -> String {
        let Self {
            namespace,
            name,
            uid,
        } = self;
        let room = LONGEST_FILE_NAME.saturating_sub(namespace.len() + uid.len() + 2);
        let name = &name[..name.floor_char_boundary(room)];
        format!("{namespace}_{name}_{uid}")
    }

    /// Merges the node's part into the status; the uid keeps it away from another pod of that name.
    pub(crate) async fn write_status(&self, client: Client, status: &Value) -> Outcome {
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
        let params = PatchParams::default();
        let api = self.api(client);
        outcome(api.patch_status(&self.name, &params, &patch)).await
    }

    /// Ends the object's graceful deletion.
    pub(crate) async fn delete(&self, client: Client) -> Outcome {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = self.api(client);
        outcome(api.delete(&self.name, &params)).await
    }
}

async fn outcome<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Outcome {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(_)) => Outcome::Done,
        Ok(Err(kube::Error::Api(status)))
            if status.code == 404 || is_other_uid(&status.message, status.code) =>
        {
            Outcome::Gone
        }
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(elapsed) => Outcome::Failed(elapsed.to_string()),
    }
}

/// Nothing else in these writes can conflict, but a conflict for another reason must be tried again.
fn is_other_uid(message: &str, code: u16) -> bool {
    matches!(code, 409 | 422) && message.to_ascii_lowercase().contains("uid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_have_a_directory_for_their_logs() {
        let uid = "0".repeat(36);
        let directory = |length: usize| {
            let this = PodRef {
                namespace: "n".repeat(63),
                name: "p".repeat(length),
                uid: uid.clone(),
            };
            this.log_directory()
        };
        assert_eq!(directory(154).len(), 255);
        assert_eq!(directory(253).len(), 255);
        assert!(directory(253).ends_with(&format!("p_{uid}")));
    }
}
