//! What can go wrong with Flink's resources, in a user's eyes.

use std::error::Error;

use crate::exit::Exit;

/// Why a command about Flink's resources ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlinkCliError {
    #[error("{what}")]
    Request {
        what: String,
        /// HTTP status of the response, where there was one.
        status: Option<u16>,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("there is no FlinkDeployment or FlinkSessionJob {name} in the namespace {namespace}")]
    None { namespace: String, name: String },
}

impl FlinkCliError {
    /// What a request ended with. Only the last cause says something new: kube's errors repeat their sources.
    pub(crate) fn request(what: &str, error: &kube::Error) -> Self {
        let status = if let kube::Error::Api(status) = error {
            Some(status.code)
        } else {
            None
        };
        let mut last: &dyn Error = error;
        while let Some(source) = last.source() {
            last = source;
        }
        Self::Request {
            what: what.to_owned(),
            status,
            source: last.to_string().into(),
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Request { .. } => "LS1501",
            Self::None { .. } => "LS1502",
        }
    }

    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::None { .. } => "`longshore flink list -A` has all of them",
            Self::Request { status, .. } => match status {
                Some(401 | 403) => {
                    "ask an administrator of the cluster for access to flinkdeployments.flink.apache.org"
                }
                Some(404) => {
                    "install the resources: `longshore controller crd --enable flink | kubectl apply -f -`"
                }
                Some(_) => "do what the cause says",
                None => {
                    "check that the cluster runs and that the kubeconfig has its address; --context NAME asks another cluster"
                }
            },
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::None { .. } => Exit::NotFoundOrUnsupported,
            Self::Request { status, .. } => match status {
                Some(401 | 403) => Exit::NotAuthorised,
                Some(404) => Exit::NotFoundOrUnsupported,
                Some(_) | None => Exit::Failure,
            },
        }
    }
}
