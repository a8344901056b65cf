//! `longshore standalone` as people run it: a process on free ports, asked by the commands of the same program.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::{
    Api, Client, Config, ResourceExt,
    api::LogParams,
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::wait::{await_condition, conditions::is_pod_running},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    longshore,
    metrics_reference::all_is_in_the_reference,
    outcome,
    service_process::{Service, until},
};

const ETL: &str = r#"
dag_id: etl
params: {day: today}
tasks:
  extract:
    command: [sh, -c, 'echo "day {{ params.day }}"']
  load:
    depends_on: [extract]
    command: [sh, -c, 'echo one; echo two']
"#;

/// Its task ends when the file `go` exists, and notes each start and end.
const PATIENT: &str = r#"
dag_id: patient
workspace: true
tasks:
  wait:
    command: [sh, -c, 'cd "$LONGSHORE_WORKSPACE"; echo "start $LONGSHORE_TRY_NUMBER" >> ran; echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over; echo end >> ran']
"#;

pub(crate) fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// The file that the patient task writes, once it has begun.
fn ran(service: &Service) -> Option<PathBuf> {
    let volumes = fs::read_dir(service.data().join("node/volumes/longshore")).ok()?;
    let mut files = volumes.flatten().map(|volume| volume.path().join("ran"));
    files.find(|file| file.exists())
}

fn trigger_patient(service: &Service) -> PathBuf {
    let (code, _, stderr) = service.outcome("dags trigger patient --run-id r1");
    assert_eq!(code, 0, "{stderr}");
    until("the patient task runs", || ran(service).is_some());
    ran(service).unwrap()
}

fn let_it_go(ran: &Path) {
    fs::write(ran.with_file_name("go"), "").unwrap();
}

/// A command line, its exit code, and a part of what it prints. One after the other, on one service.
const ANSWERS: &[(&str, i32, &str)] = &[
    ("dags list -o name", 0, "etl\npatient\n"),
    ("dags show etl", 0, "extract"),
    ("dags show nope", 3, "error[LS1390]: there is no DAG nope"),
    (
        "dags trigger etl --run-id r1 --param day=monday",
        0,
        "run etl/r1 ",
    ),
    (
        "dags trigger etl --run-id r1",
        1,
        "error[LS1394]: the run etl/r1 exists already",
    ),
    ("runs watch etl/r1", 0, "run etl/r1 success"),
    ("runs list etl -o name", 0, "etl/r1\n"),
    ("runs get etl", 0, "success"),
    (
        "tasks list etl/r1 -o name",
        0,
        "etl/r1/extract\netl/r1/load\n",
    ),
    ("tasks get etl/r1/extract", 0, "success"),
    ("logs etl/r1/extract", 0, "day monday\n"),
    ("logs etl/r1/load --tail 1", 0, "two\n"),
    ("logs -f etl/r1/load", 0, "one\ntwo\n"),
    ("tasks clear etl/r1/load --yes -o name", 0, "etl/r1/load\n"),
    ("runs watch etl/r1", 0, "run etl/r1 success"),
    ("tasks get etl/r1/load -o json", 0, "\"tryNumber\":2"),
    ("tasks get etl/r1/extract -o json", 0, "\"tryNumber\":1"),
    ("runs retry etl/r1", 0, ""),
    ("dags pause etl", 0, "etl"),
    ("dags unpause etl", 0, "etl"),
    ("dags trigger patient --run-id r1", 0, "run patient/r1 "),
    ("runs cancel patient/r1 --yes", 0, "run patient/r1"),
    (
        "runs watch patient/r1",
        4,
        "error[LS1380]: run patient/r1 failed",
    ),
];

