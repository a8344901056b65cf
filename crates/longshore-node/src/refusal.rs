//! Why a pod does not start, in Kubernetes' words.

/// `state.waiting.reason`: the container can never be made as it is written, or not now.
pub(crate) const REASON_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// `state.waiting.reason`: nobody knows what the image means here.
pub(crate) const REASON_IMAGE: &str = "ErrImagePull";
/// `state.waiting.reason`: on the way, or held up by something outside of the container.
pub(crate) const REASON_CREATING: &str = "ContainerCreating";

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
    /// The container's specification asks for something that it cannot get.
    pub(crate) fn config(container: &str, message: impl Into<String>) -> Self {
        let container = Some(container.to_owned());
        Self {
            container,
            reason: REASON_CONFIG_ERROR,
            event: "Failed",
            message: message.into(),
        }
    }

    /// The pod's specification asks for something that this node cannot give.
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
}
