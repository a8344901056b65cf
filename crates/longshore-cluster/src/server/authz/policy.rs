//! Roles and bindings, indexed by the subjects that they are for. Pure.
//!
//! The policy keeps of each object what decisions need, not the object. A decision looks at the bindings of one user
//! and of this user's groups, however many other bindings there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{attributes::Attributes, rules::Rule};
use crate::server::{auth::UserInfo, meta};

/// The kinds of objects that a policy consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl PolicyKind {
    pub(crate) const ALL: [PolicyKind; 4] = [
        PolicyKind::Role,
        PolicyKind::ClusterRole,
        PolicyKind::RoleBinding,
        PolicyKind::ClusterRoleBinding,
    ];

    /// The kind of this name.
    pub(crate) fn of(kind: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|it| it.name() == kind)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            PolicyKind::Role => "Role",
            PolicyKind::ClusterRole => "ClusterRole",
            PolicyKind::RoleBinding => "RoleBinding",
            PolicyKind::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            PolicyKind::Role => "roles",
            PolicyKind::ClusterRole => "clusterroles",
            PolicyKind::RoleBinding => "rolebindings",
            PolicyKind::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// The role that a binding grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    /// The role of a binding.
    pub(crate) fn of(binding: &Value) -> RoleRef {
        RoleRef {
            kind: meta::text(binding, "/roleRef/kind").to_owned(),
            name: meta::text(binding, "/roleRef/name").to_owned(),
        }
    }
}

/// To whom a binding grants its role.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Subject {
    /// Reads a subject. An account without a namespace is one of the binding's namespace.
    fn read(subject: &Value, binding_namespace: &str) -> Option<Subject> {
        let name = meta::text(subject, "/name").to_owned();
        match meta::text(subject, "/kind") {
            "User" => Some(Subject::User(name)),
            "Group" => Some(Subject::Group(name)),
            "ServiceAccount" => {
                let namespace = match meta::text(subject, "/namespace") {
                    "" => binding_namespace,
                    namespace => namespace,
                };
                (!namespace.is_empty()).then(|| Subject::ServiceAccount {
                    namespace: namespace.to_owned(),
                    name,
                })
            }
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Subject::User(name) => *name == user.username,
            Subject::Group(name) => user.groups.contains(name),
            Subject::ServiceAccount { namespace, name } => {
                account_name(namespace, name) == user.username
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Subject::User(name) => format!("User {name:?}"),
            Subject::Group(name) => format!("Group {name:?}"),
            Subject::ServiceAccount { namespace, name } => {
                let account = format!("{name}/{namespace}");
                format!("ServiceAccount {account:?}")
            }
        }
    }
}

/// The user name of a service account.
pub(super) fn account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// A binding of a role to subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bindings {
    by_name: BTreeMap<String, Binding>,
    /// Names of bindings by the user, service accounts included.
    of_user: BTreeMap<String, BTreeSet<String>>,
    /// Names of bindings by the group.
    of_group: BTreeMap<String, BTreeSet<String>>,
}

impl Bindings {
    fn put(&mut self, name: &str, binding: Binding) {
        self.remove(name);
        for subject in &binding.subjects {
            let (index, of) = self.entry(subject);
            index.entry(of).or_default().insert(name.to_owned());
        }
        self.by_name.insert(name.to_owned(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else {
            return;
        };
        for subject in &binding.subjects {
            let (index, of) = self.entry(subject);
            if let Some(names) = index.get_mut(&of) {
                names.remove(name);
                if names.is_empty() {
                    index.remove(&of);
                }
            }
        }
    }

    /// The index of a subject, and its key there.
    fn entry(&mut self, subject: &Subject) -> (&mut BTreeMap<String, BTreeSet<String>>, String) {
        match subject {
            Subject::User(name) => (&mut self.of_user, name.clone()),
            Subject::Group(name) => (&mut self.of_group, name.clone()),
            Subject::ServiceAccount { namespace, name } => {
                (&mut self.of_user, account_name(namespace, name))
            }
        }
    }

    /// The bindings for a user, by name.
    fn of(&self, user: &UserInfo) -> impl Iterator<Item = (&str, &Binding)> {
        let own = self.of_user.get(&user.username).into_iter();
        let groups = user.groups.iter();
        let shared = groups.filter_map(|group| self.of_group.get(group));
        let names: BTreeSet<&str> = own.chain(shared).flatten().map(String::as_str).collect();
        let found = names.into_iter();
        found.filter_map(move |name| Some((name, self.by_name.get(name)?)))
    }
}

/// A role that a binding grants to a user.
struct Grant<'a> {
    /// Empty for a binding of the whole cluster.
    namespace: &'a str,
    binding: &'a str,
    role: &'a RoleRef,
    subject: Option<&'a Subject>,
    /// The rules of the role, or why there are none.
    rules: Result<Arc<[Rule]>, String>,
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let (kind, binding) = match self.namespace {
            "" => ("ClusterRoleBinding", self.binding.to_owned()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.binding)),
        };
        let RoleRef { kind: of, name } = self.role;
        let subject = self.subject.map(Subject::describe).unwrap_or_default();
        format!("RBAC: allowed by {kind} {binding:?} of {of} {name:?} to {subject}")
    }
}

