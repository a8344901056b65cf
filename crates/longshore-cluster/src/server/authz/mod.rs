//! What a user may do: role-based access control, as kube-apiserver evaluates it.
//!
//! `attributes` says what a request asks for, `policy`, `rules` and `coverage` decide (all pure), `index` keeps the
//! policy up with the stored objects. `impersonation` finds the user in whose name a request acts, `escalation` keeps
//! users from granting what they do not hold, `reviews` answers questions about permissions. `bootstrap` stores the roles
//! that every cluster has; `reconcile` (pure) says what is missing of them.

mod attributes;
mod bootstrap;
mod coverage;
#[cfg(test)]
mod coverage_tests;
mod escalation;
mod impersonation;
mod index;
mod policy;
#[cfg(test)]
mod policy_tests;
mod reconcile;
pub(super) mod reviews;
mod rules;
mod signers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{
    auth::{GROUP_MASTERS, UserInfo},
    error::Result,
    hub::Hub,
    registry::Registry,
};
use index::Index;
use policy::{HeldRules, Verdict};

pub(crate) use attributes::{Attributes, ResourceTarget};
pub(crate) use bootstrap::ensure as ensure_bootstrap_policy;
pub(crate) use escalation::check as check_escalation;
pub(crate) use impersonation::{Refusal, acting_user};
pub(crate) use signers::check as check_signer;

/// Who may do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Every user may do everything.
    #[default]
    AlwaysAllow,
    /// What Roles, ClusterRoles and their bindings grant. Members of `system:masters` may do everything.
    Rbac,
}

/// Decides about requests.
pub(crate) struct Authorizer {
    mode: Authorization,
    index: Index,
}

impl Authorizer {
    pub(crate) fn new(mode: Authorization, hub: &Arc<Hub>, registry: &Registry) -> Authorizer {
        Authorizer {
            mode,
            index: Index::new(hub, registry),
        }
    }

    /// Whether roles count at all.
    pub(crate) fn is_enforced(&self) -> bool {
        match self.mode {
            Authorization::AlwaysAllow => false,
            Authorization::Rbac => true,
        }
    }

    /// Whether no role restricts a user.
    fn is_unrestricted(&self, user: &UserInfo) -> bool {
        !self.is_enforced() || user.groups.iter().any(|group| group == GROUP_MASTERS)
    }

    /// Whether a user may do what is asked.
    fn decide(&self, user: &UserInfo, asked: &Attributes) -> Verdict {
        if self.is_unrestricted(user) {
            return Verdict {
                is_allowed: true,
                reason: String::new(),
            };
        }
        self.index.read(|policy| policy.decide(user, asked))
    }

    /// Refuses what a user may not do.
    pub(crate) fn require(&self, user: &UserInfo, asked: &Attributes) -> Result<()> {
        let verdict = self.decide(user, asked);
        match verdict.is_allowed {
            true => Ok(()),
            false => Err(asked.denied(user, &verdict.reason)),
        }
    }

    /// The rules that hold for a user in a namespace.
    fn rules_of(&self, user: &UserInfo, namespace: &str) -> HeldRules {
        self.index.read(|policy| policy.rules_of(user, namespace))
    }
}
