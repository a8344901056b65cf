use std::{fs, path::Path};

use longshore_api::flink::{
    KIND_BLUE_GREEN_DEPLOYMENT, KIND_DEPLOYMENT, KIND_SESSION_JOB, KIND_STATE_SNAPSHOT,
};
use serde_json::{Value, json};

use super::*;

/// Reads an object as the type of its kind, writes it, and reads it again. Returns the debug text of the first reading
/// and what was written; nothing for kinds of others.
fn round_trip(object: &Value) -> Option<(String, Value)> {
    fn one<S: Serialize + DeserializeOwned + Default + PartialEq + std::fmt::Debug>(
        object: &Value,
    ) -> (String, Value) {
        let read: Manifest<S> = serde_json::from_value(object.clone()).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        let again: Manifest<S> = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(again, read);
        (format!("{read:?}"), written)
    }
    match object["kind"].as_str()? {
        KIND_DEPLOYMENT => Some(one::<FlinkDeploymentSpec>(object)),
        KIND_SESSION_JOB => Some(one::<FlinkSessionJobSpec>(object)),
        KIND_STATE_SNAPSHOT => Some(one::<FlinkStateSnapshotSpec>(object)),
        KIND_BLUE_GREEN_DEPLOYMENT => Some(one::<FlinkBlueGreenDeploymentSpec>(object)),
        _ => None,
    }
}

/// Whether everything of `part` is in `whole`, at the same place.
fn assert_within(part: &Value, whole: &Value, path: &str) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (key, value) in part {
                let found = whole.get(key).unwrap_or(&Value::Null);
                assert_within(value, found, &format!("{path}.{key}"));
            }
        }
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len(), "{path}");
            for (index, (one, two)) in part.iter().zip(whole).enumerate() {
                assert_within(one, two, &format!("{path}[{index}]"));
            }
        }
        // `cpu: 1` is a double, and a quantity becomes a text.
        (Value::Number(number), Value::String(text)) => assert_eq!(number.to_string(), *text),
        (Value::Number(one), Value::Number(two)) => {
            assert_eq!(one.as_f64(), two.as_f64(), "{path}")
        }
        _ => assert_eq!(part, whole, "{path}"),
    }
}

fn documents(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(folder);
    let mut documents = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if document["kind"].is_string() {
                documents.push((name.clone(), document));
            }
        }
    }
    documents
}

#[test]
fn every_manifest_of_upstream_survives_reading_and_writing() {
    let mut n_read = 0;
    for (name, document) in documents("manifests") {
        if let Some((debug, written)) = round_trip(&document) {
            assert_within(&document, &written, &name);
            assert_has_no_other(&debug, &name);
            n_read += 1;
        }
    }
    assert_eq!(n_read, 34);
}

#[test]
fn every_field_of_the_schemas_is_known_and_survives() {
    let documents = documents("full");
    assert_eq!(documents.len(), 4);
    for (name, document) in documents {
        let (debug, written) = round_trip(&document).unwrap();
        assert_within(&document, &written, &name);
        assert_has_no_other(&debug, &name);
    }
}

fn assert_has_no_other(debug: &str, name: &str) {
    assert!(debug.contains("other: {}"), "{name}: {debug}");
    let rest = debug.replace("other: {}", "");
    assert!(!rest.contains("other: {"), "{name}: {rest}");
}

#[test]
fn fields_of_other_versions_survive_at_every_level() {
    let object = json!({
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": "a", "annotations": {"x": "y"}},
        "spec": {
            "job": {"parallelism": 1, "newer": [1, {"a": null}]},
            "jobManager": {"resource": {"cpu": 0.5, "gpu": 1}, "newer": true},
            "taskManager": {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "newer": "x"}},
            "ingress": {"template": "t", "newer": {}},
            "newer": {"nested": "value"},
        },
    });
    let (_, written) = round_trip(&object).unwrap();
    assert_within(&object, &written, "");
    let job = &written["spec"]["job"];
    assert_eq!(job["state"], "running");
    assert_eq!(job["upgradeMode"], "stateless");
    assert_eq!(job["args"], json!([]));
    assert_eq!(written["spec"]["jobManager"]["replicas"], 1);
    assert_eq!(written["spec"]["flinkConfiguration"], json!({}));
}

