//! Why a pod does not start, in Kubernetes' words.

use std::io;

/// `state.waiting.reason`: the container can never be made as it is written, or not now.
pub(crate) const REASON_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// `state.waiting.reason`: the image map has no entry for the image.
pub(crate) const REASON_IMAGE: &str = "ErrImagePull";
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
