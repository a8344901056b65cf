//! Rows of all kinds.

use serde_json::json;

use super::*;
use crate::server::registry::Registry;

fn row(group_version: (&str, &str), plural: &str, mut object: Value) -> String {
    object["metadata"]["name"] = "a".into();
    object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    let registry = Registry::built_in(10);
    let (group, version) = group_version;
    let resource = registry.find(group, version, plural).unwrap().resource;
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    let cells = cells(&resource, &object, now);
    let texts: Vec<String> = cells
        .iter()
        .map(|cell| {
            cell.as_str()
                .map_or_else(|| cell.to_string(), str::to_owned)
        })
        .collect();
    texts.join("|")
}

#[test]
fn every_row_has_a_cell_for_each_column() {
    let now = Timestamp::UNIX_EPOCH;
    for served in Registry::built_in(10).all() {
        let resource = served.resource;
        let n_columns = columns(&resource).as_array().unwrap().len();
        let n_cells = cells(&resource, &json!({}), now).len();
        assert_eq!(n_cells, n_columns, "{}", resource.qualified());
    }
}

#[test]
fn pods_tell_how_they_are_doing() {
    let running =
        json!({"name": "main", "ready": true, "restartCount": 0, "state": {"running": {}}});
    let crashed = json!({
        "name": "main", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:04:30Z"}},
    });
    let ended = |terminated: Value| json!({"name": "main", "state": {"terminated": terminated}});
    let init = json!({"name": "i", "state": {"running": {}}});
    for (object, expected) in [
        (json!({"status": {"phase": "Pending"}}), "0/1|Pending|0"),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [running]}}),
            "1/1|Running|0",
        ),
        (
            json!({"status": {"phase": "Running", "containerStatuses": [crashed]}}),
            "0/1|CrashLoopBackOff|3 (30s ago)",
        ),
        (
            json!({"status": {"phase": "Succeeded", "containerStatuses": [ended(json!({"exitCode": 0, "reason": "Completed"}))]}}),
            "0/1|Completed|0",
        ),
        (
            json!({"status": {"phase": "Failed", "containerStatuses": [ended(json!({"exitCode": 7}))]}}),
            "0/1|ExitCode:7|0",
        ),
        (
            json!({"status": {"phase": "Pending", "initContainerStatuses": [init]}}),
            "0/1|Init:0/1|0",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}, "status": {"phase": "Running"}}),
            "0/1|Terminating|0",
        ),
        (
            json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
            "0/1|SchedulingGated|0",
        ),
    ] {
        let mut object = object;
        object["spec"] =
            json!({"containers": [{"name": "main"}], "initContainers": [{"name": "i"}]});
        let found = row(("", "v1"), "pods", object);
        assert_eq!(
            found,
            format!("a|{expected}|5m|<none>|<none>|<none>|<none>")
        );
    }
}

