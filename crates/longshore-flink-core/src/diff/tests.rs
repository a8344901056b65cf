use serde_json::{Value, json};

use super::*;
use crate::spec::DeploymentMode::{Native, Standalone};

fn deployment(value: Value) -> FlinkDeploymentSpec {
    serde_json::from_value(value).unwrap()
}

/// Merges `changed` into `base`; a null removes a field.
fn merged(base: &Value, changed: &Value) -> Value {
    match (base, changed) {
        (Value::Object(base), Value::Object(changed)) => {
            let mut merged = base.clone();
            for (key, value) in changed {
                let old = base.get(key).unwrap_or(&Value::Null);
                merged.insert(key.clone(), self::merged(old, value));
            }
            Value::Object(merged)
        }
        _ => changed.clone(),
    }
}

fn base() -> Value {
    json!({
        "image": "a",
        "serviceAccount": "flink",
        "flinkVersion": "v1_20",
        "mode": "native",
        "restartNonce": 1,
        "flinkConfiguration": {"k": "a", "nested": {"x": 1}},
        "job": {"jarURI": "j", "parallelism": 2, "args": ["a"], "savepointRedeployNonce": 1},
        "jobManager": {"resource": {"cpu": 1, "memory": "1g"}},
        "taskManager": {"resource": {"cpu": 1, "memory": "1g"}, "replicas": 1},
        "podTemplate": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        "ingress": {"template": "t"},
        "logConfiguration": {"a": "b"},
    })
}

/// The table of the specification, 1.1: a change, its class in native and in standalone mode, and its text.
#[test]
fn each_field_has_the_class_of_the_specification() {
    let before = deployment(base());
    let table = include_str!("table.txt");
    for row in table.lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [change, native, standalone, text] = cells[..] else {
            panic!("{row}");
        };
        let change: Value = serde_json::from_str(change).unwrap();
        let after = deployment(merged(&base(), &change));
        let diff = of_deployments(Native, &before, &after);
        assert_eq!(diff.kind().as_str(), native, "{row}");
        assert_eq!(
            diff.to_string(),
            format!("Diff: FlinkDeploymentSpec[{text}]")
        );
        assert_eq!(
            of_deployments(Standalone, &before, &after).kind().as_str(),
            standalone,
            "{row}"
        );
        // Equal specs differ in nothing.
        let same = of_deployments(Native, &after, &after.clone());
        assert_eq!(
            (same.kind(), same.is_empty()),
            (DiffType::Ignore, true),
            "{row}"
        );
        assert_eq!(same.to_string(), "");
    }
    assert_eq!(table.lines().count(), 36);
}

#[test]
fn changes_that_do_not_count_are_none() {
    let before = deployment(base());
    for change in [
        json!({"restartNonce": null}),
        json!({"job": {"savepointRedeployNonce": null}}),
        json!({"newer": 1}),
        json!({"ingress": {"newer": 1}}),
        json!({"taskManager": {"resource": {"newer": 1}}}),
        json!({"jobManager": {"resource": {"newer": 1}}}),
        json!({"job": {"newer": 1}, "taskManager": {"newer": 1}, "jobManager": {"newer": 1}}),
        json!({"podTemplate": {"apiVersion": "v1", "kind": "Pod", "metadata": null}}),
        json!({"jobManager": {"podTemplate": null, "resource": {"cpu": 1.0}}}),
    ] {
        let after = deployment(merged(&base(), &change));
        assert!(
            of_deployments(Native, &before, &after).is_empty(),
            "{change}"
        );
    }
    // Nor does the order of keys, nor how a quantity or a configuration is written.
    let one = deployment(json!({
        "flinkConfiguration": {"a.b": "1", "c": ["x", "y"]},
        "taskManager": {"resources": {"requests": {"cpu": "1000m"}}},
        "jobManager": {"podTemplate": {"apiVersion": "v1", "spec": {"a": 1, "b": 2}}},
    }));
    let two: FlinkDeploymentSpec = serde_json::from_str(
        r#"{"flinkConfiguration": {"c": "x;y", "a": {"b": 1}}, "taskManager": {"resources": {"requests": {"cpu": 1}}},
            "jobManager": {"podTemplate": {"spec": {"b": 2, "a": 1}}}}"#,
    )
    .unwrap();
    assert!(of_deployments(Native, &one, &two).is_empty());
    let null: FlinkDeploymentSpec =
        serde_json::from_str(r#"{"flinkConfiguration": null}"#).unwrap();
    assert!(of_deployments(Native, &null, &FlinkDeploymentSpec::default()).is_empty());
}