#[test]
fn dags_of_the_folder_are_shown_triggered_watched_and_cancelled() {
    let dags = folder_with(&[("etl.yaml", ETL), ("patient.yaml", PATIENT)]);
    let service = Service::start(dags.path(), &[]);
    for (line, code, expected) in ANSWERS {
        let (found, stdout, stderr) = service.outcome(line);
        assert_eq!(found, *code, "{line}\n{stdout}{stderr}");
        let is_there = stdout.contains(expected) || stderr.contains(expected);
        assert!(is_there, "{line}\n{stdout}{stderr}");
    }
    for line in [
        "dags list",
        "dags show etl",
        "dags pause etl",
        "dags unpause etl",
        "dags trigger etl --run-id r2",
        "runs list",
        "runs get etl/r1",
        "tasks list etl/r1",
        "tasks get etl/r1/load",
    ] {
        let (code, stdout, stderr) = service.outcome(&format!("{line} -o json"));
        assert_eq!(code, 0, "{line}\n{stderr}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        assert!(value.is_object(), "{line}: {stdout}");
    }
    let (_, stdout, _) = service.outcome("dags list -o json");
    let list: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(list["items"][0]["isPaused"], false);
    assert_eq!(list["items"][0]["file"], "etl.yaml");

    fs::write(dags.path().join("more.yaml"), ETL.replace("etl", "more")).unwrap();
    until("a new file is seen", || {
        service.outcome("dags list -o name").1.contains("more\n")
    });
}

/// Runs again and again, as soon as its last run is over.
const SCHEDULED: &str = r#"
dag_id: again
schedule: "@continuous"
start_date: 2026-11-01T00:00:00Z
max_active_runs: 1
tasks:
  tick:
    command: [sh, -c, 'echo tick']
"#;

#[test]
fn a_scheduled_dag_runs_by_itself_until_it_is_paused() {
    let dags = folder_with(&[("again.yaml", SCHEDULED)]);
    let mut service = Service::start(dags.path(), &[]);
    let runs = |service: &Service| {
        let (code, stdout, stderr) = service.outcome("runs list again -o json");
        assert_eq!(code, 0, "{stderr}");
        let list: Value = serde_json::from_str(&stdout).unwrap();
        list["items"].as_array().unwrap().clone()
    };
    let n_over = |service: &Service| {
        let is_over = |run: &&Value| run["state"] == "success" && run["runType"] == "scheduled";
        runs(service).iter().filter(is_over).count()
    };
    until("its schedule made runs", || n_over(&service) >= 2);
    service.kill();
    let n_before = {
        service.restart();
        n_over(&service)
    };
    until("its schedule goes on", || n_over(&service) > n_before);
    let (code, _, stderr) = service.outcome("dags pause again");
    assert_eq!(code, 0, "{stderr}");
    until("its last run is over", || {
        runs(&service).iter().all(|run| run["state"] == "success")
    });
    let n_runs = runs(&service).len();
    service.kill();
    service.restart();
    assert_eq!(runs(&service).len(), n_runs, "a pause outlives a kill");
    let (_, stdout, _) = service.outcome("logs again/latest/tick");
    assert_eq!(stdout, "tick\n");
    let (_, stdout, _) = service.outcome("dags show again -o json");
    let dag: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(dag["isPaused"], true);
}

#[test]
fn a_file_that_breaks_is_told_and_its_dag_stays() {
    let dags = folder_with(&[("etl.yaml", ETL)]);
    let service = Service::start(dags.path(), &[]);
    fs::write(
        dags.path().join("etl.yaml"),
        ETL.replace("command", "comand"),
    )
    .unwrap();
    until("the problem shows", || {
        service.outcome("dags show etl").1.contains("LS1302")
    });
    let (code, _, stderr) = service.outcome("dags trigger etl --run-id r1 --watch");
    assert_eq!(code, 0, "{stderr}");
    fs::remove_file(dags.path().join("etl.yaml")).unwrap();
    until("the file is missed", || {
        service.outcome("dags list -o name").1.is_empty()
    });
}

#[test]
fn a_log_is_followed_to_the_end_of_its_task() {
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let service = Service::start(dags.path(), &[]);
    let ran = trigger_patient(&service);
    let mut lines = service.lines("logs -f patient/r1/wait");
    assert_eq!(lines.next().unwrap(), "begun");
    let_it_go(&ran);
    assert_eq!(lines.next().unwrap(), "over");
    assert_eq!(lines.next(), None);
}

#[test]
fn its_kubeconfig_lets_a_client_in_and_is_for_its_owner_only() {
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let service = Service::start(dags.path(), &[]);
    let path = service.ready("kubeconfig");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ran = trigger_patient(&service);
    let pod = Runtime::new().unwrap().block_on(async {
        let kubeconfig = Kubeconfig::read_from(&path).unwrap();
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        let nodes = Api::<Node>::all(client.clone());
        assert_eq!(
            nodes.list(&Default::default()).await.unwrap().items.len(),
            1
        );
        // The certificates of the webhooks are not in the namespace of the user.
        let certificates = Api::<Secret>::namespaced(client.clone(), "kube-system");
        while certificates
            .get_opt("longshore-podops-certs")
            .await
            .unwrap()
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        let secrets = secrets.list(&Default::default()).await.unwrap().items;
        assert!(secrets.is_empty(), "{secrets:?}");
        // The pods of DAGs are not there either.
        let of_user = Api::<Pod>::default_namespaced(client.clone());
        let listed = of_user.list(&Default::default()).await.unwrap().items;
        assert!(listed.is_empty(), "{listed:?}");
        let pods = Api::<Pod>::namespaced(client, "longshore");
        let listed = pods.list(&Default::default()).await.unwrap().items;
        assert_eq!(listed.len(), 1);
        // The process writes its file before the node has said so.
        let name = listed[0].name_any();
        let runs = await_condition(pods, &name, is_pod_running());
        let runs = tokio::time::timeout(Duration::from_secs(30), runs).await;
        runs.expect("in time").unwrap()
    });
    let_it_go(&ran);
    assert!(pod.is_some(), "the pod is there while its task runs");
}

#[test]
fn it_runs_the_example_of_a_task_action() {
    let dags = folder_with(&[]);
    let service = Service::start(dags.path(), &[]);
    let path = service.ready("kubeconfig");
    let example = include_str!("../../../../examples/taskaction.yaml");
    let action: DynamicObject = serde_saphyr::from_str(example).unwrap();
    let kind = GroupVersionKind::gvk("flyte.org", "v1", "TaskAction");
    let kind = ApiResource::from_gvk(&kind);
    Runtime::new().unwrap().block_on(async {
        let kubeconfig = Kubeconfig::read_from(&path).unwrap();
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        let actions = Api::<DynamicObject>::default_namespaced_with(client.clone(), &kind);
        actions.create(&Default::default(), &action).await.unwrap();
        let is_labelled = |action: Option<&DynamicObject>| {
            let labels = action.and_then(|action| action.metadata.labels.as_ref());
            labels.is_some_and(|labels| labels.contains_key("flyte.org/termination-status"))
        };
        let ended = await_condition(actions, "hello-a0", is_labelled);
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
        let ended = ended.expect("in time").unwrap().unwrap();
        let status = &ended.data["status"];
        assert_eq!(status["pluginPhase"], "PhaseSuccess", "{status:#}");
        let pods = Api::<Pod>::default_namespaced(client);
        let pod = pods.get("hello-a0-0").await.unwrap();
        let container = &pod.spec.unwrap().containers[0].name;
        let log = LogParams {
            container: Some(container.clone()),
            ..LogParams::default()
        };
        let log = pods.logs("hello-a0-0", &log).await.unwrap();
        assert_eq!(log, "hello from a0 of hello\n");
    });
    let events = service
        .data()
        .join("actions/events/events-0000000001.jsonl");
    let events = fs::read_to_string(events).unwrap();
    assert_eq!(
        events.matches(r#""phase":"SUCCEEDED""#).count(),
        1,
        "{events}"
    );
}

#[test]
fn tasks_go_on_over_a_clean_stop_and_the_next_start_takes_them_over() {
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let mut service = Service::start(dags.path(), &[]);
    let ran = trigger_patient(&service);
    let (code, stderr) = service.stop();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("1 pod runs on"), "{stderr}");
    assert!(service.n_processes() > 0);
    // The task ends while no service runs.
    let_it_go(&ran);
    until("the task is over", || {
        fs::read_to_string(&ran).unwrap() == "start 1\nend\n"
    });
    service.restart();
    let (code, _, stderr) = service.outcome("runs watch patient/r1");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(service.outcome("logs patient/r1/wait").1, "begun\nover\n");
    until("no process is left", || service.n_processes() == 0);
}

#[test]
fn an_ephemeral_service_leaves_nothing() {
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let mut service = Service::start_ephemeral(dags.path());
    trigger_patient(&service);
    let (code, stderr) = service.stop();
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(service.n_processes(), 0);
    assert!(!service.data().exists());
}

/// What it answers to a plain GET on its port for health and metrics.
fn get(service: &Service, path: &str, host: &str) -> String {
    get_of(&service.ready("metrics"), path, host)
}

fn get_of(server: &str, path: &str, host: &str) -> String {
    let address = server.replace("http://", "");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn health_and_metrics_are_told_to_everybody_on_this_machine() {
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let service = Service::start(dags.path(), &[]);
    let ran = trigger_patient(&service);
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = get(&service, path, "localhost");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"),
            "{answer}"
        );
    }
    let checks = get(&service, "/readyz?verbose", "localhost");
    for check in ["database", "cluster", "scheduler", "shutdown"] {
        assert!(checks.contains(&format!("[+]{check} ok\n")), "{checks}");
    }
    until("the task is counted as running", || {
        get(&service, "/metrics", "localhost")
            .contains("longshore_task_instances{state=\"running\"} 1\n")
    });
    let metrics = get(&service, "/metrics", "localhost");
    for part in [
        "application/openmetrics-text",
        "longshore_pods_created_total{result=\"created\"} 1\n",
        "longshore_task_state_changes_total{from=\"queued\",to=\"running\"} 1\n",
        "longshore_api_requests_total{client=\"node\",verb=\"watch\",resource=\"pods\",code=\"200\"}",
        "controller_runtime_reconcile_total{controller=\"dags.scheduler\",result=\"success\"}",
        "workqueue_depth{name=\"dags.pods\"} ",
        "process_resident_memory_bytes ",
        "longshore_build_info{version=",
    ] {
        assert!(metrics.contains(part), "{part}\n{metrics}");
    }
    all_is_in_the_reference(&metrics);
    // A host name that a foreign web page could use to reach the service.
    let foreign = get(&service, "/metrics", "evil.example");
    assert!(foreign.contains("LS1802"), "{foreign}");
    // Workers have tokens of their own, and may come by any name.
    let server = service.ready("server");
    let health = get_of(&server, "/execution/health", "node.example");
    assert!(health.ends_with("{\"status\":\"healthy\"}"), "{health}");
    let_it_go(&ran);
}

