//! Why a pod does not start, in Kubernetes' words.

use std::{io, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

/// `state.waiting.reason`: the container can never be made as it is written, or not now.
pub(crate) const REASON_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// `state.waiting.reason`: the image map has no entry for the image.
const REASON_IMAGE: &str = "ErrImagePull";
/// `state.waiting.reason`: the same, soon after the failure and until the next try.
const REASON_IMAGE_AGAIN: &str = "ImagePullBackOff";
/// How long a status says what is wrong with an image before it says that the node backs off.
const IMAGE_ERROR_SHOWN: Duration = Duration::from_secs(1);
/// `state.waiting.reason`: on the way, or held up by something outside of the container.
pub(crate) const REASON_CREATING: &str = "ContainerCreating";

/// `state.waiting.reason`: the machine cannot make the container, and will not before an administrator helps.
pub(crate) const REASON_CREATE_ERROR: &str = "CreateContainerError";

/// A pod cannot start now. The node tries again, in case what it lacks turns up; a pod that it rejects has failed.
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
    /// The node never runs a pod that says this.
    pub(crate) is_final: bool,
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
            is_final: false,
        }
    }

    /// The pod's specification requests something that this node does not support.
    pub(crate) fn pod(message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason: REASON_CONFIG_ERROR,
            event: "Failed",
            message: message.into(),
            is_final: false,
        }
    }

    /// The pod fails for this reason, as a kubelet rejects pods.
    pub(crate) fn rejection(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason,
            event: reason,
            message: message.into(),
            is_final: true,
        }
    }

    /// Whether the pod has failed.
    pub(crate) fn is_rejection(&self) -> bool {
        self.is_final
    }

    /// A volume's content is not there (yet).
    pub(crate) fn volume(message: impl Into<String>) -> Self {
        Self {
            container: None,
            reason: REASON_CREATING,
            event: "FailedMount",
            message: message.into(),
            is_final: false,
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
            is_final: false,
        }
    }

    /// Whether an image has no meaning here: the node tries again as a kubelet pulls again.
    pub(crate) fn is_of_image(&self) -> bool {
        self.reason == REASON_IMAGE
    }

    /// When the waiting reason of a refusal of that time turns into another one.
    pub(crate) fn turns_at(&self, since: Timestamp) -> Option<Timestamp> {
        self.is_of_image()
            .then(|| since.checked_add(IMAGE_ERROR_SHOWN).ok())
            .flatten()
    }

    /// `state.waiting` of a refusal of that time. As a kubelet: some clients judge by the first reason of a missing image,
    /// others by how long the second one lasts.
    pub(crate) fn waiting(&self, since: Timestamp, now: Timestamp) -> Value {
        if self.turns_at(since).is_some_and(|at| at <= now) {
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
            is_final: false,
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
            (&image, 0, "ErrImagePull", "no entry"),
            (
                &image,
                1,
                "ImagePullBackOff",
                "Back-off pulling image: ErrImagePull: no entry",
            ),
            (
                &image,
                300,
                "ImagePullBackOff",
                "Back-off pulling image: ErrImagePull: no entry",
            ),
            (&wrong, 0, "CreateContainerConfigError", "no key"),
            (&wrong, 300, "CreateContainerConfigError", "no key"),
        ];
        let since = Timestamp::UNIX_EPOCH;
        for (refusal, seconds, reason, message) in table {
            let now = since + jiff::SignedDuration::from_secs(seconds);
            let expected = json!({"reason": reason, "message": message});
            assert_eq!(refusal.waiting(since, now), expected);
        }
    }
}
