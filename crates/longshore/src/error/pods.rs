//! What can go wrong with the pods of a cluster, in a user's eyes.

use std::error::Error;

use crate::exit::Exit;

/// Why a command about pods ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodsError {
    #[error("{what}")]
    Request {
        what: String,
        /// HTTP status of the response, where there was one.
        status: Option<u16>,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("there is no pod {name} under PodOpsLifecycle in the namespace {namespace}")]
    NoPod { namespace: String, name: String },
}

impl PodsError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Request { .. } => "LS1601",
            Self::NoPod { .. } => "LS1602",
        }
    }

    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::NoPod { .. } => {
                "`longshore pods list -A` has all of them: those with the label kusionstack.io/control: \"true\""
            }
            Self::Request { status, .. } => match status {
                Some(401 | 403) => "ask an administrator of the cluster for access to pods",
                Some(_) => "do what the cause says",
                None => {
                    "check that the cluster runs and that the kubeconfig has its address; --context NAME asks another cluster"
                }
            },
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::NoPod { .. } => Exit::NotFoundOrUnsupported,
            Self::Request { status, .. } => match status {
                Some(401 | 403) => Exit::NotAuthorised,
                Some(_) | None => Exit::Failure,
            },
        }
    }
}
