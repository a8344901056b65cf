//! Binding, logs, and the events that pods get.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Resource, ResourceExt,
    api::{Api as KubeApi, ListParams, LogParams},
    runtime::events::{Event as Announcement, EventType, Recorder, Reporter},
};
use longshore_cluster::{Cluster, LogError, LogOptions, LogStream, PodLogs};
use serde_json::{Value, json};

use crate::harness::{Api, PODS, pod};

#[tokio::test]
async fn a_pod_is_bound_once() {
    let api = Api::new(&Cluster::in_memory());
    api.make(PODS, pod("a")).await;
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}});
    let (code, status) = api
        .post(&format!("{PODS}/a/binding"), binding.clone())
        .await;
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (_, bound) = api.get(&format!("{PODS}/a")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["metadata"]["generation"], 1);
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}});
    let part = format!("{PODS}/a/ephemeralcontainers");
    let (_, debugged) = api.patch("strategic", &part, debugger).await;
    assert_eq!(debugged["metadata"]["generation"], 2);
    assert_eq!(api.post(&format!("{PODS}/a/binding"), binding).await.0, 409);
}

#[tokio::test]
async fn a_pod_is_of_a_runtime_class_that_exists_and_has_its_overhead() {
    let api = Api::new(&Cluster::in_memory());
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let overhead = json!({"cpu": "10m"});
    let class = json!({"metadata": {"name": "costly"}, "handler": "runc", "overhead": {"podFixed": overhead}});
    api.make(classes, class).await;
    let of = |class: Value, overhead: Value| {
        let mut pod = pod("a");
        pod["spec"]["runtimeClassName"] = class;
        pod["spec"]["overhead"] = overhead;
        pod
    };
    for (class, own, expected) in [
        (json!("costly"), Value::Null, Ok(&overhead)),
        (json!("costly"), overhead.clone(), Ok(&overhead)),
        (json!("costly"), json!({"cpu": "1"}), Err("doesn't match")),
        (Value::Null, Value::Null, Ok(&Value::Null)),
        (Value::Null, overhead.clone(), Err("without corresponding")),
        (
            json!("none"),
            Value::Null,
            Err("RuntimeClass \"none\" not found"),
        ),
    ] {
        let pod = of(class.clone(), own.clone());
        let (code, answer) = api.post(&format!("{PODS}?dryRun=All"), pod).await;
        let what = format!("{class} {own}: {answer}");
        match expected {
            Ok(overhead) => assert_eq!(
                (code, &answer["spec"]["overhead"]),
                (201, overhead),
                "{what}"
            ),
            Err(why) => {
                let message = answer["message"].as_str().unwrap();
                assert!(code == 403 && message.contains(why), "{what}");
            }
        }
    }
    api.delete(&format!("{classes}/costly"), Value::Null).await;
    let pod = of(json!("costly"), Value::Null);
    assert_eq!(api.post(PODS, pod).await.0, 403);
}

/// A source of logs whose log is the options of the request.
struct Echo;

#[async_trait]
impl PodLogs for Echo {
    async fn logs(&self, pod: &Value, options: LogOptions) -> Result<LogStream, LogError> {
        if options.previous {
            return Err(LogError::BadRequest(
                "previous terminated container not found".into(),
            ));
        }
        let line = format!(
            "{} {} {:?}\n",
            pod["metadata"]["name"].as_str().unwrap(),
            options.container.unwrap(),
            options.tail_lines
        );
        Ok(futures::stream::iter([Ok(line.into()), Ok("end".into())]).boxed())
    }
}

#[tokio::test]
async fn logs_come_from_whoever_runs_the_pod() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    api.make(PODS, pod("a")).await;
    assert_eq!(api.get(&format!("{PODS}/a/log")).await.0, 503);
    cluster.set_pod_logs(Arc::new(Echo));
    let pods: KubeApi<Pod> = KubeApi::default_namespaced(cluster.client());
    let params = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    assert_eq!(
        pods.logs("a", &params).await.unwrap(),
        "a main Some(3)\nend"
    );
    for (options, code) in [("previous=true", 400), ("container=x", 400)] {
        assert_eq!(
            api.get(&format!("{PODS}/a/log?{options}")).await.0,
            code,
            "{options}"
        );
    }
    assert_eq!(api.get(&format!("{PODS}/b/log")).await.0, 404);
}

#[tokio::test]
async fn events_are_the_same_objects_in_both_of_their_versions() {
    let cluster = Cluster::in_memory();
    let client = cluster.client();
    let pod: Pod = serde_json::from_value(Api::new(&cluster).make(PODS, pod("a")).await).unwrap();
    let reporter = Reporter {
        controller: "tester".into(),
        instance: None,
    };
    let announcement = Announcement {
        type_: EventType::Normal,
        reason: "Tested".into(),
        note: Some("it was tested".into()),
        action: "Testing".into(),
        secondary: None,
    };
    let recorder = Recorder::new(client.clone(), reporter);
    recorder
        .publish(&announcement, &pod.object_ref(&()))
        .await
        .unwrap();
    // A second time the same event is patched.
    recorder
        .publish(&announcement, &pod.object_ref(&()))
        .await
        .unwrap();

    let events: KubeApi<Event> = KubeApi::default_namespaced(client.clone());
    let about_pod =
        ListParams::default().fields(&format!("involvedObject.uid={}", pod.uid().unwrap()));
    let found = events.list(&about_pod).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message.as_deref(), Some("it was tested"));
    assert_eq!(found[0].reporting_component.as_deref(), Some("tester"));
    assert_eq!(found[0].involved_object.name.as_deref(), Some("a"));
    assert!(found[0].series.is_some());

    let newer: KubeApi<k8s_openapi::api::events::v1::Event> = KubeApi::default_namespaced(client);
    let about_pod = ListParams::default().fields("regarding.name=a,reportingController=tester");
    let found = newer.list(&about_pod).await.unwrap().items;
    assert_eq!(found[0].note.as_deref(), Some("it was tested"));
}

#[tokio::test]
async fn events_go_an_hour_after_their_last_write() {
    let minutes = Arc::new(AtomicI64::new(0));
    let time = Arc::clone(&minutes);
    let clock = move || Timestamp::from_second(time.load(Ordering::Relaxed) * 60).unwrap();
    let api = Api::new(&Cluster::builder().clock(Arc::new(clock)).build());
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str, count: u32| json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod"}, "count": count});
    let names = async || -> Vec<Value> {
        let (_, list) = api.get(events).await;
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["metadata"]["name"].clone())
            .collect()
    };
    for (name, minute) in [("old", 0), ("refreshed", 0), ("young", 30)] {
        minutes.store(minute, Ordering::Relaxed);
        api.make(events, event(name, 1)).await;
    }
    api.put(&format!("{events}/refreshed"), event("refreshed", 2))
        .await;
    minutes.store(61, Ordering::Relaxed);
    api.make(events, event("new", 1)).await;
    assert_eq!(names().await, ["new", "refreshed", "young"]);
    minutes.store(122, Ordering::Relaxed);
    api.make(events, event("newest", 1)).await;
    assert_eq!(names().await, ["newest"]);
}
