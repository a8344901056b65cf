//! Watches: where they start, what they see, how they end.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api as KubeApi,
    runtime::{
        WatchStreamExt,
        watcher::{Config, InitialListStrategy, watcher},
    },
};
use longshore_cluster::{ApiBody, Cluster};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Api, CONFIG_MAPS, config_map, revision};

/// The lines of an open watch.
pub(crate) struct Lines {
    body: ApiBody,
    buffer: Vec<u8>,
}

impl Lines {
    /// A watch for metadata only.
    async fn open_metadata(cluster: &Cluster, path: &str) -> Lines {
        let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        let request = Request::get(path).header("accept", accept);
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = cluster.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Lines {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn open(api: &Api, path: &str) -> Lines {
        let response = api.send(Method::GET, path, "", Bytes::new()).await;
        assert_eq!(response.status(), 200);
        Lines {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    /// The next event; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// The next event in short: type, name and the value under `k`.
    async fn brief(&mut self) -> String {
        self.next()
            .await
            .map_or_else(|| "END".to_owned(), |event| brief(&event))
    }

    /// Whether nothing arrives for a while (of paused time).
    async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_secs(5), self.next())
            .await
            .is_err()
    }
}

fn brief(event: &Value) -> String {
    let object = &event["object"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    format!(
        "{} {} {}",
        text(&event["type"]),
        text(&object["metadata"]["name"]),
        text(&object["data"]["k"])
    )
}

fn watch(options: &str) -> String {
    format!("{CONFIG_MAPS}?watch=true{options}")
}

fn labelled(name: &str, value: &str, tier: &str) -> Value {
    let mut object = config_map(name, value);
    object["metadata"]["labels"] = json!({"tier": tier});
    object
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_revision_starts_with_the_state() {
    let api = Api::new(&Cluster::in_memory());
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    for options in ["", "&resourceVersion=0"] {
        let mut lines = Lines::open(&api, &watch(options)).await;
        assert_eq!(lines.brief().await, "ADDED a 1");
        assert!(lines.is_quiet().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_revision_replays_what_came_after_it_and_goes_on() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    api.put(&format!("{CONFIG_MAPS}/a"), config_map("a", "2"))
        .await;
    let (_, gone) = api.delete(&format!("{CONFIG_MAPS}/b"), json!(null)).await;
    assert_eq!(gone["status"], "Success");
    let from = format!("&resourceVersion={}", revision(&a));
    let mut lines = Lines::open(&api, &watch(&from)).await;
    for expected in ["ADDED b 1", "MODIFIED a 2", "DELETED b 1"] {
        assert_eq!(lines.brief().await, expected);
    }
    assert!(lines.is_quiet().await);
    let c = api.make(CONFIG_MAPS, config_map("c", "1")).await;
    let event = lines.next().await.unwrap();
    assert_eq!(
        (brief(&event).as_str(), revision(&event["object"])),
        ("ADDED c 1", revision(&c))
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_carries_its_own_revision() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let mut lines = Lines::open(&api, &watch(&format!("&resourceVersion={}", revision(&a)))).await;
    api.delete(&format!("{CONFIG_MAPS}/a"), json!(null)).await;
    let event = lines.next().await.unwrap();
    assert_eq!(revision(&event["object"]), revision(&a) + 1);
    assert_eq!(event["object"]["metadata"]["uid"], a["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_start_or_stop_matching_are_added_and_deleted() {
    let api = Api::new(&Cluster::in_memory());
    let mut lines = Lines::open(&api, &watch("&labelSelector=tier%3Dx")).await;
    let path = format!("{CONFIG_MAPS}/a");
    api.make(CONFIG_MAPS, labelled("a", "1", "y")).await;
    api.put(&path, labelled("a", "2", "x")).await;
    api.put(&path, labelled("a", "3", "x")).await;
    let (_, left) = api.put(&path, labelled("a", "4", "y")).await;
    api.put(&path, labelled("a", "5", "y")).await;
    api.put(&path, labelled("a", "6", "x")).await;
    assert_eq!(lines.brief().await, "ADDED a 2");
    assert_eq!(lines.brief().await, "MODIFIED a 3");
    let departed = lines.next().await.unwrap();
    assert_eq!(brief(&departed), "DELETED a 3");
    assert_eq!(departed["object"]["metadata"]["labels"]["tier"], "x");
    assert_eq!(revision(&departed["object"]), revision(&left));
    assert_eq!(lines.brief().await, "ADDED a 6");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_at_the_end() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let options = format!(
        "&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=130",
        revision(&a)
    );
    let mut lines = Lines::open(&api, &watch(&options)).await;
    // Another resource moves the revision on.
    let secret = api
        .make(
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "s"}}),
        )
        .await;
    let started = tokio::time::Instant::now();
    for seconds in [60, 120, 130] {
        let bookmark = lines.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
        assert_eq!(revision(&bookmark["object"]), revision(&secret));
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
    assert_eq!(lines.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let options =
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Lines::open(&api, &watch(options)).await;
    assert_eq!(lines.brief().await, "ADDED a 1");
    let bookmark = lines.next().await.unwrap();
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(revision(&bookmark["object"]), revision(&a));
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    assert_eq!(lines.brief().await, "ADDED b 1");

    let (code, status) = api.get(&watch("&sendInitialEvents=true")).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn compacted_revisions_answer_410_inside_the_stream() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let mut open = Lines::open(&api, &watch(&format!("&resourceVersion={}", revision(&a)))).await;
    cluster.expire_watches();
    for lines in [
        &mut open,
        &mut Lines::open(&api, &watch(&format!("&resourceVersion={}", revision(&a)))).await,
    ] {
        let event = lines.next().await.unwrap();
        assert_eq!(event["type"], "ERROR");
        assert_eq!(
            (&event["object"]["code"], &event["object"]["reason"]),
            (&json!(410), &json!("Expired"))
        );
        assert_eq!(lines.next().await, None);
    }
    let (_, list) = api.get(CONFIG_MAPS).await;
    let mut lines = Lines::open(
        &api,
        &watch(&format!("&resourceVersion={}", revision(&list))),
    )
    .await;
    assert!(lines.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_slower_than_the_window_is_closed() {
    let api = Api::new(&Cluster::builder().watch_window(10).build());
    let a = api.make(CONFIG_MAPS, config_map("a", "0")).await;
    let from = format!("&resourceVersion={}", revision(&a));
    let mut lines = Lines::open(&api, &watch(&from)).await;
    for value in 0..20 {
        api.put(
            &format!("{CONFIG_MAPS}/a"),
            config_map("a", &format!("v{value}")),
        )
        .await;
    }
    assert_eq!(lines.next().await, None);
    let event = Lines::open(&api, &watch(&from)).await.next().await.unwrap();
    assert_eq!(event["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn the_events_that_are_remembered_have_a_bound_in_bytes() {
    const HALF_A_MEBIBYTE: usize = 1 << 19;
    let api = Api::new(&Cluster::in_memory());
    let mut revisions = Vec::new();
    for value in 0..30 {
        let value = value.to_string().repeat(HALF_A_MEBIBYTE);
        let value = &value[..HALF_A_MEBIBYTE];
        let path = format!("{CONFIG_MAPS}/a");
        let map = match revisions.len() {
            0 => api.make(CONFIG_MAPS, config_map("a", value)).await,
            _ => api.put(&path, config_map("a", value)).await.1,
        };
        revisions.push(revision(&map));
    }
    let first = async |from: u64| {
        let watch = watch(&format!("&resourceVersion={from}"));
        Lines::open(&api, &watch).await.next().await.unwrap()
    };
    assert_eq!(first(revisions[0]).await["object"]["code"], 410);
    let event = first(revisions[19]).await;
    assert_eq!(revision(&event["object"]), revisions[20]);
}

#[tokio::test(start_paused = true)]
async fn revisions_of_the_future_are_waited_for_and_then_refused() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let future = revision(&a) + 1;
    for path in [
        watch(&format!("&resourceVersion={future}")),
        format!("{CONFIG_MAPS}?resourceVersion={future}"),
    ] {
        let started = tokio::time::Instant::now();
        let (code, status) = api.get(&path).await;
        assert_eq!(
            (code, &status["reason"]),
            (504, &json!("Timeout")),
            "{status}"
        );
        assert_eq!(
            status["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
        assert_eq!(started.elapsed().as_secs(), 3);
    }
    let path = format!("{CONFIG_MAPS}/a?resourceVersion={future}");
    let (answer, _) = tokio::join!(api.get(&path), api.make(CONFIG_MAPS, config_map("b", "1")));
    assert_eq!(answer.0, 200);
}

#[tokio::test(start_paused = true)]
async fn one_object_can_be_watched_by_name() {
    let api = Api::new(&Cluster::in_memory());
    let mut lines = Lines::open(&api, &watch("&fieldSelector=metadata.name%3Db")).await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    assert_eq!(lines.brief().await, "ADDED b 1");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_idle_marks_its_place_and_ends_all_the_same() {
    let api = Api::new(&Cluster::in_memory());
    let a = api.make(CONFIG_MAPS, config_map("a", "0")).await;
    // Nothing matches, but something changes every second.
    let options = format!(
        "&resourceVersion={}&labelSelector=no%3Dmatch&allowWatchBookmarks=true&timeoutSeconds=100",
        revision(&a)
    );
    let mut lines = Lines::open(&api, &watch(&options)).await;
    let writer = tokio::spawn(async move {
        for value in 1..1000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            api.put(
                &format!("{CONFIG_MAPS}/a"),
                config_map("a", &value.to_string()),
            )
            .await;
        }
    });
    for _ in 0..2 {
        assert_eq!(lines.next().await.unwrap()["type"], "BOOKMARK");
    }
    assert_eq!(lines.next().await, None);
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_long_backlog_arrives_whole() {
    let api = Api::new(&Cluster::in_memory());
    let start = api.make(CONFIG_MAPS, config_map("a", "0")).await;
    for value in 1..=1000 {
        api.put(
            &format!("{CONFIG_MAPS}/a"),
            config_map("a", &value.to_string()),
        )
        .await;
    }
    let mut lines = Lines::open(
        &api,
        &watch(&format!("&resourceVersion={}", revision(&start))),
    )
    .await;
    for value in 1..=1000 {
        assert_eq!(lines.brief().await, format!("MODIFIED a {value}"));
    }
    assert!(lines.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn kube_watchers_recover_whatever_the_way_they_list() {
    for strategy in [
        InitialListStrategy::ListWatch,
        InitialListStrategy::StreamingList,
    ] {
        let cluster = Cluster::in_memory();
        let api = Api::new(&cluster);
        api.make(CONFIG_MAPS, config_map("a", "1")).await;
        let maps: KubeApi<ConfigMap> = KubeApi::default_namespaced(cluster.client());
        let config = Config {
            initial_list_strategy: strategy.clone(),
            ..Config::default()
        };
        let mut objects = watcher(maps, config)
            .default_backoff()
            .applied_objects()
            .boxed();
        let mut expect = async |value: &str| loop {
            // Errors in between are part of recovering.
            if let Some(Ok(object)) = objects.next().await
                && object.data.unwrap()["k"] == value
            {
                break;
            }
        };
        expect("1").await;
        api.put(&format!("{CONFIG_MAPS}/a"), config_map("a", "2"))
            .await;
        expect("2").await;
        cluster.expire_watches();
        api.put(&format!("{CONFIG_MAPS}/a"), config_map("a", "3"))
            .await;
        expect("3").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_for_metadata_has_the_events_of_the_objects_with_exactly_their_metadata() {
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    let mut whole = Lines::open(&api, &watch("")).await;
    let mut metadata = Lines::open_metadata(&cluster, &watch("")).await;
    let mut object = config_map("a", "\"metadata\":{}}");
    object["metadata"]["annotations"] = json!({"odd": "}],\"kind\":\"\\\""});
    let made = api.make(CONFIG_MAPS, object).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut changed = made.clone();
    changed["metadata"]["labels"] = json!({"l": "v"});
    api.put(&path, changed).await;
    api.delete(&path, json!({})).await;
    for event in ["ADDED", "MODIFIED", "DELETED"] {
        let (whole, metadata) = (whole.next().await.unwrap(), metadata.next().await.unwrap());
        assert_eq!(
            (&whole["type"], &metadata["type"]),
            (&json!(event), &json!(event))
        );
        let expected = json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": whole["object"]["metadata"],
        });
        assert_eq!(metadata["object"], expected);
    }
}
