//! Writes to the pod object: its status, and its end.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// The object does not exist any more, or another one has its name.
    Gone,
    Failed(kube::Error),
}

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

    /// Merges the node's part into the status; the uid keeps it away from another pod of that name.
    pub(crate) async fn write_status(&self, client: Client, status: &Value) -> Outcome {
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
        let params = PatchParams::default();
        outcome(
            self.api(client)
                .patch_status(&self.name, &params, &patch)
                .await,
        )
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
        outcome(self.api(client).delete(&self.name, &params).await)
    }
}

fn outcome<T>(result: Result<T, kube::Error>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(kube::Error::Api(status))
            if status.code == 404 || is_other_uid(&status.message, status.code) =>
        {
            Outcome::Gone
        }
        Err(error) => Outcome::Failed(error),
    }
}

/// Nothing else in these writes can conflict, but a conflict for another reason must be tried again.
fn is_other_uid(message: &str, code: u16) -> bool {
    matches!(code, 409 | 422) && message.to_ascii_lowercase().contains("uid")
}
