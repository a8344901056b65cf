//! Errors between this process and a Kubernetes cluster that is not embedded.

use std::error::Error;

use longshore_kit::lease::LeaseError;

use crate::exit::Exit;

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubernetesError {
    #[error("the Kubernetes cluster cannot be found")]
    Unknown {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("the Kubernetes API server {url} cannot be used")]
    ApiServer { url: String, source: kube::Error },
    #[error("RBAC does not let us in")]
    Forbidden {
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("RBAC does not grant in namespace {namespace}: {}", missing.join(", "))]
    MissingRules {
        namespace: String,
        missing: Vec<String>,
        /// The roles that need it.
        roles: Vec<&'static str>,
        /// Another namespace in which they need rights.
        elsewhere: Option<String>,
        /// The flags that name the other namespaces in which they work.
        others: String,
    },
    #[error("there is no namespace {namespace}")]
    NoNamespace { namespace: String },
}

impl KubernetesError {
    /// No usable kubeconfig was found.
    pub(crate) fn unknown(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Unknown {
            source: Box::new(source),
        }
    }

    /// What it means that the API server at this address does not do what every API server does.
    pub(crate) fn of_server(url: String, source: kube::Error) -> Self {
        let is_forbidden = matches!(&source, kube::Error::Api(status) if status.code == 403);
        if is_forbidden {
            Self::Forbidden {
                source: Box::new(source),
            }
        } else {
            Self::ApiServer { url, source }
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "LS1101",
            Self::ApiServer { .. } => "LS1102",
            Self::Forbidden { .. } | Self::MissingRules { .. } => "LS1103",
            Self::NoNamespace { .. } => "LS1104",
        }
    }

    pub(super) fn help(&self) -> String {
        match self {
            Self::Unknown { .. } => {
                "name it with --kubeconfig FILE or --context NAME; `kubectl config get-contexts` lists them"
                    .to_owned()
            }
            Self::ApiServer { .. } => {
                "check that it runs and takes these credentials: `kubectl version`, with the same kubeconfig and context"
                    .to_owned()
            }
            Self::Forbidden { .. } => {
                "let an administrator apply what `longshore controller rbac` prints".to_owned()
            }
            Self::MissingRules {
                namespace,
                roles,
                elsewhere,
                others,
                ..
            } => {
                let secrets = elsewhere.as_ref().map_or_else(String::new, |elsewhere| {
                    format!(" --secrets-namespace {elsewhere}")
                });
                format!(
                    "let an administrator grant it: longshore controller rbac --enable {} --namespace {namespace}{others}{secrets} | kubectl apply -f -",
                    roles.join(",")
                )
            }
            Self::NoNamespace { namespace } => format!(
                "make it with `kubectl create namespace {namespace}`, or name another one with --namespace"
            ),
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Forbidden { .. } | Self::MissingRules { .. } => Exit::NotAuthorised,
            Self::Unknown { .. } | Self::NoNamespace { .. } => Exit::NotFoundOrUnsupported,
            Self::ApiServer { .. } => Exit::Failure,
        }
    }
}

impl From<LeaseError> for KubernetesError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Forbidden { .. } => Self::Forbidden {
                source: Box::new(error),
            },
            LeaseError::NoNamespace { namespace, .. }
            | LeaseError::Terminating { namespace, .. } => Self::NoNamespace { namespace },
        }
    }
}
