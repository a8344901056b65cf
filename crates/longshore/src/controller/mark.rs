//! A role that works without a lease, and the mark that says that it was uninstalled.
//!
//! The holder of a lease sees the mark when it renews the lease. A role without a lease reads the
//! mark every [`LOOK_AGAIN`], less often than a lease would be renewed.

use std::{sync::Arc, time::Duration};

use kube::Client;
use longshore_core::{ObjectRef, error::chain};
use longshore_kit::{
    Gate, Requests,
    lease::{LEASE, is_uninstalled},
};
use tokio_util::sync::CancellationToken;

use super::{Context, roles::Role};
use crate::{error::CliError, output};

/// How often a role without a lease reads the mark.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The Lease that says whether a role was uninstalled.
pub(super) struct Mark {
    requests: Requests,
    target: ObjectRef,
}

impl Mark {
    pub(super) fn new(client: Client, namespace: &str, role: &Role) -> Self {
        Self {
            requests: Requests::new(client),
            target: ObjectRef {
                resource: LEASE,
                namespace: namespace.to_owned(),
                name: role.mark.to_owned(),
                uid: None,
            },
        }
    }

    /// Does the work of a role while it is not marked, until `shutdown`.
    pub(super) async fn work_unless_set(
        &self,
        role: &Role,
        context: &Arc<Context>,
        shutdown: CancellationToken,
    ) -> Result<(), CliError> {
        loop {
            let mut has_told = false;
            while self.is_set().await {
                if !has_told {
                    note(role, &self.target.namespace);
                    has_told = true;
                }
                let pause = tokio::time::sleep(LOOK_AGAIN);
                if shutdown.run_until_cancelled(pause).await.is_none() {
                    return Ok(());
                }
            }
            context.standing.leads(role);
            let work = (role.work)(context.clone(), Gate::always_open(), shutdown.clone());
            tokio::select! {
                // The work is dropped where it is, like that of a role that loses its lease.
                () = self.until_set() => context.standing.waits(role),
                ended = work => return ended,
            }
        }
    }

    async fn until_set(&self) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.is_set().await {
                return;
            }
        }
    }

    /// Whether the mark is set; `false` when the role may not read it, or when the API server does not respond. Marks
    /// are rare, and `longshore uninstall`, which sets them, checks whether a controller still works.
    async fn is_set(&self) -> bool {
        match self.requests.get(&self.target).await {
            Ok(found) => found.is_some_and(|lease| is_uninstalled(&lease)),
            Err(error) => {
                tracing::debug!(lease = %self.target, error = chain(&error), "not known whether the role was uninstalled");
                false
            }
        }
    }
}

/// Prints why a role does nothing.
pub(super) fn note(role: &Role, namespace: &str) {
    output::note(&format!(
        "{}: was uninstalled, and does nothing; {} lets it run again",
        role.name,
        undo(role.name, namespace)
    ));
}

/// The command that removes the mark of a role: the whole of it, so that it can be copied.
pub(crate) fn undo(role: &str, namespace: &str) -> String {
    format!("`longshore uninstall --role {role} -n {namespace} --undo`")
}
