//! Pods as text for people. Pure.

use jiff::Timestamp;

use super::{
    super::{
        print::{Detail, columns, fields},
        table::{Table, instant, or_none, since},
    },
    view::PodView,
};

pub(super) fn name(pod: &PodView) -> String {
    pod.name.clone()
}

pub(super) fn table(pods: &[PodView], now: Timestamp, detail: Detail) -> Table {
    let short = ["NAMESPACE", "POD", "PHASE", "SINCE", "HELD BY"];
    let full = ["OPERATIONS", "NODE", "AGE"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for pod in pods {
        let standing = &pod.standing;
        let short = [
            pod.namespace.clone(),
            pod.name.clone(),
            standing.phase.as_str().to_owned(),
            since(standing.since, now),
            held_by(pod),
        ];
        let operations = standing.operations.iter();
        let operations: Vec<&str> = operations.map(|operation| operation.id.as_str()).collect();
        let full = [
            operations.join(","),
            or_none(pod.node.as_deref()),
            since(pod.created_at, now),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

/// The names, each with what it is.
fn held_by(pod: &PodView) -> String {
    let blockers = pod.standing.blockers.iter();
    let names: Vec<String> = blockers
        .map(|blocker| format!("{} {}", blocker.kind.as_str(), blocker.name))
        .collect();
    names.join(", ")
}

/// A pod with its operations, and what holds it.
pub(super) fn text(pod: &PodView, now: Timestamp) -> String {
    let standing = &pod.standing;
    let mut text = fields(&[
        ("Pod", pod.name.clone()),
        ("Namespace", pod.namespace.clone()),
        ("Node", or_none(pod.node.as_deref())),
        ("Phase", standing.phase.as_str().to_owned()),
        ("Since", instant(standing.since)),
        ("Created", instant(pod.created_at)),
    ]);
    if !standing.operations.is_empty() {
        let mut table = Table::new(&["OPERATION", "TYPE", "PHASE", "SINCE"]);
        for operation in &standing.operations {
            table.row([
                operation.id.clone(),
                operation.operation_type.clone(),
                operation.phase.as_str().to_owned(),
                since(operation.since, now),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    if !standing.blockers.is_empty() {
        let mut table = Table::new(&["HELD BY", "NAME", "SINCE", "WHAT HAS TO HAPPEN"]);
        for blocker in &standing.blockers {
            table.row([
                blocker.kind.as_str().to_owned(),
                blocker.name.clone(),
                since(blocker.since, now),
                blocker.message.clone(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}
