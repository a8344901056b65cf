//! What operators and authors give to `longshore controller` stays with them: a canary in every input is in no log, Event,
//! status, metric, command line, or file that another user of the machine may read.

use std::{fs, path::PathBuf};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::Client;
use longshore_api::flyte;
use longshore_proto::flyteidl2::core::{
    Container, KeyValuePair, TaskTemplate, task_template::Target,
};
use longshore_test::flyte::outputs;
use prost::Message;
use serde_json::{Value, json};

use super::replica::{Plan, Replica, page, until};
use crate::{
    canary::{files_with_one, found_of, no_command_line_has_one_of},
    cluster::TestCluster,
    longshore,
    metrics_reference::all_is_in_the_reference,
    outcome,
    task_actions::{TaskActions, action},
};

const PARAM: &str = "canary-of-a-param-1d55";
const ENV: &str = "canary-of-an-env-77b0";
const DEFAULT_ENV: &str = "canary-of-a-default-env-0ce9";
const STORE: &str = "canary-of-a-store-f3a4";
const EVENTS: &str = "canary-of-events-60d2";
const CACHE: &str = "canary-of-a-cache-b81c";
const CONNECTOR: &str = "canary-of-a-connector-4e9f";
const DATABASE: &str = "canary-of-a-database-a627";
const ALL: [&str; 8] = [
    PARAM,
    ENV,
    DEFAULT_ENV,
    STORE,
    EVENTS,
    CACHE,
    CONNECTOR,
    DATABASE,
];

/// A task that fails, with a canary in its parameter and another one in its environment.
const DAG: &str = r#"
dag_id: canary
schedule: '@once'
start_date: 2026-01-01
catchup: true
params: {secret: canary-of-a-param-1d55}
tasks:
  fails:
    image: scripted
    command: [run, 100ms, exit, "1"]
    env: {PARAM: "{{ params.secret }}", LITERAL: canary-of-an-env-77b0}
"#;

fn nothing_in(what: &str, text: &str) {
    assert_eq!(found_of(&ALL, text), [] as [&str; 0], "{what}: {text}");
}

/// Services and stores at an address without a server: requests to them fail, and the failure is logged and shown.
fn config() -> Value {
    json!({
        "executor": {"cacheServiceURL": format!("http://ann:{CACHE}@127.0.0.1:1")},
        "storage": {"type": "s3", "connection": {
            "auth-type": "accesskey", "access-key": "id", "secret-key": STORE,
            "endpoint": "http://127.0.0.1:1",
        }},
        "plugins": {
            "k8s": {"default-env-vars": {"DEFAULT": DEFAULT_ENV}},
            "connector-service": {
                "supportedTaskTypes": ["asked"],
                "connectors": {"c": {"endpoint": "127.0.0.1:1", "insecure": true, "defaultTimeout": "1s"}},
                "connectorForTaskTypes": {"asked": "c"},
            },
        },
    })
}