/// Tasks that take a moment, in chains; each notes its starts and ends in a file of its own.
fn chains(n_lanes: usize, n_steps: usize) -> String {
    let mut dag = "dag_id: chains\nworkspace: true\ntasks:\n".to_owned();
    for lane in 0..n_lanes {
        for step in 0..n_steps {
            let script = "cd \"$LONGSHORE_WORKSPACE\"; f=$LONGSHORE_TASK_ID; echo \"start $LONGSHORE_TRY_NUMBER\" >> $f; sleep 0.3; echo end >> $f";
            dag.push_str(&format!(
                "  t{lane}_{step}:\n    retries: 2\n    command: [sh, -c, '{script}']\n"
            ));
            if step > 0 {
                dag.push_str(&format!("    depends_on: [t{lane}_{}]\n", step - 1));
            }
        }
    }
    dag
}

/// What the tasks have written.
fn written(service: &Service) -> Vec<String> {
    let volumes = fs::read_dir(service.data().join("node/volumes/longshore"));
    let folders = volumes.into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
    files
        .flatten()
        .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
        .collect()
}

/// Kills it whenever some more tasks have ended, and looks that each of them ran once.
pub(crate) fn survives_kills(more: &[&str]) {
    const LANES: usize = 4;
    const STEPS: usize = 4;
    let dags = folder_with(&[("chains.yaml", &chains(LANES, STEPS))]);
    let mut service = Service::start(dags.path(), more);
    let (code, _, stderr) = service.outcome("dags trigger chains --run-id r1");
    assert_eq!(code, 0, "{stderr}");
    for n_expected in [2, 6, 11] {
        let n_ended = |texts: Vec<String>| texts.iter().filter(|text| text.contains("end")).count();
        until("some tasks have ended", || {
            n_ended(written(&service)) >= n_expected
        });
        service.kill();
        service.restart();
    }
    let (code, _, stderr) = service.outcome("runs watch chains/r1");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(written(&service), vec!["start 1\nend\n"; LANES * STEPS]);
    until("no process is left", || service.n_processes() == 0);
}