/// The answer to the question whether a user may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) is_allowed: bool,
    /// Which binding allows it, or which roles are missing; empty when there is nothing to say.
    pub(crate) reason: String,
}

/// The rules of a user, and which roles of the user's bindings do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldRules {
    pub(crate) rules: Vec<Rule>,
    pub(crate) missing: Vec<String>,
}

/// All roles and bindings of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// By `namespace/name`.
    roles: BTreeMap<String, Arc<[Rule]>>,
    cluster_roles: BTreeMap<String, Arc<[Rule]>>,
    /// By namespace.
    bindings: BTreeMap<String, Bindings>,
    cluster_bindings: Bindings,
}

impl Policy {
    /// Takes a new or changed object; `key` is `name` or `namespace/name`.
    pub(crate) fn put(&mut self, kind: PolicyKind, key: &str, object: &Value) {
        let (namespace, name) = split(key);
        match kind {
            PolicyKind::Role => {
                self.roles
                    .insert(key.to_owned(), Rule::all_of(object).into());
            }
            PolicyKind::ClusterRole => {
                self.cluster_roles
                    .insert(key.to_owned(), Rule::all_of(object).into());
            }
            PolicyKind::RoleBinding => {
                let bindings = self.bindings.entry(namespace.to_owned()).or_default();
                bindings.put(name, binding(object, namespace));
            }
            PolicyKind::ClusterRoleBinding => self.cluster_bindings.put(name, binding(object, "")),
        }
    }

    /// Forgets a deleted object.
    pub(crate) fn remove(&mut self, kind: PolicyKind, key: &str) {
        let (namespace, name) = split(key);
        match kind {
            PolicyKind::Role => {
                self.roles.remove(key);
            }
            PolicyKind::ClusterRole => {
                self.cluster_roles.remove(key);
            }
            PolicyKind::RoleBinding => {
                if let Some(bindings) = self.bindings.get_mut(namespace) {
                    bindings.remove(name);
                    if bindings.by_name.is_empty() {
                        self.bindings.remove(namespace);
                    }
                }
            }
            PolicyKind::ClusterRoleBinding => self.cluster_bindings.remove(name),
        }
    }

    /// Whether a user may do what is asked.
    pub(crate) fn decide(&self, user: &UserInfo, asked: &Attributes) -> Verdict {
        let mut missing = Vec::new();
        for grant in self.grants(user, asked.namespace()) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Verdict {
                        is_allowed: true,
                        reason: grant.describe(),
                    };
                }
                Ok(_) => {}
                Err(why) => missing.push(why.clone()),
            }
        }
        let reason = match aggregate(&missing) {
            text if text.is_empty() => text,
            text => format!("RBAC: {text}"),
        };
        Verdict {
            is_allowed: false,
            reason,
        }
    }

    /// The rules that hold for a user in a namespace, those of the whole cluster included.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> HeldRules {
        let mut held = HeldRules::default();
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Ok(rules) => held.rules.extend(rules.iter().cloned()),
                Err(why) => held.missing.push(why),
            }
        }
        held
    }

    /// The rules of a role that a binding in a namespace, or of the cluster, refers to.
    pub(crate) fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[Rule]>> {
        match PolicyKind::of(&role.kind)? {
            PolicyKind::Role => self.roles.get(&format!("{namespace}/{}", role.name)),
            PolicyKind::ClusterRole => self.cluster_roles.get(&role.name),
            PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding => None,
        }
        .cloned()
    }

    fn grants<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
    ) -> impl Iterator<Item = Grant<'a>> {
        let here = self.bindings.get(namespace).into_iter();
        let scopes = std::iter::once(("", &self.cluster_bindings))
            .chain(here.map(move |bindings| (namespace, bindings)));
        scopes.flat_map(move |(namespace, bindings)| {
            bindings.of(user).map(move |(name, binding)| Grant {
                namespace,
                binding: name,
                role: &binding.role,
                subject: binding.subjects.iter().find(|subject| subject.is(user)),
                rules: self
                    .rules_of_role(&binding.role, namespace)
                    .ok_or_else(|| not_found(&binding.role)),
            })
        })
    }
}

/// The namespace (or nothing) and the name in a key.
fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

fn binding(object: &Value, namespace: &str) -> Binding {
    let subjects = object["subjects"].as_array().into_iter().flatten();
    Binding {
        role: RoleRef::of(object),
        subjects: subjects
            .filter_map(|subject| Subject::read(subject, namespace))
            .collect(),
    }
}

fn not_found(role: &RoleRef) -> String {
    let RoleRef { kind, name } = role;
    match PolicyKind::of(kind) {
        Some(PolicyKind::Role | PolicyKind::ClusterRole) => {
            let kind = kind.to_lowercase();
            format!("{kind}.rbac.authorization.k8s.io {name:?} not found")
        }
        Some(PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding) | None => {
            format!("unsupported role reference kind: {kind:?}")
        }
    }
}

/// Several errors as one text, each said once.
pub(super) fn aggregate(errors: &[String]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for error in errors {
        if !said.contains(&error.as_str()) {
            said.push(error);
        }
    }
    match said.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
