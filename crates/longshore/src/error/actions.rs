//! What can go wrong with the TaskActions of a cluster, in a user's eyes.

use std::error::Error;

use crate::exit::Exit;

/// Why a command about TaskActions ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionsError {
    #[error("there is no usable kubeconfig")]
    NoKubeconfig {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("{what}")]
    Request {
        what: String,
        /// HTTP status of the response, where there was one.
        status: Option<u16>,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("there is no TaskAction {name} in the namespace {namespace}")]
    NoAction { namespace: String, name: String },
}

impl ActionsError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NoKubeconfig { .. } => "LS1401",
            Self::Request { .. } => "LS1402",
            Self::NoAction { .. } => "LS1403",
        }
    }

    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::NoKubeconfig { .. } => {
                "start `longshore standalone`, name its data directory with --data-dir DIR, or name another cluster with --context NAME or --kubeconfig FILE"
            }
            Self::NoAction { .. } => {
                "`longshore actions list -A` has all of them; actions are removed some time after their end"
            }
            Self::Request { status, .. } => match status {
                Some(401 | 403) => {
                    "ask an administrator of the cluster for access to taskactions.flyte.org"
                }
                Some(404) => {
                    "check the namespace, and that the cluster has the resource: `kubectl get crd taskactions.flyte.org`"
                }
                Some(409) => "choose another name with --name RUN",
                Some(_) => "do what the cause says",
                None => {
                    "check that the cluster runs and that the kubeconfig has its address; --context NAME asks another cluster"
                }
            },
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::NoKubeconfig { .. } | Self::NoAction { .. } => Exit::NotFoundOrUnsupported,
            Self::Request { status, .. } => match status {
                Some(401 | 403) => Exit::NotAuthorised,
                Some(404) => Exit::NotFoundOrUnsupported,
                Some(_) | None => Exit::Failure,
            },
        }
    }
}
