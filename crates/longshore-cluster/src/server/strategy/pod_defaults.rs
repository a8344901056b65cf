//! Defaults of a pod specification.

use serde_json::{Map, Value, json};

use crate::server::meta;

/// Completes a pod specification: that of a pod, or of a template.
pub(crate) fn set_defaults(spec: &mut Value) {
    let members = meta::members(spec);
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        members.entry(key).or_insert(value);
    }
    mirror_service_account(members);
    drop_restart_policies(members);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(members, list) {
            set_container_defaults(container);
        }
    }
    for volume in items(members, "volumes") {
        set_volume_defaults(volume);
    }
    // A negative grace once meant none; now it is the shortest.
    if let Some(grace) = members.get_mut("terminationGracePeriodSeconds")
        && grace.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *grace = json!(1);
    }
    if members.get("hostNetwork") == Some(&json!(true)) {
        for list in ["initContainers", "containers"] {
            items(members, list).for_each(set_host_ports);
        }
    }
}

/// Takes away what Kubernetes 1.34 takes away as long as the feature `ContainerRestartRules` is off, as it is by default:
/// of the restart policies of containers it leaves that of sidecars.
fn drop_restart_policies(members: &mut Map<String, Value>) {
    for container in items(members, "initContainers") {
        let container = meta::members(container);
        if container.get("restartPolicy").and_then(Value::as_str) != Some("Always") {
            container.remove("restartPolicy");
        }
    }
    for container in items(members, "containers") {
        meta::members(container).remove("restartPolicy");
    }
}

/// On the network of the host, a port is the host's.
fn set_host_ports(container: &mut Value) {
    for port in items(meta::members(container), "ports") {
        let port = meta::members(port);
        let is_chosen = port.get("hostPort").is_some_and(|it| *it != 0);
        if let Some(number) = port.get("containerPort").filter(|_| !is_chosen).cloned() {
            port.insert("hostPort".into(), number);
        }
    }
}

/// Sets the defaults that admission sets in a pod, but not in a pod template.
pub(super) fn set_admission_defaults(spec: &mut Value) {
    let members = meta::members(spec);
    for (key, value) in [
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        members.entry(key).or_insert(value);
    }
    mirror_service_account(members);
    let tolerations = members.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerates = |toleration: &Value| {
            let effect = meta::text(toleration, "/effect");
            let tolerated = meta::text(toleration, "/key");
            (tolerated == key || tolerated.is_empty()) && matches!(effect, "" | "NoExecute")
        };
        if !tolerations.iter().any(tolerates) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// The old name of the field follows the new one.
fn mirror_service_account(spec: &mut Map<String, Value>) {
    let (old, new) = ("serviceAccount", "serviceAccountName");
    match (spec.get(old).cloned(), spec.get(new).cloned()) {
        (_, Some(name)) => spec.insert(old.into(), name),
        (Some(name), None) => spec.insert(new.into(), name),
        (None, None) => None,
    };
}

fn items<'a>(
    members: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> {
    members
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn set_container_defaults(container: &mut Value) {
    let image = meta::text(container, "/image").to_owned();
    let members = meta::members(container);
    let is_floating = !image.contains('@')
        && image
            .rsplit('/')
            .next()
            .is_some_and(|name| !name.contains(':') || name.ends_with(":latest"));
    let pull_policy = if is_floating {
        "Always"
    } else {
        "IfNotPresent"
    };
    for (key, value) in [
        ("imagePullPolicy", json!(pull_policy)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        members.entry(key).or_insert(value);
    }
    for port in items(members, "ports") {
        meta::members(port)
            .entry("protocol")
            .or_insert(json!("TCP"));
    }
    for variable in items(members, "env") {
        if let Some(Value::Object(field)) = variable.pointer_mut("/valueFrom/fieldRef") {
            field.entry("apiVersion").or_insert(json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = members.get_mut(probe) {
            set_probe_defaults(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        let request = members
            .get_mut("lifecycle")
            .and_then(|lifecycle| lifecycle.get_mut(hook))
            .and_then(|hook| hook.get_mut("httpGet"));
        if let Some(Value::Object(request)) = request {
            set_http_defaults(request);
        }
    }
    set_request_defaults(members);
}

fn set_http_defaults(request: &mut Map<String, Value>) {
    request.entry("path").or_insert(json!("/"));
    request.entry("scheme").or_insert(json!("HTTP"));
}

fn set_probe_defaults(probe: &mut Map<String, Value>) {
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        probe.entry(key).or_insert(value.into());
    }
    if let Some(Value::Object(request)) = probe.get_mut("httpGet") {
        set_http_defaults(request);
    }
    if let Some(Value::Object(call)) = probe.get_mut("grpc") {
        call.entry("service").or_insert(json!(""));
    }
}

/// A limit without a request is the request.
fn set_request_defaults(container: &mut Map<String, Value>) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = meta::members(resources.entry("requests").or_insert_with(|| json!({})));
    for (name, quantity) in limits {
        requests.entry(name).or_insert(quantity);
    }
}

fn set_volume_defaults(volume: &mut Value) {
    let members = meta::members(volume);
    let n_sources = members.keys().filter(|key| *key != "name").count();
    if n_sources == 0 {
        members.insert("emptyDir".into(), json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = members.get_mut(source) {
            source.entry("defaultMode").or_insert(json!(0o644));
        }
    }
    if let Some(Value::Object(path)) = members.get_mut("hostPath") {
        path.entry("type").or_insert(json!(""));
    }
    if let Some(Value::Object(source)) = members.get_mut("downwardAPI") {
        set_field_versions(source);
    }
    let Some(Value::Object(projected)) = members.get_mut("projected") else {
        return;
    };
    for source in items(projected, "sources") {
        if let Some(Value::Object(source)) = source.get_mut("downwardAPI") {
            set_field_versions(source);
        }
        if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
            token.entry("expirationSeconds").or_insert(json!(3600));
        }
    }
}

/// Files out of fields name the version that the fields are of.
fn set_field_versions(source: &mut Map<String, Value>) {
    for item in items(source, "items") {
        if let Some(Value::Object(field)) = item.get_mut("fieldRef") {
            field.entry("apiVersion").or_insert(json!("v1"));
        }
    }
}