#[test]
fn a_part_that_appears_or_disappears_is_an_upgrade() {
    let before = deployment(base());
    for (change, text) in [
        (json!({"taskManager": null}), "taskManager : {..} -> null"),
        (json!({"job": null}), "job : {..} -> null"),
    ] {
        let after = deployment(merged(&base(), &change));
        let diff = of_deployments(Standalone, &before, &after);
        assert_eq!(diff.kind(), DiffType::Upgrade, "{change}");
        assert_eq!(
            diff.to_string(),
            format!("Diff: FlinkDeploymentSpec[{text}]")
        );
        assert_eq!(
            of_deployments(Standalone, &after, &before).kind(),
            DiffType::Upgrade
        );
    }
}

#[test]
fn the_greatest_change_counts_and_the_text_names_all_in_upstreams_order() {
    let before = deployment(base());
    let change = json!({
        "restartNonce": 3,
        "image": "b",
        "job": {"parallelism": 3, "upgradeMode": "last-state", "savepointRedeployNonce": 5},
        "flinkConfiguration": {"z": 1, "b": 1},
    });
    let after = deployment(merged(&base(), &change));
    let diff = of_deployments(Native, &before, &after);
    assert_eq!(diff.kind(), DiffType::SavepointRedeploy);
    let expected = "Diff: FlinkDeploymentSpec[image : a -> b, job.parallelism : 2 -> 3, job.upgradeMode : stateless -> \
                    last-state, job.savepointRedeployNonce : 1 -> 5, restartNonce : 1 -> 3, flinkConfiguration.b : null -> \
                    1, flinkConfiguration.z : null -> 1]";
    assert_eq!(diff.to_string(), expected);
    assert_eq!(diff.changes().len(), 7);
    let types = [
        DiffType::Ignore,
        DiffType::Scale,
        DiffType::Upgrade,
        DiffType::SavepointRedeploy,
    ];
    assert!(types.is_sorted());
    let names = types.map(|it| it.to_string());
    assert_eq!(names, ["IGNORE", "SCALE", "UPGRADE", "SAVEPOINT_REDEPLOY"]);
}

#[test]
fn session_jobs_are_compared_by_their_own_fields() {
    let read = |value: Value| serde_json::from_value::<FlinkSessionJobSpec>(value).unwrap();
    let before = read(json!({"deploymentName": "a", "job": {"parallelism": 1}}));
    for (after, native, standalone, text) in [
        (
            json!({"deploymentName": "b", "job": {"parallelism": 1}}),
            DiffType::Upgrade,
            DiffType::Upgrade,
            "deploymentName : a -> b",
        ),
        (
            json!({"deploymentName": "a", "job": {"parallelism": 2}}),
            DiffType::Upgrade,
            DiffType::Scale,
            "job.parallelism : 1 -> 2",
        ),
        (
            json!({"deploymentName": "a", "job": {"parallelism": 1}, "flinkConfiguration": {"kubernetes.operator.x": "y"}}),
            DiffType::Ignore,
            DiffType::Ignore,
            "flinkConfiguration.kubernetes.operator.x : null -> y",
        ),
    ] {
        let after = read(after);
        let diff = of_session_jobs(Native, &before, &after);
        assert_eq!(diff.kind(), native);
        assert_eq!(
            diff.to_string(),
            format!("Diff: FlinkSessionJobSpec[{text}]")
        );
        assert_eq!(
            of_session_jobs(Standalone, &before, &after).kind(),
            standalone
        );
    }
}

/// Upstream's own example (`SpecDiffTest.testPodTemplateChanges`).
#[test]
fn the_text_is_upstreams() {
    let left = deployment(json!({
        "image": "img1",
        "ingress": {"template": "temp"},
        "podTemplate": {"spec": {"hostname": "localhost1", "hostAliases": [{"hostnames": ["host1", "host2"], "ip": "ip"}]}},
    }));
    let right = deployment(json!({
        "image": "img2",
        "restartNonce": 1,
        "podTemplate": {"spec": {"hostname": "localhost2", "hostAliases": [{"hostnames": ["host1"], "ip": "ip"}]}},
    }));
    let expected = "Diff: FlinkDeploymentSpec[image : img1 -> img2, ingress : {..} -> null, \
                    podTemplate.spec.hostAliases.0.hostnames.1 : host2 -> null, podTemplate.spec.hostname : localhost1 -> \
                    localhost2, restartNonce : null -> 1]";
    assert_eq!(of_deployments(Native, &left, &right).to_string(), expected);
}
