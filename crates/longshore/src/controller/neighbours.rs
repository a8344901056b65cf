//! Controllers that run TaskActions of the same namespaces under the lease of another namespace: one of two controllers
//! works in all namespaces, and its lease is in its own.

use std::time::Duration;

use kube::Client;
use longshore_core::error::chain;
use longshore_kit::{
    Namespaces,
    lease::{OtherHolder, Survey},
};
use tokio::time::sleep;

use super::{
    mark::{self, LOOK_AGAIN},
    roles::Role,
};
use crate::output;

/// How often a controller that has its lease looks whether another one lets go of its own: both may have begun at the same
/// time, and one of them does not wait.
const LOOKS: u32 = 3;

/// The other controllers of a role.
pub(super) struct Neighbours<'a> {
    role: &'a Role,
    survey: Survey,
    own: &'a str,
    /// Where the role works.
    namespaces: Namespaces,
    /// Between two looks.
    pause: Duration,
    /// Without the right to list leases a controller of named namespaces acts without a look.
    may_look: bool,
    /// What it said last.
    told: Option<OtherHolder>,
    /// Whether it has logged that it cannot see the leases.
    has_warned: bool,
}

/// What is seen of others.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nobody,
    Another(OtherHolder),
    /// The leases cannot be listed.
    Unknown,
}

impl<'a> Neighbours<'a> {
    /// Nothing is seen yet.
    pub(super) fn new(
        role: &'a Role,
        lease: &'static str,
        own: &'a str,
        namespaces: Namespaces,
        client: &Client,
        pause: Duration,
    ) -> Self {
        Self {
            role,
            survey: Survey::new(client.clone(), lease),
            own,
            namespaces,
            pause,
            may_look: true,
            told: None,
            has_warned: false,
        }
    }

    /// Waits until no other controller is there, and prints meanwhile which one it waits for.
    pub(super) async fn until_alone(&mut self) {
        loop {
            match self.look().await {
                Found::Nobody => return,
                Found::Another(other) => self.tell(other),
                Found::Unknown => {}
            }
            sleep(self.pause).await;
        }
    }

    /// Whether no other controller is there, now that this one has its lease.
    pub(super) async fn is_alone(&mut self) -> bool {
        for _ in 0..LOOKS {
            match self.look().await {
                Found::Nobody => return true,
                Found::Another(other) if gives_way(self.own, &self.namespaces, &other) => {
                    return false;
                }
                Found::Another(_) | Found::Unknown => sleep(self.pause).await,
            }
        }
        false
    }

    /// Waits until another controller is there, though this one acts: one that may not list leases. Returns why this one
    /// stops.
    pub(super) async fn until_another(&mut self) -> String {
        if !matches!(self.namespaces, Namespaces::All) {
            // Whoever works in all namespaces has seen our leases.
            return std::future::pending().await;
        }
        loop {
            sleep(LOOK_AGAIN).await;
            if let Found::Another(OtherHolder {
                namespace, holder, ..
            }) = self.look().await
            {
                return format!("the lease is held by {holder} in namespace {namespace}");
            }
        }
    }

    async fn look(&mut self) -> Found {
        if !self.may_look {
            return Found::Nobody;
        }
        match self.survey.look().await {
            Ok(holders) => match rival(self.own, &self.namespaces, holders) {
                Some(other) => Found::Another(other),
                None => {
                    self.told = None;
                    Found::Nobody
                }
            },
            Err(error)
                if error.code() == Some(403) && !matches!(self.namespaces, Namespaces::All) =>
            {
                self.may_look = false;
                tracing::info!(
                    role = self.role.name,
                    error = chain(&error),
                    "a controller of all namespaces would not be noticed"
                );
                Found::Nobody
            }
            Err(error) => {
                let (role, error) = (self.role.name, chain(&error));
                if self.has_warned {
                    tracing::debug!(role, error, "leases of other namespaces cannot be seen");
                } else {
                    tracing::warn!(role, error, "leases of other namespaces cannot be seen");
                    self.has_warned = true;
                }
                Found::Unknown
            }
        }
    }

    fn tell(&mut self, other: OtherHolder) {
        if self.told.as_ref() != Some(&other) {
            output::note(&text(self.role, self.own, &other));
            self.told = Some(other);
        }
    }
}

