//! `longshore run --context` on a real API server: to the end, and stopped and gone on with.

use std::{fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use longshore_kit::SystemClock;
use longshore_node::{ContainerLogs, LogError, LogOptions, log_server::LogStream};
use longshore_test::{NodeConfig, RealNamespace, RealServer, ScriptedNode};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    cluster::real,
    longshore, outcome,
    run::{Background, result},
};

/// Each container says which one it is.
struct Logs;

#[async_trait]
impl ContainerLogs for Logs {
    async fn logs(
        &self,
        _namespace: &str,
        pod: &str,
        container: &str,
        _options: &LogOptions,
    ) -> Result<LogStream, LogError> {
        let line = format!("{container} of {pod}\n");
        Ok(Box::pin(futures::stream::iter([Ok(line
            .into_bytes()
            .into())])))
    }
}

const DAG: &str = r#"
dag_id: elsewhere
tasks:
  first: {image: scripted, command: [run, 300ms, exit, "0"]}
  second: {image: scripted, depends_on: [first], retries: 1, retry_delay: 1s, command: ["run 4s exit 0"]}
  third: {image: scripted, depends_on: [second], command: [run, 300ms, exit, "0"]}
"#;

/// The context of the kubeconfig, and the arguments that name it.
fn arguments(namespace: &str) -> Vec<String> {
    let kubeconfig = real().unwrap();
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let context = config["current-context"].as_str().unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    [
        "--context",
        context,
        "--kubeconfig",
        &kubeconfig,
        "-n",
        namespace,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn is_over_well(result: &Value) {
    assert_eq!(result["state"], "success", "{result}");
    for task in result["tasks"].as_array().unwrap() {
        assert_eq!(task["tryNumber"], 1, "{task}");
        let log = fs::read_to_string(Path::new(task["log"].as_str().unwrap())).unwrap();
        let id = task["taskId"].as_str().unwrap();
        assert!(
            log.starts_with(&format!("base of elsewhere-{id}-")),
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_another_cluster_ends_or_is_stopped_and_gone_on_with() {
    let Some(server) = RealServer::given() else {
        return;
    };
    let mut namespace = RealNamespace::create(&server, "context").await.unwrap();
    let config = namespace.add_node(Arc::new(Logs)).await.unwrap();
    let place = namespace.place();
    let config = NodeConfig {
        start_delay: Duration::from_millis(20),
        ..config
    };
    let node = ScriptedNode::start(place.client(), Arc::new(SystemClock), config);
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, DAG).unwrap();
    let arguments = arguments(place.namespace());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();

    let mut command = longshore();
    command
        .arg("run")
        .arg(&dag)
        .args(["-o", "json", "--data-dir"]);
    command.arg(&data).args(&arguments);
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 0, "{stderr}{stdout}");
    is_over_well(&result(&stdout).1);

    let mut stopped = Background::start(&dag, &data, &arguments);
    stopped.wait_until_it_runs("second");
    stopped.signal("INT");
    let (code, rest) = stopped.end();
    assert_eq!(code, 130, "{rest}");
    let (_, stopped) = result(&rest);
    let run_id = stopped["runId"].as_str().unwrap();
    let resume = stopped["resume"].as_str().unwrap();
    for part in &arguments {
        assert!(
            resume.contains(part.trim_start_matches("-n")),
            "{part}: {resume}"
        );
    }
    let mut command = longshore();
    command
        .arg("run")
        .arg(&dag)
        .args(["--resume", run_id, "-o", "json", "--data-dir"]);
    command.arg(&data).args(&arguments);
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 0, "{stderr}{stdout}");
    is_over_well(&result(&stdout).1);

    let tries = node.history();
    let of_run = tries
        .runs()
        .iter()
        .filter(|run| run.annotations["run_id"] == run_id);
    let mut ran: Vec<&str> = of_run.map(|run| run.labels["task_id"].as_str()).collect();
    ran.sort_unstable();
    assert_eq!(
        ran,
        ["first", "second", "second", "third"],
        "what was stopped runs again"
    );
    namespace.remove().await.unwrap();
    println!("real server: runs of another cluster");
}
