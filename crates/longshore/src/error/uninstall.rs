//! Errors of `longshore uninstall`.

use std::error::Error;

use longshore_kit::ApiError;

use crate::{controller::mark::undo, exit::Exit};

/// Why a role is not uninstalled, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UninstallError {
    #[error("RBAC does not let you uninstall the role {role}: {}", missing.join(", "))]
    Rights {
        role: &'static str,
        missing: Vec<String>,
    },
    #[error("something puts back what was removed ({what}): {}", shown(objects))]
    ComesBack { what: String, objects: Vec<String> },
    #[error("a request to the API server failed, and the role is uninstalled in part")]
    Request(#[from] ApiError),
    #[error("a request to the API server failed, and the role is uninstalled in part: {what}")]
    List {
        what: String,
        source: Box<kube::Error>,
    },
    #[error("the role {role} is installed in another namespace than {namespace}: {found}")]
    Elsewhere {
        role: &'static str,
        namespace: String,
        /// The object that names the other namespace.
        found: String,
        /// The other namespace.
        installed: String,
    },
    #[error(
        "whether the role {role} is installed in the namespace {namespace} is not certain: {found}"
    )]
    Unsure {
        role: &'static str,
        namespace: String,
        /// The Lease that speaks against the namespace.
        found: String,
        /// Its name.
        lease: &'static str,
        /// Its namespace.
        of: String,
    },
    #[error("there is no namespace {namespace}, and nothing of the role {role} names it")]
    NoNamespace {
        role: &'static str,
        namespace: String,
    },
    #[error("the role {role} was not uninstalled in the namespace {namespace}")]
    NotUninstalled {
        role: &'static str,
        namespace: String,
        /// The namespaces in which it was.
        marked: Vec<String>,
    },
    #[error("the API server {url} does not say what you may do")]
    Asking {
        url: String,
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A few of them.
fn shown(objects: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = objects.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let first = first.join(", ");
    match objects.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

impl UninstallError {
    /// The request for the rights of this user failed.
    pub(crate) fn asking(url: String, source: kube::Error) -> Self {
        Self::Asking {
            url,
            source: Box::new(source),
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Rights { .. } => "LS1105",
            Self::ComesBack { .. } => "LS1106",
            Self::Request(_) | Self::List { .. } | Self::Asking { .. } => "LS1107",
            Self::Elsewhere { .. } | Self::Unsure { .. } | Self::NoNamespace { .. } => "LS1108",
            Self::NotUninstalled { .. } => "LS1109",
        }
    }

    pub(super) fn help(&self) -> String {
        let help = match self {
            Self::Rights { .. } => {
                "run it with the kubeconfig of a cluster administrator; --dry-run needs less"
            }
            Self::ComesBack { .. } => {
                "stop every controller of the role, also those in other namespaces, and run the command again"
            }
            Self::Request(_) | Self::List { .. } | Self::Asking { .. } => {
                "do what the cause says and run the command again: it goes on where it was"
            }
            Self::Elsewhere {
                role, installed, ..
            } => {
                return format!(
                    "nothing was changed; run `longshore uninstall --role {role} -n {installed}`"
                );
            }
            Self::Unsure {
                role, lease, of, ..
            } => {
                return format!(
                    "nothing was changed; if a controller of yours runs there, run `longshore uninstall --role {role} -n {of}`; \
                     if not, somebody else with rights in {of} made the Lease: `kubectl delete lease -n {of} {lease}`, and run the command again"
                );
            }
            Self::NoNamespace { .. } => {
                "nothing was changed; name the namespace of the controller with -n NAMESPACE"
            }
            Self::NotUninstalled { role, marked, .. } => match marked.first() {
                Some(marked) => {
                    return format!("run {}, where the role was uninstalled", undo(role, marked));
                }
                None => {
                    "name the namespace in which the role was uninstalled with -n NAMESPACE, or start a controller: nothing stops it"
                }
            },
        };
        help.to_owned()
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Rights { .. } => Exit::NotAuthorised,
            Self::Elsewhere { .. }
            | Self::Unsure { .. }
            | Self::NoNamespace { .. }
            | Self::NotUninstalled { .. } => Exit::NotFoundOrUnsupported,
            Self::ComesBack { .. } | Self::Request(_) | Self::List { .. } | Self::Asking { .. } => {
                Exit::Failure
            }
        }
    }
}