/// An action with a canary in its environment, which owes outputs.
fn given(name: &str, task_type: &str, is_cached: bool) -> Value {
    let mut action = action(name, 0, "run 100ms exit 0");
    let spec = &mut action["spec"];
    let template = BASE64_STANDARD.decode(spec["taskTemplate"].as_str().unwrap());
    let mut template = TaskTemplate::decode(template.unwrap().as_slice()).unwrap();
    task_type.clone_into(&mut template.r#type);
    template.interface = Some(outputs::interface());
    template.metadata.get_or_insert_default().discoverable = is_cached;
    template.target = Some(Target::Container(Container {
        image: "example.test/image:1".to_owned(),
        env: vec![KeyValuePair {
            key: "GIVEN".to_owned(),
            value: ENV.to_owned(),
        }],
        ..Container::default()
    }));
    spec["taskTemplate"] = json!(BASE64_STANDARD.encode(template.encode_to_vec()));
    spec["taskType"] = json!(task_type);
    spec["cacheKey"] = json!("1");
    // A store that is not configured. The task has no inputs, so its questions do not wait for them.
    spec["inputUri"] = json!("gs://nobody/inputs.pb");
    spec["runOutputBase"] = json!("s3://bucket/outputs");
    action
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// All Events of the cluster, and the status and metadata of what it has.
async fn said_in_the_cluster(client: &Client) -> String {
    let mut said = get(client, "/apis/events.k8s.io/v1/events")
        .await
        .to_string();
    let actions = format!("/apis/{}/{}/taskactions", flyte::GROUP, flyte::VERSION);
    for path in [
        actions.as_str(),
        "/api/v1/pods",
        "/api/v1/configmaps",
        "/apis/coordination.k8s.io/v1/leases",
    ] {
        for object in get(client, path).await["items"].as_array().unwrap() {
            said += &object["status"].to_string();
            said += &object["metadata"].to_string();
        }
    }
    said
}

/// Waits until the status of an action says this.
async fn until_status_says(actions: &TaskActions, name: &str, words: &str) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        let status = actions.get(name).await["status"].to_string();
        if status.contains(words) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{name} {words}: {status}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_to_the_controller_is_nowhere_where_others_may_read_it() {
    let cluster = TestCluster::embedded().await;
    let actions = TaskActions::install(&cluster).await;
    let mut plan = Plan::of(&cluster, "tasks");
    plan.more = ["--enable", "dags", "-vv"].map(str::to_owned).to_vec();
    let file = cluster.folder.path().join("config.yaml");
    fs::write(&file, config().to_string()).unwrap();
    plan.config = Some(file);
    let data = plan.data();
    fs::create_dir_all(data.join("dags")).unwrap();
    fs::write(data.join("dags/canary.yaml"), DAG).unwrap();
    let mut replica = plan.spawn("canary");
    let ready = replica.ready();
    until("it leads", || replica.leads()).await;
    for (name, task_type) in [("stored", "container"), ("asked", "asked")] {
        actions.create(&given(name, task_type, false)).await;
    }
    actions.create(&given("cached", "container", true)).await;
    until_status_says(&actions, "stored", "s3://bucket").await;
    until_status_says(&actions, "asked", "127.0.0.1:1").await;
    let runs = || {
        let mut command = longshore();
        command
            .args(["runs", "list", "-o", "json"])
            .env("LONGSHORE_DATA_DIR", &data);
        outcome(&mut command).1
    };
    until("the run fails", || runs().contains("\"failed\"")).await;
    until("the cache is missed", || {
        replica
            .log()
            .contains("http://127.0.0.1:1/flyteidl2.cacheservice")
    })
    .await;

    no_command_line_has_one_of(&ALL);
    let metrics = page(ready["metrics"].as_str().unwrap(), "/metrics").await;
    assert!(metrics.contains("longshore_"), "{metrics}");
    all_is_in_the_reference(&metrics);
    nothing_in("metrics", &metrics);
    nothing_in("the cluster", &said_in_the_cluster(&cluster.admin).await);
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
    nothing_in("the log", &replica.log());
    let mut files = Vec::new();
    files_with_one(&ALL, &data, true, &mut files);
    assert!(!files.is_empty(), "the database has the parameter");
    let open: Vec<&(PathBuf, bool)> = files.iter().filter(|(_, is_open)| *is_open).collect();
    assert!(open.is_empty(), "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_an_events_service_that_nobody_reaches_is_not_said() {
    let cluster = TestCluster::embedded().await;
    let actions = TaskActions::install(&cluster).await;
    let mut plan = Plan::of(&cluster, "tasks");
    plan.more = vec!["-vv".to_owned()];
    let file = cluster.folder.path().join("config.yaml");
    let url = format!("http://ann:{EVENTS}@127.0.0.1:1");
    let config = json!({"executor": {"EventsServiceURL": url}});
    fs::write(&file, config.to_string()).unwrap();
    plan.config = Some(file);
    let mut replica = plan.spawn("events");
    let ready = replica.ready();
    actions.create(&action("told", 0, "run 10ms exit 0")).await;
    // No status is written before its event is recorded.
    until("the service is missed", || {
        let missed =
            "http://127.0.0.1:1/flyteidl2.workflow.EventsProxyService/Record did not answer";
        replica.log().contains(missed)
    })
    .await;
    let metrics = page(ready["metrics"].as_str().unwrap(), "/metrics").await;
    nothing_in("metrics", &metrics);
    nothing_in("the cluster", &said_in_the_cluster(&cluster.admin).await);
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
    nothing_in("the log", &replica.log());
}

/// What the program says on stderr until it ends.
fn last_words(mut replica: Replica) -> String {
    no_command_line_has_one_of(&ALL);
    replica.wait();
    replica.log()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_named_without_its_keys() {
    let cluster = TestCluster::embedded().await;
    let key = format!("secret-key: {STORE}");
    let endpoint = |endpoint: &str| {
        json!({"plugins": {"connector-service": {"connectors": {"c": {"endpoint": endpoint}}}}})
            .to_string()
    };
    for (name, config, expected) in [
        (
            "no-yaml",
            format!("storage:\n  type: s3\n  connection:\n    {key}\n    region: [a\n"),
            "LS1007",
        ),
        (
            "no-section",
            format!("storage: {{connection: {STORE}}}"),
            "LS1008",
        ),
        (
            "a-user-of-a-store",
            format!(
                "storage: {{type: s3, connection: {{endpoint: 'http://id:{STORE}@store:9000'}}}}"
            ),
            "expected an endpoint as https://host:port",
        ),
        (
            "a-user-of-a-connector",
            endpoint(&format!("dns:///ann:{CONNECTOR}@connector:8000")),
            "expected an endpoint as host:port",
        ),
        (
            "a-password-of-a-connector",
            endpoint(&format!(":{CONNECTOR}@connector:8000")),
            "expected an endpoint as host:port",
        ),
        (
            "another-scheme",
            json!({"executor": {"EventsServiceURL": format!("ftp://ann:{EVENTS}@host")}})
                .to_string(),
            "expected an http:// or https:// URL",
        ),
        (
            "no-url",
            json!({"executor": {"cacheServiceURL": format!("ann:{CACHE}@host:1")}}).to_string(),
            "expected an http:// or https:// URL",
        ),
    ] {
        let mut plan = Plan::of(&cluster, "tasks");
        let file = cluster.folder.path().join(format!("{name}.yaml"));
        fs::write(&file, config).unwrap();
        plan.config = Some(file);
        let said = last_words(plan.spawn(name));
        assert!(said.contains(expected), "{name}: {said}");
        nothing_in(name, &said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_the_controllers_database_is_not_said() {
    let cluster = TestCluster::embedded().await;
    let file = cluster.folder.path().join("url");
    fs::write(
        &file,
        format!("postgres://ann:{DATABASE}@127.0.0.1:1/runs\n"),
    )
    .unwrap();
    let mut plan = Plan::of(&cluster, "dags");
    plan.more = ["-vv", "--database-url-file"].map(str::to_owned).to_vec();
    plan.more.push(file.display().to_string());
    let replica = plan.spawn("database");
    let at = || replica.log().contains("LS1704");
    until("it says what is wrong", at).await;
    no_command_line_has_one_of(&ALL);
    nothing_in("the log", &replica.log());
}
