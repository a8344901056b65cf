//! Flink's resources as text for people. Pure.

use jiff::Timestamp;

use super::{
    super::{
        print::{Detail, columns, fields},
        table::{Table, instant, or_none, since},
    },
    view::FlinkView,
};

pub(super) fn name(found: &FlinkView) -> String {
    format!("{}/{}", found.kind.to_ascii_lowercase(), found.name)
}

pub(super) fn table(all: &[FlinkView], now: Timestamp, detail: Detail) -> Table {
    let short = ["NAMESPACE", "NAME", "KIND", "STATE", "JOB", "WAITS FOR"];
    let full = ["CLUSTER", "VERSION", "MODE", "JOB ID", "AGE"];
    let mut table = Table::new(&columns(&short, &full, detail));
    for found in all {
        let waits = found.waits_for.as_ref();
        let short = [
            found.namespace.clone(),
            found.name.clone(),
            found.kind.clone(),
            or_none(found.lifecycle_state.as_deref()),
            or_none(found.job_state.as_deref()),
            // The first thing that people ask of a job that is not as it should be.
            or_none(
                waits
                    .map(|it| it.message.as_str())
                    .or(found.error.as_deref()),
            ),
        ];
        let cluster = found.session_cluster.as_deref().unwrap_or(&found.name);
        let full = [
            cluster.to_owned(),
            or_none(found.flink_version.as_deref()),
            or_none(found.upgrade_mode.as_deref()),
            or_none(found.job_id.as_deref()),
            since(found.created_at, now),
        ];
        table.row(columns(&short, &full, detail));
    }
    table
}

/// A resource with what it waits for.
pub(super) fn text(found: &FlinkView, now: Timestamp) -> String {
    let mut text = fields(&[
        (found.kind.as_str(), found.name.clone()),
        ("Namespace", found.namespace.clone()),
        ("Cluster", or_none(found.session_cluster.as_deref())),
        ("Version", or_none(found.flink_version.as_deref())),
        ("State", or_none(found.lifecycle_state.as_deref())),
        ("JobManager", or_none(found.job_manager.as_deref())),
        ("Job", or_none(found.job_state.as_deref())),
        ("Wanted", or_none(found.wanted_state.as_deref())),
        ("Upgrades", or_none(found.upgrade_mode.as_deref())),
        ("Job id", or_none(found.job_id.as_deref())),
        ("Savepoint", or_none(found.savepoint.as_deref())),
        ("Created", instant(found.created_at)),
        ("Error", or_none(found.error.as_deref())),
    ]);
    if let Some(waits) = &found.waits_for {
        text.push('\n');
        text.push_str(&fields(&[
            ("Waits for", waits.message.clone()),
            (
                "Since",
                format!("{} ({})", instant(waits.since), since(waits.since, now)),
            ),
        ]));
    }
    if !found.conditions.is_empty() {
        let mut table = Table::new(&["CONDITION", "STATUS", "SINCE", "MESSAGE"]);
        for condition in &found.conditions {
            table.row([
                condition.kind.clone(),
                condition.status.clone(),
                since(condition.since, now),
                condition.message.clone(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-28T08:00:00Z";

    fn waiting() -> Value {
        json!({
            "kind": "FlinkDeployment",
            "metadata": {
                "name": "counter", "namespace": "team", "creationTimestamp": "2026-11-28T06:00:00Z",
            },
            "spec": {"flinkVersion": "v1_20", "job": {"upgradeMode": "savepoint"}},
            "status": {
                "lifecycleState": "UPGRADING",
                "jobManagerDeploymentStatus": "READY",
                "jobStatus": {"jobId": "0f", "state": "RUNNING"},
                "error": "{\"type\":\"x\",\"message\":\"the savepoint failed\"}",
                "conditions": [
                    {
                        "type": "Running", "status": "True", "message": "Job status RUNNING",
                        "lastTransitionTime": "2026-11-28T06:01:00Z",
                    },
                    {
                        "type": "UpgradeBlocked", "status": "True", "message": "waits for a savepoint",
                        "lastTransitionTime": "2026-11-28T07:59:00Z",
                    },
                ],
            },
        })
    }

    fn session_job() -> Value {
        json!({
            "metadata": {"name": "job", "namespace": "team"},
            "spec": {"deploymentName": "session", "job": {}},
            "status": {"error": "Job Not Found"},
        })
    }

    #[test]
    fn what_an_upgrade_waits_for_is_in_the_table_and_in_the_text() {
        let now: Timestamp = NOW.parse().unwrap();
        let all = [FlinkView::of(&session_job()), FlinkView::of(&waiting())];
        insta::assert_snapshot!(table(&all, now, Detail::Full).render());
        insta::assert_snapshot!(text(&all[1], now));
    }

    #[test]
    fn the_json_has_what_it_waits_for_and_since_when() {
        let found = serde_json::to_value(FlinkView::of(&waiting())).unwrap();
        assert_eq!(
            found["waitsFor"],
            json!({"message": "waits for a savepoint", "since": "2026-11-28T07:59:00Z"})
        );
        assert_eq!(found["error"], "the savepoint failed");
        assert_eq!(found["conditions"][0]["type"], "Running");
    }
}
