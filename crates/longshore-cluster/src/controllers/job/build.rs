//! A pod of a Job. Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    model::{Desired, Mode},
    pod::{COMPLETION_INDEX, FAILURE_COUNT, IGNORED_FAILURE_COUNT, failures_before},
    policy::{self, Outcome},
};
use crate::controllers::workloads::{FINALIZER_JOB_TRACKING, pods};

/// Names of pods end in five random characters; what comes before them is cut to this.
const LONGEST_BASE: usize = 58;
const VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// A pod, and of an indexed Job the pod of an index. `failed` is the last pod of that index, which has failed.
pub(super) fn pod(desired: &Desired, index: Option<usize>, failed: Option<&Pod>) -> Value {
    let job = desired.job.name();
    let reference = desired.job.as_controller("batch/v1", "Job");
    let mut pod = pods::from_template(desired.job.at("/spec/template"), reference);
    let finalizers = pod["metadata"]["finalizers"].as_array().cloned();
    let mut finalizers = finalizers.unwrap_or_default();
    if !finalizers.iter().any(|it| it == FINALIZER_JOB_TRACKING) {
        finalizers.push(json!(FINALIZER_JOB_TRACKING));
    }
    pod["metadata"]["finalizers"] = finalizers.into();
    let end = index.map_or_else(|| "-".to_owned(), |index| format!("-{index}-"));
    let cut = job.floor_char_boundary(LONGEST_BASE.saturating_sub(end.len()));
    pod["metadata"]["generateName"] = json!(format!("{}{end}", &job[..cut]));
    if let Some(index) = index {
        pod["metadata"]["annotations"][COMPLETION_INDEX] = json!(index.to_string());
        pod["metadata"]["labels"][COMPLETION_INDEX] = json!(index.to_string());
        pod["spec"]["hostname"] = json!(format!("{job}-{index}"));
        tell_index(&mut pod);
        if let Mode::Indexed { limit: Some(_), .. } = desired.mode {
            count_failures(desired, failed, &mut pod["metadata"]["annotations"]);
        }
    }
    pod
}

/// Containers learn their index, unless they have a variable of that name.
fn tell_index(pod: &mut Value) {
    let variable = json!({
        "name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{COMPLETION_INDEX}']")}},
    });
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut variables = container["env"].as_array().cloned().unwrap_or_default();
            if !variables.iter().any(|it| it["name"] == VARIABLE) {
                variables.push(variable.clone());
            }
            container["env"] = variables.into();
        }
    }
}

/// Each pod of an index knows the failures before it.
fn count_failures(desired: &Desired, failed: Option<&Pod>, annotations: &mut Value) {
    let (mut counted, mut ignored) = failed.map_or((0, 0), failures_before);
    if let Some(failed) = failed {
        if policy::of_failure(desired, failed) == Outcome::Ignored {
            ignored += 1;
        } else {
            counted += 1;
        }
    }
    annotations[FAILURE_COUNT] = json!(counted.to_string());
    if ignored > 0 {
        annotations[IGNORED_FAILURE_COUNT] = json!(ignored.to_string());
    }
}