#[test]
fn a_spec_is_written_with_upstreams_fields_in_upstreams_order() {
    let spec: FlinkDeploymentSpec = serde_json::from_value(json!({
        "mode": "native",
        "image": "flink:1.20",
        "flinkVersion": "v1_20",
        "serviceAccount": "flink",
        "flinkConfiguration": {"taskmanager.numberOfTaskSlots": 2, "a": {"c": true, "b": 1.5}},
        "jobManager": {"resource": {"memory": "2048m", "cpu": 1}},
        "taskManager": {"resources": {"requests": {"memory": "1Gi", "cpu": "0.5"}, "limits": {"cpu": 1}}},
        "job": {"jarURI": "local:///a.jar", "parallelism": 2, "upgradeMode": "last-state"},
    }))
    .unwrap();
    let expected = concat!(
        r#"{"job":{"jarURI":"local:///a.jar","parallelism":2,"entryClass":null,"args":[],"state":"running","#,
        r#""savepointTriggerNonce":null,"initialSavepointPath":null,"checkpointTriggerNonce":null,"#,
        r#""upgradeMode":"last-state","allowNonRestoredState":null,"savepointRedeployNonce":null,"#,
        r#""autoscalerResetNonce":null},"restartNonce":null,"#,
        r#""flinkConfiguration":{"a":{"b":1.5,"c":true},"taskmanager.numberOfTaskSlots":2},"image":"flink:1.20","#,
        r#""imagePullPolicy":null,"serviceAccount":"flink","flinkVersion":"v1_20","ingress":null,"podTemplate":null,"#,
        r#""jobManager":{"resource":{"cpu":1.0,"memory":"2048m","ephemeralStorage":null},"resources":null,"#,
        r#""replicas":1,"podTemplate":null},"taskManager":{"resource":null,"#,
        r#""resources":{"limits":{"cpu":"1"},"requests":{"cpu":"0.5","memory":"1Gi"}},"replicas":null,"#,
        r#""podTemplate":null},"logConfiguration":null,"mode":"native"}"#,
    );
    assert_eq!(crate::jackson::to_text(&spec), expected);
    let again: FlinkDeploymentSpec = serde_json::from_str(expected).unwrap();
    assert_eq!(crate::jackson::to_text(&again), expected);
}

#[test]
fn a_configuration_is_flattened_as_upstream_flattens_it() {
    let configuration: FlinkConfiguration = serde_json::from_str(
        r#"{
            "a": 1, "b": {"c": [1, 2], "d": {"e": "x"}}, "f": true, "g": 1.5, "h": null, "i": [], "j": {},
            "k": ["1", {"x": 1}, [2], null], "l.m": "flat", "l": {"m": "nested"}, "n": 10000000000, "o": 1e10,
            "p": "", "q": {"r.s": 3}
        }"#,
    )
    .unwrap();
    let expected = [
        ("a", "1"),
        ("b.c", "1;2"),
        ("b.d.e", "x"),
        ("f", "true"),
        ("g", "1.5"),
        ("h", "null"),
        ("k", "1;;;null"),
        ("l.m", "nested"),
        ("n", "10000000000"),
        ("o", "1.0E10"),
        ("p", ""),
        ("q.r.s", "3"),
    ];
    let flat = configuration.flat();
    let flat: Vec<(&str, &str)> = flat.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(flat, expected);
}

#[test]
fn versions_are_ordered_and_read_back() {
    assert!(FlinkVersion::ALL.is_sorted());
    for version in FlinkVersion::ALL {
        assert_eq!(version.as_str().parse(), Ok(version));
        assert_eq!(serde_json::to_value(version).unwrap(), version.as_str());
    }
    let error = "v3_0".parse::<FlinkVersion>().unwrap_err();
    let expected =
        "expected a version of Flink from v1_13 to v1_20 or from v2_0 to v2_4, found \"v3_0\"";
    assert_eq!(error.to_string(), expected);
    let supported = FlinkVersion::ALL.map(FlinkVersion::is_supported);
    assert_eq!(supported.iter().filter(|it| !**it).count(), 2);
    let deprecated = FlinkVersion::ALL.map(FlinkVersion::is_deprecated);
    assert_eq!(deprecated.iter().filter(|it| **it).count(), 6);
    let with_checkpoints = FlinkVersion::ALL.map(FlinkVersion::triggers_checkpoints);
    assert_eq!(with_checkpoints.iter().filter(|it| !**it).count(), 4);
}

#[test]
fn quantities_are_equal_by_their_amounts() {
    for (one, two, expected) in [
        ("1", "1000m", true),
        ("1Gi", "1024Mi", true),
        ("1G", "1Gi", false),
        ("x", "x", true),
        ("x", "1", false),
    ] {
        assert_eq!(
            QuantityText::from(one) == QuantityText::from(two),
            expected,
            "{one} {two}"
        );
    }
    let error = serde_json::from_value::<QuantityText>(json!({"a": 1})).unwrap_err();
    assert_eq!(error.to_string(), "expected a quantity, found {\"a\":1}");
}

#[test]
fn a_spec_with_a_value_of_another_type_is_an_error_that_names_its_kind() {
    for broken in [
        json!({"job": {"upgradeMode": "sometimes"}}),
        json!({"flinkVersion": "v1_99"}),
        json!({"mode": "hybrid"}),
        json!({"job": {"parallelism": "2"}}),
        json!({"flinkConfiguration": "a: b"}),
        json!([]),
    ] {
        let error = read_spec::<FlinkDeploymentSpec>(KIND_DEPLOYMENT, Some(&broken)).unwrap_err();
        let expected = "the spec of this FlinkDeployment cannot be read: expected one of flink.apache.org/v1beta1; correct \
                        the field that the cause names";
        assert_eq!(error.to_string(), expected, "{broken}");
        assert!(std::error::Error::source(&error).is_some());
    }
    let absent: FlinkDeploymentSpec = read_spec(KIND_DEPLOYMENT, None).unwrap();
    assert_eq!(absent, FlinkDeploymentSpec::default());
    let null: FlinkDeploymentSpec = read_spec(KIND_DEPLOYMENT, Some(&Value::Null)).unwrap();
    assert_eq!(null, absent);
}
