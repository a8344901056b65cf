//! HorizontalPodAutoscalers of `autoscaling/v1`, which are stored as those of `autoscaling/v2`.
//!
//! The old version has a field for one metric only, the use of CPU. All other metrics, their states, the behaviour and
//! the conditions are annotations there, in upstream's form: a client of the old version keeps what it does not know.

use serde_json::{Map, Value, json};

use crate::server::meta;

const ANNOTATION_METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const ANNOTATION_CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const ANNOTATION_BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ANNOTATION_CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

const TARGET_CPU: &str = "targetCPUUtilizationPercentage";
const CURRENT_CPU: &str = "currentCPUUtilizationPercentage";
/// The use of CPU that an autoscaler without metrics aims at, in percent.
const DEFAULT_CPU: u32 = 80;

/// The fields of a kind of metric: the name in the old version, and the path in the new one.
type Fields = &'static [(&'static str, &'static [&'static str])];

/// What metrics should be, by kind.
const TARGETS: &[(&str, Fields)] = &[
    (
        "resource",
        &[
            ("name", &["name"]),
            (
                "targetAverageUtilization",
                &["target", "averageUtilization"],
            ),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", &["name"]),
            ("container", &["container"]),
            (
                "targetAverageUtilization",
                &["target", "averageUtilization"],
            ),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "object",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("targetValue", &["target", "value"]),
            ("averageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "external",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("targetValue", &["target", "value"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
];

/// What metrics are, by kind.
const CURRENT: &[(&str, Fields)] = &[
    (
        "resource",
        &[
            ("name", &["name"]),
            (
                "currentAverageUtilization",
                &["current", "averageUtilization"],
            ),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", &["name"]),
            ("container", &["container"]),
            (
                "currentAverageUtilization",
                &["current", "averageUtilization"],
            ),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "object",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
            ("currentValue", &["current", "value"]),
            ("averageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "external",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("currentValue", &["current", "value"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
];

/// From the old version to the stored one.
pub(super) fn to_stored(object: &mut Value) {
    let noted = take_annotations(object);
    let list = |key: &str| {
        noted
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let spec = meta::member(object, "spec");
    let mut metrics: Vec<Value> = list(ANNOTATION_METRICS)
        .map(|metric| with_target_type(to_new(metric, TARGETS)))
        .collect();
    if let Some(percent) = spec.remove(TARGET_CPU) {
        metrics.push(with_target_type(cpu("target", &percent)));
    }
    if metrics.is_empty() {
        metrics.push(with_target_type(cpu("target", &DEFAULT_CPU.into())));
    }
    spec.insert("metrics".into(), metrics.into());
    if let Some(behavior) = noted.get(ANNOTATION_BEHAVIOR) {
        spec.insert(
            "behavior".into(),
            renamed(behavior, char::to_ascii_lowercase),
        );
    }
    let mut current: Vec<Value> = list(ANNOTATION_CURRENT_METRICS)
        .map(|metric| to_new(metric, CURRENT))
        .collect();
    let percent = object.get_mut("status").and_then(Value::as_object_mut);
    let percent = percent.and_then(|status| status.remove(CURRENT_CPU));
    if let Some(percent) = percent.filter(|_| current.is_empty()) {
        current.push(cpu("current", &percent));
    }
    if !current.is_empty() {
        meta::member(object, "status").insert("currentMetrics".into(), current.into());
    }
    if let Some(conditions) = noted.get(ANNOTATION_CONDITIONS) {
        meta::member(object, "status").insert("conditions".into(), conditions.clone());
    }
}

/// From the stored version to the old one.
pub(super) fn to_served(object: &mut Value) {
    take_annotations(object);
    let mut notes: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let (of_cpu, others): (Vec<Value>, Vec<Value>) = take_list(spec, "metrics")
            .into_iter()
            .partition(|metric| is_cpu_use(metric, "target"));
        let percent = of_cpu
            .first()
            .and_then(|metric| metric.pointer(AVERAGE_TARGET));
        spec.extend(percent.map(|percent| (TARGET_CPU.to_owned(), percent.clone())));
        if !others.is_empty() {
            let others = others.iter().map(|metric| to_old(metric, TARGETS));
            notes.push((ANNOTATION_METRICS, others.collect()));
        }
        if let Some(behavior) = spec.remove("behavior") {
            let behavior = renamed(&behavior, char::to_ascii_uppercase);
            notes.push((ANNOTATION_BEHAVIOR, behavior));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = take_list(status, "currentMetrics");
        let of_cpu = current.iter().rfind(|metric| is_cpu_use(metric, "current"));
        let percent = of_cpu.and_then(|metric| metric.pointer(AVERAGE_CURRENT));
        status.extend(percent.map(|percent| (CURRENT_CPU.to_owned(), percent.clone())));
        if !current.is_empty() {
            let current = current.iter().map(|metric| to_old(metric, CURRENT));
            notes.push((ANNOTATION_CURRENT_METRICS, current.collect()));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            notes.push((ANNOTATION_CONDITIONS, conditions.into()));
        }
    }
    for (key, note) in notes {
        let annotations = meta::members(
            meta::metadata(object)
                .entry("annotations")
                .or_insert(Value::Null),
        );
        annotations.insert(key.to_owned(), note.to_string().into());
    }
}

const AVERAGE_TARGET: &str = "/resource/target/averageUtilization";
const AVERAGE_CURRENT: &str = "/resource/current/averageUtilization";

/// Takes the annotations that stand for fields off an object. Returns those that are JSON, decoded.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let metadata = meta::metadata(object);
    let mut found = Map::new();
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return found;
    };
    for key in [
        ANNOTATION_METRICS,
        ANNOTATION_CURRENT_METRICS,
        ANNOTATION_BEHAVIOR,
        ANNOTATION_CONDITIONS,
    ] {
        let text = annotations.remove(key);
        let decoded = text.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        found.extend(decoded.map(|decoded: Value| (key.to_owned(), decoded)));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    found
}

fn take_list(members: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match members.remove(key) {
        Some(Value::Array(items)) => items,
        Some(_) | None => Vec::new(),
    }
}

/// The use of CPU as a metric; `side` is `target` or `current`.
fn cpu(side: &str, percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", side: {"averageUtilization": percent}}})
}

fn is_cpu_use(metric: &Value, side: &str) -> bool {
    let resource = &metric["resource"];
    metric["type"] == "Resource"
        && resource["name"] == "cpu"
        && resource[side].get("averageUtilization").is_some()
}

/// A metric of the old version in the form of the new one.
fn to_new(metric: &Value, kinds: &[(&str, Fields)]) -> Value {
    let mut new = json!({"type": metric["type"]});
    for (kind, fields) in kinds {
        for (name, path) in *fields {
            if let Some(value) = metric.get(kind).and_then(|old| old.get(name)) {
                let place = path
                    .iter()
                    .fold(&mut new[*kind], |place, key| &mut place[*key]);
                *place = value.clone();
            }
        }
    }
    new
}

/// A metric of the new version in the form of the old one.
fn to_old(metric: &Value, kinds: &[(&str, Fields)]) -> Value {
    let mut old = json!({"type": metric["type"]});
    for (kind, fields) in kinds {
        for (name, path) in *fields {
            let value = path.iter().try_fold(metric.get(kind), |place, key| {
                place.map(|place| place.get(*key))
            });
            if let Some(value) = value.flatten() {
                old[*kind][*name] = value.clone();
            }
        }
    }
    old
}

/// Says what kind of value a metric aims at, which the old version leaves to be seen.
fn with_target_type(mut metric: Value) -> Value {
    for (kind, _) in TARGETS {
        let Some(target) = metric.get_mut(kind).and_then(|of| of.get_mut("target")) else {
            continue;
        };
        let has = |key: &str| target.get(key).is_some();
        let is_plain = match *kind {
            "object" => !has("averageValue"),
            _ => has("value"),
        };
        let name = match (has("averageUtilization"), is_plain) {
            (true, _) => "Utilization",
            (false, true) => "Value",
            (false, false) => "AverageValue",
        };
        target["type"] = name.into();
    }
    metric
}

/// The same with the first letter of each member's name changed: upstream writes the behaviour as Go names its fields.
fn renamed(value: &Value, change: fn(&char) -> char) -> Value {
    match value {
        Value::Object(members) => {
            let renamed = members.iter().map(|(key, value)| {
                let mut letters = key.chars();
                let first = letters.next().map(|first| change(&first));
                (
                    first.into_iter().chain(letters).collect(),
                    renamed(value, change),
                )
            });
            Value::Object(renamed.collect())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, change)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(mut object: Value) -> Value {
        to_stored(&mut object);
        object
    }

    fn served(mut object: Value) -> Value {
        to_served(&mut object);
        object
    }

    fn percent_of_cpu(percent: u32) -> Value {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    }

    #[test]
    fn the_use_of_cpu_is_a_field_of_the_old_version() {
        for (spec, percent, shown) in [
            (json!({TARGET_CPU: 50}), 50, 50),
            (json!({}), DEFAULT_CPU, DEFAULT_CPU),
        ] {
            let stored = stored(json!({"metadata": {"name": "a"}, "spec": spec}));
            let metrics = json!({"metrics": [percent_of_cpu(percent)]});
            assert_eq!(stored, json!({"metadata": {"name": "a"}, "spec": metrics}));
            let shown = json!({"metadata": {"name": "a"}, "spec": {TARGET_CPU: shown}});
            assert_eq!(served(stored), shown);
        }
    }

    #[test]
    fn what_the_old_version_does_not_know_survives_it() {
        let metric = json!({"name": "m", "selector": {"matchLabels": {"a": "b"}}});
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 5}}},
            {"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}},
            {"type": "Object", "object": {
                "describedObject": {"kind": "Service", "name": "s"}, "metric": metric, "target": {"type": "Value", "value": "2"}}},
            {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "3"}}},
            {"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "4"}}},
            percent_of_cpu(50),
        ]);
        let current = json!([
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "1"}}},
            {"type": "Object", "object": {
                "describedObject": {"kind": "Service", "name": "s"}, "metric": metric, "current": {"value": "2"}}},
        ]);
        let rules = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]});
        let object = json!({
            "metadata": {"name": "a", "annotations": {"mine": "stays"}},
            "spec": {"maxReplicas": 3, "metrics": metrics, "behavior": {"scaleDown": rules}},
            "status": {"currentReplicas": 1, "currentMetrics": current, "conditions": [{"type": "AbleToScale", "status": "True"}]},
        });
        let shown = served(object.clone());
        assert_eq!(shown["spec"], json!({"maxReplicas": 3, TARGET_CPU: 50}));
        assert_eq!(
            shown["status"],
            json!({"currentReplicas": 1, CURRENT_CPU: 7})
        );
        let note = |key: &str| -> Value {
            serde_json::from_str(shown["metadata"]["annotations"][key].as_str().unwrap()).unwrap()
        };
        let pods =
            json!({"metricName": "m", "selector": metric["selector"], "targetAverageValue": "1"});
        assert_eq!(
            note(ANNOTATION_METRICS)[2],
            json!({"type": "Pods", "pods": pods})
        );
        let policy = &note(ANNOTATION_BEHAVIOR)["ScaleDown"]["Policies"][0];
        assert_eq!(
            *policy,
            json!({"Type": "Pods", "Value": 4, "PeriodSeconds": 15})
        );
        assert_eq!(stored(shown), object);
    }

    #[test]
    fn annotations_that_are_no_json_count_for_nothing() {
        let object = json!({"metadata": {"annotations": {ANNOTATION_METRICS: "[", ANNOTATION_BEHAVIOR: "{"}}, "spec": {}});
        let expected = json!({"metadata": {}, "spec": {"metrics": [percent_of_cpu(DEFAULT_CPU)]}});
        assert_eq!(stored(object), expected);
    }
}
