//! Why a pod does not start, in Kubernetes' words.

use std::io;

use serde_json::{Value, json};

/// `state.waiting.reason`: the container can never be made as it is written, or not now.
pub(crate) const REASON_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// `state.waiting.reason`: the image map has no entry for the image.
const REASON_IMAGE: &str = "ErrImagePull";
/// `state.waiting.reason`: the same, before every other try.
const REASON_IMAGE_AGAIN: &str = "ImagePullBackOff";
/// `state.waiting.reason`: on the way, or held up by something outside of the container.
pub(crate) const REASON_CREATING: &str = "ContainerCreating";

/// `state.waiting.reason`: the machine cannot make the container, and will not before an administrator helps.
pub(crate) const REASON_CREATE_ERROR: &str = "CreateContainerError";

/// A pod cannot start now. The node tries again, in case what it lacks turns up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The container to blame; `None` = the whole pod.
    pub(crate) container: Option<String>,
    /// The waiting reason.
    pub(crate) reason: &'static str,
    /// The Event's reason.
    pub(crate) event: &'static str,
    /// What is missing and what to do.
    pub(crate) message: String,
}

impl Refusal {
    /// The container's specification requests something that does not exist or is wrong.
    pub(crate) fn config(container: &str, message: impl Into<String>) -> Self {
        let container = Some(container.to_owned());
        Self {
            container,
            reason: REASON_CONFIG_ERROR,
            event: "Failed",
            message: message.into(),
        }
    }

    /// The pod's specification requests something that this node does not support.
    pub(crate) fn pod(message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason: REASON_CONFIG_ERROR,
            event: "Failed",
            message: message.into(),
        }
    }

    /// A volume's content is not there (yet).
    pub(crate) fn volume(message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason: REASON_CREATING,
            event: "FailedMount",
            message: message.into(),
        }
    }

    /// The image has no meaning here.
    pub(crate) fn image(container: &str, message: impl Into<String>) -> Self {
        let container = Some(container.to_owned());
        Self {
            container,
            reason: REASON_IMAGE,
            event: "Failed",
            message: message.into(),
        }
    }

    /// `state.waiting` after this many tries. Kubelets give the two reasons for a missing image in turns: some clients judge
    /// by the first one, others by how long the second one lasts.
    pub(crate) fn waiting(&self, n_failures: u32) -> Value {
        if self.reason == REASON_IMAGE && n_failures.is_multiple_of(2) {
            let message = format!("Back-off pulling image: {REASON_IMAGE}: {}", self.message);
            return json!({"reason": REASON_IMAGE_AGAIN, "message": message});
        }
        json!({"reason": self.reason, "message": self.message})
    }

    /// The machine or the API server did not play along.
    pub(crate) fn machine(message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason: REASON_CREATING,
            event: "FailedCreatePodSandBox",
            message: message.into(),
        }
    }

    /// The machine could not do something. A full disk is no transient failure, so the status of the pod names it.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        let kind = error.kind();
        if !matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ) {
            return Self::machine(format!("cannot {what}: {error}"));
        }
        Self {
            reason: REASON_CREATE_ERROR,
            ..Self::machine(format!(
                "cannot {what}: {error}: free some space in the node's data directory"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_tried_again_waits_as_kubelets_say() {
        let image = Refusal::image("main", "no entry");
        let wrong = Refusal::config("main", "no key");
        let table = [
            (&image, 1, "ErrImagePull", "no entry"),
            (
                &image,
                2,
                "ImagePullBackOff",
                "Back-off pulling image: ErrImagePull: no entry",
            ),
            (&image, 3, "ErrImagePull", "no entry"),
            (&wrong, 2, "CreateContainerConfigError", "no key"),
        ];
        for (refusal, n_failures, reason, message) in table {
            let expected = json!({"reason": reason, "message": message});
            assert_eq!(refusal.waiting(n_failures), expected);
        }
    }
}
