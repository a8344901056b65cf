//! A replica that is to act in a role: the leases that it needs, and the controllers that it must not act beside.

use std::sync::Arc;

use kube::Client;
use longshore_api::{tasks::ANNOTATION_ALL_NAMESPACES, uninstall::HOLDER_UNINSTALLED};
use longshore_core::error::chain;
use longshore_kit::{
    Clock, Electors, Namespaces, SystemClock,
    lease::{LeaseName, Notice, Terms},
};

use super::{
    Context, mark,
    namespaces::Others,
    neighbours::Neighbours,
    roles::{Leadership, Role, Works},
};
use crate::{
    error::{CliError, KubernetesError},
    output,
};

/// A candidate for the leadership in one role.
pub(super) struct Candidate<'a> {
    role: &'a Role,
    /// The controller's own namespace.
    own: &'a str,
    others: Others,
    electors: Electors,
    /// Where leases do not keep controllers of overlapping namespaces apart.
    neighbours: Option<Neighbours<'a>>,
}

impl<'a> Candidate<'a> {
    /// `client` must be behind no gate. `me` is a name that no other process may ever have.
    pub(super) fn new(
        role: &'a Role,
        lease: &'static str,
        terms: Terms,
        client: &Client,
        context: &'a Context,
        me: &str,
    ) -> Self {
        let own = context.cluster.namespace();
        let others = context.config.others.of(role);
        let name = |namespace: &str| LeaseName {
            namespace: namespace.to_owned(),
            name: lease.to_owned(),
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let of_others = others.names().map(name);
        let mut electors = Electors::new(client, name(own), of_others, me, terms, &clock);
        let neighbours = (role.works == Works::InNamed).then(|| {
            let namespaces = others.with(own);
            Neighbours::new(role, lease, own, namespaces, client, terms.retry_period)
        });
        if neighbours.is_some() {
            let everywhere = (others == Others::All).then_some("true");
            electors = electors.saying(ANNOTATION_ALL_NAMESPACES, everywhere);
        }
        Self {
            role,
            own,
            others,
            electors,
            neighbours,
        }
    }

    /// Waits until this replica may act, and prints meanwhile what it waits for.
    ///
    /// Two controllers whose leases are in different namespaces find each other because each takes its lease before it
    /// looks at those of others: the later one of the two sees the lease of the earlier one.
    pub(super) async fn acquire(&mut self) -> Result<Leadership, CliError> {
        loop {
            if let Some(neighbours) = &mut self.neighbours {
                neighbours.until_alone().await;
            }
            let (role, own, others) = (self.role, self.own, &self.others);
            let tell = |lease: &LeaseName, notice: Notice<'_>| {
                output::note(&told(role, own, others, lease, notice));
            };
            let acquired = self.electors.acquire(tell).await;
            let tenure = acquired.map_err(KubernetesError::from)?;
            let is_alone = match &mut self.neighbours {
                None => true,
                Some(neighbours) => tokio::select! {
                    _ = self.electors.keep() => false,
                    is_alone = neighbours.is_alone() => is_alone,
                },
            };
            if is_alone {
                return Ok(Leadership {
                    gate: tenure.gate,
                    namespaces: match self.others {
                        Others::All => Namespaces::All,
                        Others::These(_) => Namespaces::These(tenure.namespaces),
                    },
                });
            }
            self.electors.release().await;
        }
    }

    /// Renews the leases until one is lost, or until another controller is there. Returns the reason.
    pub(super) async fn keep(&mut self) -> String {
        let (electors, neighbours) = (&mut self.electors, &mut self.neighbours);
        let another = async {
            match neighbours {
                Some(neighbours) => neighbours.until_another().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (lease, lost) = electors.keep() => {
                format!("{lost}{}", in_namespace(&self.others, &lease))
            }
            another = another => {
                electors.abandon();
                another
            }
        }
    }

    /// Lets the leases go, when nothing of the role writes any more.
    pub(super) async fn release(&mut self) {
        self.electors.release().await;
    }
}

fn in_namespace(others: &Others, lease: &LeaseName) -> String {
    if *others == Others::NONE {
        String::new()
    } else {
        format!(" in namespace {}", lease.namespace)
    }
}

/// What is printed about a lease that is in the way.
fn told(role: &Role, own: &str, others: &Others, lease: &LeaseName, notice: Notice<'_>) -> String {
    let name = role.name;
    match notice {
        Notice::WaitsFor(HOLDER_UNINSTALLED) => mark::text(role, own, &lease.namespace),
        Notice::WaitsFor(holder) => format!(
            "{name}: waits for the lease that {holder} holds{}",
            in_namespace(others, lease)
        ),
        Notice::ActsWithout(error) => format!(
            "{name}: goes on without the lease{}: {}",
            in_namespace(others, lease),
            chain(error)
        ),
    }
}

#[cfg(test)]
mod tests {
    use longshore_kit::lease::LeaseError;

    use super::*;
    use crate::controller::roles::role;

    #[test]
    fn what_is_waited_for_is_named_with_its_namespace_where_there_are_several() {
        let lease = |namespace: &str| LeaseName {
            namespace: namespace.to_owned(),
            name: "longshore-tasks".to_owned(),
        };
        let gone = LeaseError::NoNamespace {
            namespace: "b".to_owned(),
            name: "longshore-tasks".to_owned(),
        };
        let tasks = role("tasks").unwrap();
        let several = Others::named(&["a".to_owned(), "b".to_owned()], false);
        let mut text = String::new();
        for (others, namespace, notice) in [
            (&Others::NONE, "a", Notice::WaitsFor("host_1")),
            (&Others::NONE, "a", Notice::WaitsFor(HOLDER_UNINSTALLED)),
            (&several, "b", Notice::WaitsFor("host_1")),
            (&several, "b", Notice::WaitsFor(HOLDER_UNINSTALLED)),
            (&several, "b", Notice::ActsWithout(&gone)),
        ] {
            let line = told(tasks, "a", others, &lease(namespace), notice);
            text.push_str(&format!("{line}\n"));
        }
        insta::assert_snapshot!(text, @r"
        tasks: waits for the lease that host_1 holds
        tasks: was uninstalled, and does nothing; `longshore uninstall --role tasks -n a --undo` lets it run again
        tasks: waits for the lease that host_1 holds in namespace b
        tasks: was uninstalled in namespace b, and does nothing in the others either; `longshore uninstall --role tasks -n b --undo` lets it run again
        tasks: goes on without the lease in namespace b: there is no namespace b for the lease longshore-tasks
        ");
    }
}
