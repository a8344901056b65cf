//! A role that works without a lease, and the mark that says that it was uninstalled.
//!
//! The holder of a lease sees the mark when it renews the lease. A role without a lease reads the
//! mark every [`LOOK_AGAIN`], less often than a lease would be renewed.

use std::{sync::Arc, time::Duration};

use kube::Client;
use longshore_core::{ObjectRef, error::chain};
use longshore_kit::{
    ApiError, Gate, Namespaces, Requests,
    lease::{LEASE, Survey, is_uninstalled},
};
use tokio_util::sync::CancellationToken;

use super::{
    Context,
    roles::{Leadership, Role},
};
use crate::{error::CliError, output};

/// How often a role without a lease reads the mark.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The Leases that say whether a role was uninstalled: one in each namespace in which it works.
pub(super) struct Marks {
    requests: Requests,
    name: &'static str,
    namespaces: Namespaces,
    /// All Leases of that name.
    survey: Survey,
}

impl Marks {
    pub(super) fn new(client: Client, namespaces: Namespaces, role: &Role) -> Self {
        Self {
            requests: Requests::new(client.clone()),
            name: role.mark,
            namespaces,
            survey: Survey::new(client, role.mark),
        }
    }

    /// Does the work of a role while it is not marked, until `shutdown`.
    pub(super) async fn work_unless_set(
        &mut self,
        role: &Role,
        context: &Arc<Context>,
        shutdown: CancellationToken,
    ) -> Result<(), CliError> {
        loop {
            let mut has_told = false;
            while let Some(namespace) = self.set_in().await {
                if !has_told {
                    output::note(&text(role, context.cluster.namespace(), &namespace));
                    has_told = true;
                }
                let pause = tokio::time::sleep(LOOK_AGAIN);
                if shutdown.run_until_cancelled(pause).await.is_none() {
                    return Ok(());
                }
            }
            context.standing.leads(role);
            let leadership = Leadership {
                gate: Gate::always_open(),
                namespaces: self.namespaces.clone(),
            };
            let work = (role.work)(context.clone(), leadership, shutdown.clone());
            tokio::select! {
                // The work is dropped where it is, like that of a role that loses its lease.
                () = self.until_set() => context.standing.waits(role),
                ended = work => return ended,
            }
        }
    }

    async fn until_set(&mut self) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.set_in().await.is_some() {
                return;
            }
        }
    }

    /// The namespace of a mark that is set; `None` when the role may not read marks, or when the API server does not
    /// respond. Marks are rare, and `longshore uninstall`, which sets them, checks whether a controller still works.
    async fn set_in(&mut self) -> Option<String> {
        let Some(namespaces) = self.namespaces.now() else {
            let holders = self.survey.look().await;
            let holders = holders.inspect_err(|error| not_known(self.name, error));
            let mut marks = holders.ok()?.into_iter().filter(|it| it.is_uninstalled);
            return marks.next().map(|mark| mark.namespace);
        };
        for namespace in namespaces {
            let target = ObjectRef {
                resource: LEASE,
                namespace,
                name: self.name.to_owned(),
                uid: None,
            };
            match self.requests.get(&target).await {
                Ok(Some(lease)) if is_uninstalled(&lease) => return Some(target.namespace),
                Ok(_) => {}
                Err(error) => not_known(self.name, &error),
            }
        }
        None
    }
}

fn not_known(lease: &str, error: &ApiError) {
    tracing::debug!(
        lease,
        error = chain(error),
        "not known whether the role was uninstalled"
    );
}

/// Why a role does nothing, whose mark is set in this namespace.
pub(super) fn text(role: &Role, own: &str, namespace: &str) -> String {
    let (name, undo) = (role.name, undo(role.name, namespace));
    if namespace == own {
        format!("{name}: was uninstalled, and does nothing; {undo} lets it run again")
    } else {
        format!(
            "{name}: was uninstalled in namespace {namespace}, and does nothing in the others either; {undo} lets it run again"
        )
    }
}

/// The command that removes the mark of a role: the whole of it, so that it can be copied.
pub(crate) fn undo(role: &str, namespace: &str) -> String {
    format!("`longshore uninstall --role {role} -n {namespace} --undo`")
}
