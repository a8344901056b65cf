//! No user grants what the user does not hold: checks of writes of roles and bindings.

use serde_json::Value;

use super::{
    Attributes, Authorizer, ResourceTarget,
    coverage::{MAX_NAMED, missing},
    index::GROUP,
    policy::{PolicyKind, RoleRef, aggregate},
    rules::{Rule, describe, quoted},
};
use crate::server::{
    auth::UserInfo,
    error::{ApiError, Result},
    meta,
    registry::Strategy,
    verbs::Call,
};

/// Refuses a write of a role or a binding that grants more than its user holds. `old` is the stored object, if there
/// is one.
pub(crate) fn check(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    let authorizer = &call.server.authorizer;
    let resource = call.resource();
    if resource.strategy != Strategy::Access
        || authorizer.is_unrestricted(&call.user)
        || old.is_some_and(|old| changes_only_dependents(new, old))
    {
        return Ok(());
    }
    match PolicyKind::of(&resource.kind) {
        Some(PolicyKind::Role | PolicyKind::ClusterRole) => check_role(call, new, old),
        Some(PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding) => check_binding(call, new),
        None => Ok(()),
    }
}

/// Whether nothing but the references of garbage collection changes.
fn changes_only_dependents(new: &Value, old: &Value) -> bool {
    let mut copy = new.clone();
    let metadata = meta::metadata(&mut copy);
    for key in ["ownerReferences", "finalizers", "managedFields"] {
        meta::keep(metadata, &old["metadata"], key);
    }
    copy == *old
}

fn namespace(call: &Call) -> &str {
    call.namespace.as_deref().unwrap_or_default()
}

fn check_role(call: &Call, role: &Value, old: Option<&Value>) -> Result<()> {
    let authorizer = &call.server.authorizer;
    let target = ResourceTarget {
        group: GROUP.to_owned(),
        resource: call.resource().plural.clone(),
        namespace: namespace(call).to_owned(),
        name: call.name.clone(),
        ..ResourceTarget::default()
    };
    let escalate = Attributes::about("escalate", target);
    if authorizer.decide(&call.user, &escalate).is_allowed {
        return Ok(());
    }
    let refuse = |why: &str| Err(refusal(call, role, why));
    if let Some(why) = lack(authorizer, &call.user, namespace(call), &Rule::all_of(role)) {
        return refuse(&why);
    }
    // An aggregating role gathers whatever is labelled so.
    let aggregates = aggregates(role) || old.is_some_and(aggregates);
    let all = Rule::full_authority();
    if aggregates && lack(authorizer, &call.user, "", &all).is_some() {
        return refuse("must have cluster-admin privileges to use the aggregationRule");
    }
    Ok(())
}

fn aggregates(role: &Value) -> bool {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
    let selectors = selectors.and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

fn check_binding(call: &Call, binding: &Value) -> Result<()> {
    let authorizer = &call.server.authorizer;
    let role = RoleRef::of(binding);
    let kind = match PolicyKind::of(&role.kind) {
        Some(kind @ (PolicyKind::Role | PolicyKind::ClusterRole)) => kind,
        Some(PolicyKind::RoleBinding | PolicyKind::ClusterRoleBinding) | None => {
            let message = format!("unsupported role reference kind: {:?}", role.kind);
            return Err(ApiError::unexplained(&message));
        }
    };
    let group = match meta::text(binding, "/roleRef/apiGroup") {
        "" => GROUP,
        group => group,
    };
    let target = ResourceTarget {
        group: group.to_owned(),
        resource: kind.plural().to_owned(),
        namespace: namespace(call).to_owned(),
        name: role.name.clone(),
        ..ResourceTarget::default()
    };
    let bind = Attributes::about("bind", target);
    if authorizer.decide(&call.user, &bind).is_allowed {
        return Ok(());
    }
    let namespace = namespace(call);
    let rules = authorizer
        .index
        .read(|policy| policy.rules_of_role(&role, namespace));
    let Some(rules) = rules else {
        // In the words of Kubernetes, which names the resource of the binding.
        return Err(ApiError::not_found(call.resource(), &role.name));
    };
    match lack(authorizer, &call.user, namespace, &rules) {
        Some(why) => Err(refusal(call, binding, &why)),
        None => Ok(()),
    }
}

fn refusal(call: &Call, object: &Value, why: &str) -> ApiError {
    let resource = call.resource();
    ApiError::access_denied(&resource.group, &resource.plural, meta::name(object), why)
}

/// What a user lacks of rules that it would grant, in words; nothing when the user holds all of it.
fn lack(
    authorizer: &Authorizer,
    user: &UserInfo,
    namespace: &str,
    rules: &[Rule],
) -> Option<String> {
    let held = authorizer.rules_of(user, namespace);
    let missing = missing(&held.rules, rules, MAX_NAMED);
    if missing.is_empty() {
        return None;
    }
    let UserInfo {
        username, groups, ..
    } = user;
    let mut why = format!(
        "user {username:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(groups),
        describe(&missing)
    );
    if !held.missing.is_empty() {
        why += &format!("; resolution errors: [{}]", aggregate(&held.missing));
    }
    Some(why)
}
