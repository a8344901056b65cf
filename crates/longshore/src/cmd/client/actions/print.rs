//! TaskActions as text for people. Pure.

use jiff::Timestamp;
use longshore_api::flyte::{ERROR_KIND_SYSTEM, ERROR_KIND_USER};
use longshore_tasks::events::LoggedEvent;

use super::{
    super::{
        print::{Detail, columns, fields},
        table::{NONE, Table, instant, or_none, since, took},
    },
    view::{Action, Entry},
};
use crate::{printable::one_line, progress::age};

pub(super) fn name(action: &Action) -> String {
    action.name.clone()
}

pub(super) fn table(actions: &[Action], now: Timestamp, detail: Detail) -> Table {
    let short = ["ACTION", "RUN", "TYPE", "PHASE", "ATTEMPT", "AGE", "REASON"];
    let full = ["NAMESPACE", "SYSTEM FAILURES", "DURATION", "ENDED"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for action in actions {
        let short = [
            action.name.clone(),
            action.run.clone(),
            action.task_type.clone(),
            phase(action),
            action.attempt.to_string(),
            since(action.created_at, now),
            action.waits_for.clone().unwrap_or_else(|| reason(action)),
        ];
        let full = [
            action.namespace.clone(),
            action.system_failures.to_string(),
            took(action.created_at, action.ended_at, now),
            instant(action.ended_at),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

/// An action with its history.
pub(super) fn text(action: &Action, now: Timestamp) -> String {
    let mut rows = vec![
        ("Action", action.name.clone()),
        ("Namespace", action.namespace.clone()),
        ("Run", format!("{}, action {}", action.run, action.action)),
        ("Type", action.task_type.clone()),
        ("Phase", phase(action)),
        ("Reason", reason(action)),
    ];
    let some = [
        ("Waits for", action.waits_for.clone()),
        ("Failed by", failed_by(action)),
        ("Cache", action.cache_status.map(cache)),
        ("Inputs", action.inputs.clone()),
        ("Outputs", action.outputs.clone()),
    ];
    rows.extend(
        some.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    rows.extend([
        ("Attempt", action.attempt.to_string()),
        ("System failures", action.system_failures.to_string()),
        ("Created", instant(action.created_at)),
        ("Ended", instant(action.ended_at)),
        ("Duration", took(action.created_at, action.ended_at, now)),
    ]);
    let mut text = fields(&rows);
    let mut table = Table::new(&["PHASE", "AT", "MESSAGE"]);
    for entry in &action.history {
        table.row([
            entry.phase.clone(),
            instant(Some(entry.at)),
            entry.message.trim().to_owned(),
        ]);
    }
    if !action.history.is_empty() {
        text.push('\n');
        text.push_str(&table.render());
    }
    if !action.events.is_empty() {
        text.push('\n');
        text.push_str(&events(&action.events).render());
    }
    text
}

/// The events of an action, each with its error.
fn events(events: &[LoggedEvent]) -> Table {
    let mut table = Table::new(&["EVENT", "ATTEMPT", "AT", "MESSAGE"]);
    for event in events {
        let attempt = event.attempt.to_string();
        let error = event.error.as_ref();
        let error = error.map(|error| format!("{}: {}", error.code, error.message.trim()));
        table.row([
            event.phase.clone(),
            attempt.clone(),
            instant(Some(event.updated_at)),
            error.unwrap_or_default(),
        ]);
        for reason in &event.reasons {
            table.row([
                String::new(),
                attempt.clone(),
                instant(Some(reason.occurred_at)),
                reason.reason.clone(),
            ]);
        }
    }
    table
}

/// `CACHE_LOOKUP_FAILURE` is `lookup failure`.
fn cache(status: &str) -> String {
    let status = status.trim_start_matches("CACHE_");
    status.to_lowercase().replace('_', " ")
}

/// The part that caused the failure: the task, or the system around it.
fn failed_by(action: &Action) -> Option<String> {
    let error = action.error.as_ref().filter(|_| action.is_failed)?;
    Some(
        match error.kind.as_str() {
            ERROR_KIND_USER => "the task",
            ERROR_KIND_SYSTEM => "the system around the task",
            _ => return None,
        }
        .to_owned(),
    )
}

/// A phase of the action as one line.
pub(super) fn line(action: &Action, entry: &Entry) -> String {
    let after = action
        .created_at
        .map_or(NONE.to_owned(), |created| age::of_pod(created, entry.at));
    let message = one_line(&entry.message);
    let line = format!("{after:>6}  {:<18}  {}", entry.phase, message.trim());
    one_line(line.trim_end())
}

/// A sentence about the end of an action.
pub(super) fn end(action: &Action) -> String {
    let took = match (action.created_at, action.ended_at) {
        (Some(from), Some(to)) => format!(" in {}", age::of_pod(from, to)),
        _ => String::new(),
    };
    format!("action {} {}{took}\n", action.name, phase(action))
}

/// Why the action is in its phase: the code of its failure, and its last message.
pub(super) fn reason(action: &Action) -> String {
    let message = action.message.as_deref().map(str::trim);
    match &action.error {
        Some(error) if action.is_failed => {
            format!("{}: {}", error.code, message.unwrap_or(NONE))
        }
        _ => or_none(message),
    }
}

fn phase(action: &Action) -> String {
    match &action.phase {
        _ if action.is_deleting && !action.is_over => "Deleting".to_owned(),
        Some(phase) => phase.clone(),
        None => NONE.to_owned(),
    }
}

#[cfg(test)]
mod tests;
