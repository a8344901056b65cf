//! The roles of the controller. A new one is one row here and a file beside this one.

use std::{pin::Pin, sync::Arc};

use longshore_api::{flyte::TASK_ACTION_CRD, podops::POD_TRANSITION_RULE_CRD};
use longshore_kit::{Gate, Grant, Namespaces, Rule};
use longshore_tasks::WebhookSettings;
use tokio_util::sync::CancellationToken;

use super::{Context, dags, flink, podops, tasks, webhook};
use crate::{error::CliError, service::flink::DEFINITIONS};

/// What a role does while this replica holds its lease.
///
/// It runs until `shutdown`, then stops in order and returns; it fails when it cannot go on. When the lease is lost, the
/// future is dropped, as in a crash.
pub(crate) type Work = fn(Arc<Context>, Leadership, CancellationToken) -> Running;

/// The work of every replica for a role, with or without the lease: it runs until `shutdown`, and
/// its writes need no lease.
pub(crate) type Everywhere = fn(Arc<Context>, CancellationToken) -> Running;

/// The work, under way.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), CliError>> + Send>>;

/// In which namespaces a role works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Works {
    /// In the controller's own.
    InOwn,
    /// In all that the command line names.
    InNamed,
    /// In the whole cluster, whatever the command line names.
    Everywhere,
}

/// What a role may do while this replica holds its leases.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// Every write passes it.
    pub(crate) gate: Gate,
    /// Where the role works.
    pub(crate) namespaces: Namespaces,
}

/// A role.
#[derive(Debug)]
pub(crate) struct Role {
    /// The name of the role on the command line and in metrics.
    pub(crate) name: &'static str,
    /// Whether the role runs where the command line names no roles.
    pub(crate) is_default: bool,
    /// What it runs, in messages.
    pub(crate) objects: &'static str,
    /// In which namespaces it works.
    pub(crate) works: Works,
    /// The name of its lease; a role without one works in every replica.
    pub(crate) lease: Option<&'static str>,
    /// The Lease that says whether the role was uninstalled: its own, where it has one.
    pub(crate) mark: &'static str,
    /// What the role does with which resources, beside its lease.
    pub(crate) grants: fn(&WebhookSettings) -> Vec<Grant>,
    /// The definitions of the resources that the role works on, where those are none of Kubernetes itself.
    pub(crate) definitions: &'static [&'static str],
    /// The work of the replica that holds the lease.
    pub(crate) work: Work,
    /// The work of every replica, beside that.
    pub(crate) everywhere: Option<Everywhere>,
}

/// All roles.
pub(crate) const ROLES: &[Role] = &[
    Role {
        name: "dags",
        objects: "DAGs",
        is_default: true,
        works: Works::InOwn,
        lease: Some("longshore-dags"),
        mark: "longshore-dags",
        grants: |_| granted(longshore_dags::RULES),
        definitions: &[],
        work: |context, held, shutdown| Box::pin(dags::run(context, held.gate, shutdown)),
        everywhere: None,
    },
    Role {
        name: tasks::ROLE,
        objects: "TaskActions",
        is_default: true,
        works: Works::InNamed,
        lease: Some("longshore-tasks"),
        mark: "longshore-tasks",
        grants: |_| granted(longshore_tasks::RULES),
        definitions: &[TASK_ACTION_CRD],
        work: |context, held, shutdown| Box::pin(tasks::run(context, held, shutdown)),
        everywhere: None,
    },
    // Reads secrets, and needs a Service through which API servers reach it.
    Role {
        name: webhook::ROLE,
        objects: "pods",
        is_default: false,
        works: Works::Everywhere,
        lease: None,
        mark: webhook::MARK,
        grants: longshore_tasks::secrets::grants,
        definitions: &[],
        work: |context, held, shutdown| Box::pin(webhook::run(context, held.gate, shutdown)),
        everywhere: None,
    },
    // Its webhooks receive requests about pods of the whole cluster, and need a Service through
    // which API servers reach them.
    Role {
        name: podops::ROLE,
        objects: "pods",
        is_default: false,
        works: Works::Everywhere,
        lease: Some(podops::LEASE),
        mark: podops::LEASE,
        grants: |_| granted(longshore_podops::RULES),
        definitions: &[POD_TRANSITION_RULE_CRD],
        work: |context, held, shutdown| Box::pin(podops::run(context, held.gate, shutdown)),
        everywhere: Some(|context, shutdown| Box::pin(podops::answer(context, shutdown))),
    },
    Role {
        name: flink::ROLE,
        objects: "Flink's resources",
        is_default: false,
        works: Works::InNamed,
        lease: Some(flink::LEASE),
        mark: flink::LEASE,
        grants: |_| granted(longshore_flink::RULES),
        definitions: &DEFINITIONS,
        work: |context, held, shutdown| Box::pin(flink::run(context, held, shutdown)),
        everywhere: None,
    },
];

/// Rules that are the same in every installation.
fn granted(rules: &[Rule]) -> Vec<Grant> {
    rules.iter().copied().map(Rule::granted).collect()
}

/// The roles that run where the command line names none.
pub(crate) fn defaults() -> Vec<&'static Role> {
    ROLES.iter().filter(|role| role.is_default).collect()
}

/// The role of this name, for the command line.
pub(crate) fn role(name: &str) -> Result<&'static Role, String> {
    let found = ROLES.iter().find(|role| role.name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = ROLES.iter().map(|role| role.name).collect();
        format!("expected one of {}, found {name:?}", known.join(", "))
    })
}
