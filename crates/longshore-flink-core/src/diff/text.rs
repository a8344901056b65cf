//! Upstream's text for changes: `Diff: FlinkDeploymentSpec[job.parallelism : 2 -> 4, image : a -> b]`.

use std::collections::BTreeSet;

use super::Diff;
use crate::json::Json;

/// The text; empty where nothing changed.
pub(super) fn of(diff: &Diff) -> String {
    let mut rows = Vec::new();
    for change in diff.changes() {
        push_rows(
            &change.field,
            Some(&change.before),
            Some(&change.after),
            &mut rows,
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("Diff: {}[{}]", diff.class, rows.join(", "))
}

/// One row for each place where two values differ. Elements of lists are compared by their index.
fn push_rows(path: &str, before: Option<&Json>, after: Option<&Json>, rows: &mut Vec<String>) {
    match (before, after) {
        (Some(Json::Object(before)), Some(Json::Object(after))) => {
            let keys: BTreeSet<&str> = before.iter().chain(after.iter()).map(|(k, _)| k).collect();
            for key in keys {
                push_rows(
                    &format!("{path}.{key}"),
                    before.get(key),
                    after.get(key),
                    rows,
                );
            }
        }
        (Some(Json::Array(before)), Some(Json::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                push_rows(
                    &format!("{path}.{index}"),
                    before.get(index),
                    after.get(index),
                    rows,
                );
            }
        }
        (before, after) if before == after => {}
        (before, after) => {
            let left = match (before, after) {
                (Some(before), None | Some(Json::Null)) if before.as_text().is_empty() => {
                    "{..}".to_owned()
                }
                (before, _) => value(before),
            };
            rows.push(format!("{path} : {left} -> {}", value(after)));
        }
    }
}

fn value(json: Option<&Json>) -> String {
    let json = json.unwrap_or(&Json::Null);
    let text = json.as_text();
    if text.is_empty() {
        json.to_compact()
    } else {
        text
    }
}