/// The first of these holders beside which a controller must not act.
fn rival(own: &str, namespaces: &Namespaces, holders: Vec<OtherHolder>) -> Option<OtherHolder> {
    holders.into_iter().find(|other| match namespaces {
        Namespaces::All => other.namespace != own,
        // The leases of its own namespaces are for its electors.
        Namespaces::These(_) | Namespaces::Following(_) => {
            other.is_everywhere && !other.is_uninstalled && !namespaces.contains(&other.namespace)
        }
    })
}

/// Whether a controller lets go of its lease at once where another one is there: of two, exactly one does.
fn gives_way(own: &str, namespaces: &Namespaces, other: &OtherHolder) -> bool {
    match namespaces {
        Namespaces::All => !other.is_everywhere || *own > *other.namespace,
        Namespaces::These(_) | Namespaces::Following(_) => false,
    }
}

/// What is printed about a controller that is waited for.
fn text(role: &Role, own: &str, other: &OtherHolder) -> String {
    let OtherHolder {
        namespace, holder, ..
    } = other;
    let name = role.name;
    match (other.is_uninstalled, other.is_everywhere) {
        (true, _) => mark::text(role, own, namespace),
        (false, false) => format!(
            "{name}: waits for the lease that {holder} holds in namespace {namespace}, because this replica works in all"
        ),
        (false, true) => format!(
            "{name}: waits for the lease that {holder} holds in namespace {namespace} for all namespaces"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::roles::role;

    fn holder(namespace: &str, is_everywhere: bool) -> OtherHolder {
        OtherHolder {
            namespace: namespace.to_owned(),
            holder: format!("in-{namespace}"),
            is_uninstalled: false,
            is_everywhere,
        }
    }

    fn mark(namespace: &str) -> OtherHolder {
        OtherHolder {
            is_uninstalled: true,
            ..holder(namespace, true)
        }
    }

    #[test]
    fn of_controllers_with_a_namespace_in_common_one_waits_for_the_other() {
        let these =
            |names: &[&str]| Namespaces::These(names.iter().map(|it| (*it).to_owned()).collect());
        let (all, one, two) = (Namespaces::All, these(&["m"]), these(&["m", "x"]));
        for (what, namespaces, holders, expected) in [
            ("nobody", &all, vec![], None),
            ("its own lease", &all, vec![holder("m", true)], None),
            ("a single one", &all, vec![holder("a", false)], Some("a")),
            ("another of all", &all, vec![holder("x", true)], Some("x")),
            (
                "a mark",
                &all,
                vec![holder("m", true), mark("x")],
                Some("x"),
            ),
            (
                "no namespace in common",
                &one,
                vec![holder("a", false)],
                None,
            ),
            (
                "one of all",
                &one,
                vec![holder("a", false), holder("x", true)],
                Some("x"),
            ),
            (
                "an earlier holder of a lease of its own",
                &two,
                vec![holder("x", true)],
                None,
            ),
            ("one that was uninstalled", &one, vec![mark("x")], None),
        ] {
            let rival = rival("m", namespaces, holders);
            let found = rival.map(|other| other.namespace);
            assert_eq!(found.as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn of_two_that_find_each_other_exactly_one_gives_way() {
        let these = Namespaces::one("m");
        for other in ["a", "x"] {
            let (own, all) = ("m", Namespaces::All);
            let of_all = [
                gives_way(own, &all, &holder(other, true)),
                gives_way(other, &all, &holder(own, true)),
            ];
            assert_ne!(of_all[0], of_all[1], "both work in all, {other}");
            assert!(gives_way(own, &all, &holder(other, false)));
            assert!(!gives_way(own, &these, &holder(other, true)));
        }
    }

    #[test]
    fn whoever_is_waited_for_is_named() {
        let tasks = role("tasks").unwrap();
        let text = [holder("b", false), holder("b", true), mark("b")]
            .map(|other| text(tasks, "a", &other))
            .join("\n");
        insta::assert_snapshot!(text, @r"
        tasks: waits for the lease that in-b holds in namespace b, because this replica works in all
        tasks: waits for the lease that in-b holds in namespace b for all namespaces
        tasks: was uninstalled in namespace b, and does nothing in the others either; `longshore uninstall --role tasks -n b --undo` lets it run again
        ");
    }
}