#[test]
fn killed_in_the_middle_of_a_run_it_goes_on_and_runs_each_task_once() {
    survives_kills(&[]);
}

/// Starts one that must refuse, and returns what it says.
fn refusal(data: &Path, more: &[&str]) -> String {
    let mut command = longshore();
    command
        .args(["standalone", "--port", "0", "--kube-port", "0"])
        .args(["--metrics-port", "0", "--data-dir"])
        .arg(data)
        .args(more);
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    stderr
}

#[test]
fn what_stands_in_the_way_is_named() {
    let dags = folder_with(&[]);
    let service = Service::start(dags.path(), &[]);
    let in_use = refusal(service.data(), &[]);
    assert!(
        in_use.contains("error[LS1702]: the data directory "),
        "{in_use}"
    );
    assert!(
        in_use.contains(&format!("is in use by the process {}", service.id())),
        "{in_use}"
    );

    let port_of = |key: &str| service.ready(key).rsplit(':').next().unwrap().to_owned();
    for (flag, key, what) in [
        ("--port", "server", "the HTTP API"),
        ("--kube-port", "kubernetes", "the Kubernetes API"),
        ("--metrics-port", "metrics", "health and metrics"),
    ] {
        let (other, port) = (TempDir::new().unwrap(), port_of(key));
        let mut command = longshore();
        command
            .arg("standalone")
            .arg("--data-dir")
            .arg(other.path());
        for free in ["--port", "--kube-port", "--metrics-port"] {
            command.args([free, if free == flag { &port } else { "0" }]);
        }
        let (code, _, stderr) = outcome(&mut command);
        let expected = format!("error[LS1030]: cannot listen on 127.0.0.1:{port} for {what}");
        assert!(code == 1 && stderr.contains(&expected), "{stderr}");
        let help = format!("choose another port with {flag}; 0 takes any free one");
        assert!(stderr.contains(&help), "{stderr}");
    }

    let missing = refusal(
        TempDir::new().unwrap().path(),
        &["--dags-folder", "/nonexistent"],
    );
    assert!(
        missing.contains("error[LS1031]: the DAG folder /nonexistent"),
        "{missing}"
    );
    let url = "mysql://ann:s3cret@127.0.0.1/runs";
    let refused = refusal(TempDir::new().unwrap().path(), &["--database-url", url]);
    assert!(refused.contains("error[LS1704]"), "{refused}");
    assert!(refused.contains("must be postgres://"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
}

#[test]
fn a_damaged_cluster_is_refused_and_not_touched() {
    let dags = folder_with(&[]);
    let mut service = Service::start(dags.path(), &[]);
    assert_eq!(service.stop().0, Some(0));
    let directory = service.data().join("cluster");
    let files = fs::read_dir(&directory).unwrap().flatten();
    let file = files
        .map(|entry| entry.path())
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let length = fs::metadata(&file).unwrap().len();
    let junk = vec![0x5a; usize::try_from(length).unwrap()];
    fs::write(&file, &junk).unwrap();
    let stderr = refusal(service.data(), &[]);
    assert!(stderr.contains("error[LS1705]"), "{stderr}");
    assert!(stderr.contains("is damaged"), "{stderr}");
    assert!(fs::read(&file).unwrap() == junk, "the file was changed");
}

#[test]
fn on_postgres_too_it_survives_kills_of_its_own() {
    let Some(server) = crate::postgres::Server::start(true) else {
        return;
    };
    let url = server.tcp_url("admin", crate::postgres::PASSWORD, "postgres");
    survives_kills(&["--database-url", &url]);
}

#[test]
fn a_database_that_is_killed_in_the_middle_of_a_run_is_waited_for() {
    let Some(mut server) = crate::postgres::Server::start(true) else {
        return;
    };
    let dags = folder_with(&[("patient.yaml", PATIENT)]);
    let url = server.url("postgres");
    let service = Service::start(dags.path(), &["--database-url", &url]);
    let ran = trigger_patient(&service);
    server.kill();
    let_it_go(&ran);
    until("the task is over", || {
        fs::read_to_string(&ran).unwrap() == "start 1\nend\n"
    });
    let (code, _, stderr) = service.outcome("runs get patient/r1");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("error[LS1903]"), "{stderr}");
    server.start_again();
    until("the database is back", || {
        service.outcome("runs get patient/r1").0 == 0
    });
    let (code, _, stderr) = service.outcome("runs watch patient/r1");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(fs::read_to_string(&ran).unwrap(), "start 1\nend\n");
}
