//! The pods that a TaskAction has made: its logs are theirs.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use longshore_api::{
    airflow::LABEL_TI_ID,
    flyte::{ANNOTATION_PRIMARY_CONTAINER, LABEL_ATTEMPT},
};
use uuid::Uuid;

/// A pod, and the container in it whose log is that of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPod {
    /// Its name.
    pub name: String,
    /// The container; `None` where it has one only.
    pub container: Option<String>,
}

/// The pod of the last attempt of a try's TaskAction; `None` where there is none, or none any more.
///
/// Pods carry the labels of their TaskAction. Where an attempt has several, it is the one with a primary container, else
/// the oldest: a driver is there before what it starts.
pub async fn pod_of(pods: &Api<Pod>, ti_id: &Uuid) -> Result<Option<TaskPod>, kube::Error> {
    let of_try = ListParams::default().labels(&format!("{LABEL_TI_ID}={ti_id}"));
    Ok(choose(&pods.list(&of_try).await?.items))
}

fn choose(pods: &[Pod]) -> Option<TaskPod> {
    let primary = |pod: &Pod| pod.annotations().get(ANNOTATION_PRIMARY_CONTAINER).cloned();
    let attempt = |pod: &Pod| pod.labels().get(LABEL_ATTEMPT)?.parse::<u32>().ok();
    let begun_at = |pod: &Pod| pod.creation_timestamp().map(|at| at.0);
    let pod = pods.iter().min_by_key(|pod| {
        let last = std::cmp::Reverse(attempt(pod));
        (last, primary(pod).is_none(), begun_at(pod), pod.name_any())
    })?;
    let containers = pod.spec.as_ref().map(|spec| &spec.containers);
    let first = containers.and_then(|containers| Some(containers.first()?.name.clone()));
    Some(TaskPod {
        name: pod.name_any(),
        container: primary(pod).or(first),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, attempt: &str, second: u32, annotations: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"attempt": attempt}, "annotations": annotations,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"containers": [{"name": "first"}, {"name": "second"}]},
        }))
        .unwrap()
    }

    fn chosen(pods: &[Pod]) -> Option<(String, String)> {
        choose(pods).map(|pod| (pod.name, pod.container.unwrap_or_default()))
    }

    #[test]
    fn the_log_is_that_of_the_main_container_of_the_last_attempt() {
        let main = json!({"primary_container_name": "second"});
        let pods = [
            pod("a-1", "2", 5, &json!({})),
            pod("a-0", "1", 1, &main),
            pod("a-2", "2", 4, &json!({})),
            pod("a-3", "2", 9, &main),
        ];
        let found = |name: &str, container: &str| Some((name.to_owned(), container.to_owned()));
        assert_eq!(chosen(&pods), found("a-3", "second"));
        assert_eq!(chosen(&pods[..3]), found("a-2", "first"));
        assert_eq!(chosen(&pods[..2]), found("a-1", "first"));
        assert_eq!(chosen(&[]), None);
    }
}