#[expect(clippy::too_many_lines, reason = "a table: a row for each kind")]
#[test]
fn other_kinds_show_what_matters_about_them() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let labels = json!({"matchLabels": {"x": "y"}});
    for (group_version, plural, object, expected) in [
        (
            ("", "v1"),
            "configmaps",
            json!({"data": {"a": "1"}, "binaryData": {"b": ""}}),
            "a|2|5m",
        ),
        (
            ("", "v1"),
            "secrets",
            json!({"type": "Opaque", "data": {"a": "1"}}),
            "a|Opaque|1|5m",
        ),
        (
            ("", "v1"),
            "namespaces",
            json!({"status": {"phase": "Active"}}),
            "a|Active|5m",
        ),
        (
            ("", "v1"),
            "nodes",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}}}),
            "a|Ready,SchedulingDisabled|control-plane|5m|v1|<none>|<none>|<unknown>|<unknown>|<unknown>",
        ),
        (
            ("", "v1"),
            "services",
            json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.7"], "ports": [{"port": 80, "protocol": "TCP"}],
                "selector": {"x": "y"}}}),
            "a|ClusterIP|10.96.0.7|<none>|80/TCP|5m|x=y",
        ),
        (
            ("apps", "v1"),
            "deployments",
            json!({"spec": {"replicas": 3, "template": template, "selector": labels},
                "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
            "a|1/3|2|0|5m|c|i|x=y",
        ),
        (
            ("batch", "v1"),
            "jobs",
            json!({"spec": {"completions": 2, "template": template},
                "status": {"succeeded": 1, "startTime": "2026-01-01T00:00:10Z"}}),
            "a|Running|1/2|4m50s|5m|c|i|<none>",
        ),
        (
            ("batch", "v1"),
            "cronjobs",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}}),
            "a|* * * * *|<none>|False|0|<none>|5m|c|i|<none>",
        ),
        (
            ("coordination.k8s.io", "v1"),
            "leases",
            json!({"spec": {"holderIdentity": "me"}}),
            "a|me|5m",
        ),
        (
            ("", "v1"),
            "events",
            json!({"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "Started",
                "message": "ok\n", "lastTimestamp": "2026-01-01T00:04:00Z", "firstTimestamp": "2026-01-01T00:03:00Z",
                "source": {"component": "node", "host": "h"}}),
            "60s|Normal|Started|pod/p||node, h|ok|2m|1|a",
        ),
        (
            ("rbac.authorization.k8s.io", "v1"),
            "roles",
            json!({}),
            "a|5m",
        ),
    ] {
        assert_eq!(row(group_version, plural, object), expected, "{plural}");
    }
}

#[test]
fn what_the_server_is_configured_by_tells_what_it_waits_for() {
    let flow = ("flowcontrol.apiserver.k8s.io", "v1");
    let services = ("apiregistration.k8s.io", "v1");
    let certificates = ("certificates.k8s.io", "v1");
    let level = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"queuing": {"queues": 64}}}});
    let condition = |kind: &str, status: &str, reason: &str| json!([{"type": kind, "status": status, "reason": reason}]);
    let service = json!({"service": {"namespace": "n", "name": "s"}});
    let request = json!({"signerName": "a/b", "username": "jane", "expirationSeconds": 3600});
    for (version, plural, object, expected) in [
        (services, "apiservices", json!({}), "a|Local|Unknown|5m"),
        (
            services,
            "apiservices",
            json!({"spec": service, "status": {"conditions": condition("Available", "False", "Down")}}),
            "a|n/s|False (Down)|5m",
        ),
        (
            services,
            "apiservices",
            json!({"status": {"conditions": condition("Available", "True", "Local")}}),
            "a|Local|True|5m",
        ),
        (
            flow,
            "flowschemas",
            json!({"spec": {"matchingPrecedence": 9, "priorityLevelConfiguration": {"name": "p"}}}),
            "a|p|9|<none>|5m|?",
        ),
        (
            flow,
            "flowschemas",
            json!({"spec": {"distinguisherMethod": {"type": "ByUser"}}, "status": {"conditions": condition("Dangling", "True", "")}}),
            "a||0|ByUser|5m|True",
        ),
        (
            flow,
            "prioritylevelconfigurations",
            json!({"spec": level}),
            "a|Limited|5|64|<none>|<none>|5m",
        ),
        (
            ("storage.k8s.io", "v1"),
            "csinodes",
            json!({"spec": {"drivers": [{}, {}]}}),
            "a|2|5m",
        ),
        (
            certificates,
            "certificatesigningrequests",
            json!({"spec": request, "status": {"conditions": condition("Approved", "True", ""), "certificate": "c"}}),
            "a|5m|a/b|jane|60m|Approved,Issued",
        ),
        (
            certificates,
            "certificatesigningrequests",
            json!({"status": {"conditions": condition("Failed", "True", "")}}),
            "a|5m|<none>||<none>|Pending,Failed",
        ),
    ] {
        assert_eq!(row(version, plural, object), expected, "{plural}");
    }
}
