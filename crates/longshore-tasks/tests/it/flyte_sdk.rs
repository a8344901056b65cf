//! The connector server of the Flyte SDK, asked by the executor's own client. Skipped where `LONGSHORE_TEST_FLYTE_SDK`
//! names no virtual environment; `cargo xtask flyte-sdk` makes one.

use longshore_outbound::Permit;
use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use longshore_plugins::{Answer, Call, Category, ConnectorConfig, Request};
use longshore_proto::{
    flyteidl2::{
        connector::{CreateTaskRequest, DeleteTaskRequest, GetTaskRequest, TaskCategory},
        core::{TaskTemplate, task_execution::Phase},
    },
    from_json,
};
use longshore_tasks::remote::{AskConnectors, ConnectorError, GrpcConnectors};
use serde_json::json;
use tokio::{net::TcpStream, time::sleep};

const TASK_TYPE: &str = "counting";
/// Where the connector of these tests is.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/connector");

/// `c0` of the SDK, with the connector of these tests.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    async fn start(venv: &Path) -> Self {
        // It cannot tell which ports it took: these were free a moment ago.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, metrics] = free.map(|free| free.local_addr().unwrap().port());
        let child = Command::new(venv.join("bin/c0"))
            .args(["--port", &port.to_string()])
            .args(["--prometheus_port", &metrics.to_string()])
            .args(["--modules", "counting_connector"])
            .current_dir(MODULES)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        let server = Self { child, address };
        for _ in 0..600 {
            if TcpStream::connect(&server.address).await.is_ok() {
                return server;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("the connector server does not listen");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(request: Request) -> Call {
    Call {
        category: Category {
            task_type: TASK_TYPE.to_owned(),
            ..Category::default()
        },
        connector: None,
        request,
    }
}

fn category() -> Option<TaskCategory> {
    Some(TaskCategory {
        name: TASK_TYPE.to_owned(),
        version: 0,
    })
}

async fn ask(
    connectors: &GrpcConnectors,
    request: Request,
) -> Result<Option<Answer>, ConnectorError> {
    let call = call(request);
    tokio::select! {
        answer = connectors.ask(&call) => answer,
        () = connectors.follow() => panic!("it stopped following"),
    }
}

async fn begin(
    connectors: &GrpcConnectors,
    prefix: &str,
) -> Result<Option<Answer>, ConnectorError> {
    let template: TaskTemplate = from_json(&json!({
        "type": TASK_TYPE, "interface": {"inputs": {}, "outputs": {}},
    }))
    .unwrap();
    let request = CreateTaskRequest {
        output_prefix: prefix.to_owned(),
        template: Some(template),
        ..CreateTaskRequest::default()
    };
    ask(connectors, Request::Create(Box::new(request))).await
}

#[tokio::test]
async fn a_connector_of_the_sdk_begins_tells_of_and_ends_a_job() {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(venv) = std::env::var_os("LONGSHORE_TEST_FLYTE_SDK") else {
        println!("skipped: LONGSHORE_TEST_FLYTE_SDK is not set (`cargo xtask flyte-sdk`)");
        return;
    };
    let server = Server::start(Path::new(&venv)).await;
    let mut config = ConnectorConfig::default();
    let mut deployment = config.default_connector.clone();
    deployment.endpoint.clone_from(&server.address);
    config.connectors.insert("sdk".to_owned(), deployment);
    let connectors = GrpcConnectors::new(&config, &Permit::always()).unwrap();

    let begun = begin(&connectors, "file:///job").await.unwrap();
    let Some(Answer::Created {
        response: begun, ..
    }) = begun
    else {
        panic!("expected a job, found {begun:?}");
    };
    let get = || {
        Request::Get(Box::new(GetTaskRequest {
            resource_meta: begun.resource_meta.clone(),
            task_category: category(),
            ..GetTaskRequest::default()
        }))
    };
    let mut told = Vec::new();
    for _ in 0..2 {
        let answer = ask(&connectors, get()).await.unwrap();
        let Some(Answer::Told { response, by, .. }) = answer else {
            panic!("expected that it was told of, found {answer:?}");
        };
        assert_eq!(by.name, "sdk");
        told.push(response.resource.unwrap());
    }
    let phases = [told[0].phase(), told[1].phase()];
    assert_eq!(phases, [Phase::Running, Phase::Succeeded]);
    assert_eq!(told[0].message, "under way");
    let outputs = told[1].outputs.as_ref().unwrap();
    assert_eq!(outputs.literals[0].name, "n");

    for _ in 0..2 {
        let request = DeleteTaskRequest {
            resource_meta: begun.resource_meta.clone(),
            task_category: category(),
            ..DeleteTaskRequest::default()
        };
        let ended = ask(&connectors, Request::Delete(Box::new(request))).await;
        assert_eq!(ended.unwrap(), None);
    }
    let refused = begin(&connectors, "file:///refused").await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("gRPC status internal"), "{refused}");
    assert!(refused.contains("no such place"), "{refused}");
}
