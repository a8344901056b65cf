use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::FutureExt;
use longshore_proto::{
    flyteidl2::connector::{
        CreateTaskRequest, CreateTaskResponse, DeleteTaskRequest, GetTaskRequest, GetTaskResponse,
    },
    from_json,
};
use serde_json::json;

use super::*;
use crate::remote::grpc::server::{self, Answered};

mod tls;

/// A connector that takes `t` in version 1, and has one job.
#[derive(Debug, Default)]
struct Fake {
    asked: Mutex<Vec<String>>,
    /// The job, once it was begun.
    job: Mutex<Option<Vec<u8>>>,
}

impl Fake {
    fn answer(&self, path: &str, body: &Bytes) -> Answered {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap();
        self.asked.lock().unwrap().push(method.to_owned());
        let mut job = self.job.lock().unwrap();
        match (service, method) {
            (METADATA, "ListConnectors") => {
                let category = json!({"name": "t", "version": 1});
                let told = json!({"connectors": [{"name": "fake", "supportedTaskCategories": [category]}]});
                server::ok(&from_json::<ListConnectorsResponse>(&told).unwrap())
            }
            (JOBS, "CreateTask") => {
                let request: CreateTaskRequest = server::read(body);
                *job = Some(request.output_prefix.into_bytes());
                server::ok(&CreateTaskResponse {
                    resource_meta: job.clone().unwrap(),
                })
            }
            (JOBS, "GetTask") => {
                let request: GetTaskRequest = server::read(body);
                if *job != Some(request.resource_meta) {
                    return Answered::Status(5, "no%20such%20job");
                }
                let told = json!({"resource": {"phase": "RUNNING", "message": "m"}});
                server::ok(&from_json::<GetTaskResponse>(&told).unwrap())
            }
            (JOBS, "DeleteTask") => {
                let request: DeleteTaskRequest = server::read(body);
                job.take_if(|job| *job == request.resource_meta);
                server::ok(&DeleteTaskResponse::default())
            }
            _ => Answered::Status(12, "unimplemented"),
        }
    }

    fn n_asked(&self, method: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| *asked == method).count()
    }
}

async fn serve() -> (Arc<Fake>, String) {
    let fake = Arc::new(Fake::default());
    let served = Arc::clone(&fake);
    let endpoint = server::serve(move |path, body| ready(served.answer(&path, &body)));
    (fake, endpoint.await)
}

fn config(section: serde_json::Value) -> ConnectorConfig {
    let document = json!({"plugins": {"connector-service": section}});
    let reading = longshore_plugins::Config::read(&document, &|_| None).unwrap();
    assert_eq!(reading.warnings, []);
    *reading.config.connector
}

fn about(task_type: &str, request: Request) -> Call {
    Call {
        category: Category {
            task_type: task_type.to_owned(),
            version: 1,
            ..Category::default()
        },
        connector: None,
        request,
    }
}

fn create(task_type: &str, prefix: &str) -> Call {
    let request = CreateTaskRequest {
        output_prefix: prefix.to_owned(),
        ..CreateTaskRequest::default()
    };
    about(task_type, Request::Create(Box::new(request)))
}

fn get(meta: &str) -> Call {
    let request = GetTaskRequest {
        resource_meta: meta.into(),
        ..GetTaskRequest::default()
    };
    about("t", Request::Get(Box::new(request)))
}

fn delete(meta: &str) -> Call {
    let request = DeleteTaskRequest {
        resource_meta: meta.into(),
        ..DeleteTaskRequest::default()
    };
    about("t", Request::Delete(Box::new(request)))
}

/// Asks while somebody follows.
async fn ask(connectors: &GrpcConnectors, call: &Call) -> Result<Option<Answer>, ConnectorError> {
    tokio::select! {
        answered = connectors.ask(call) => answered,
        () = connectors.follow() => panic!("it stopped following"),
    }
}

#[tokio::test]
async fn a_job_is_begun_told_of_and_ended() {
    let (fake, endpoint) = serve().await;
    let section = json!({"connectors": {"c": {"endpoint": endpoint, "insecure": true}}});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let created = ask(&connectors, &create("t", "s3://b/o")).await.unwrap();
    let Some(Answer::Created { response, by }) = created else {
        panic!("expected that it was created, found {created:?}");
    };
    assert_eq!(response.resource_meta, b"s3://b/o");
    assert_eq!(by.name, "c");
    let told = ask(&connectors, &get("s3://b/o")).await.unwrap();
    let Some(Answer::Told { response, by, .. }) = told else {
        panic!("expected that it was told of, found {told:?}");
    };
    assert_eq!(response.resource.unwrap().message, "m");
    assert_eq!((by.name.as_str(), by.endpoint), ("c", endpoint));
    let refused = ask(&connectors, &get("other")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "GetTask of connector c failed with gRPC status not_found: no such job"
    );
    for _ in 0..2 {
        assert_eq!(ask(&connectors, &delete("s3://b/o")).await.unwrap(), None);
    }
    assert_eq!(fake.n_asked("DeleteTask"), 2);
}

#[tokio::test]
async fn what_nobody_takes_goes_to_the_default_connector_if_there_is_one() {
    let (named, endpoint) = serve().await;
    let section = json!({"connectors": {"c": {"endpoint": endpoint, "insecure": true}}});
    let connectors = GrpcConnectors::new(&config(section.clone()), &Permit::always()).unwrap();
    let error = ask(&connectors, &create("other", "o")).await.unwrap_err();
    assert!(matches!(error, ConnectorError::NoConnector(_)), "{error}");

    let (default, endpoint) = serve().await;
    let mut section = section;
    section["defaultConnector"] = json!({"endpoint": endpoint});
    section["connectorForTaskTypes"] = json!({"mine": "c"});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    for task_type in ["other", "mine"] {
        ask(&connectors, &create(task_type, "o")).await.unwrap();
    }
    let asked = (default.n_asked("CreateTask"), named.n_asked("CreateTask"));
    assert_eq!(asked, (1, 1));
}

#[tokio::test]
async fn a_silent_connector_delays_no_task_of_another_one() {
    let (_, endpoint) = serve().await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = nobody.local_addr().unwrap().to_string();
    let section = json!({"connectors": {
        "c": {"endpoint": endpoint, "insecure": true},
        "silent": {"endpoint": silent, "insecure": true, "timeouts": {"ListConnectors": "1h"}},
    }});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let (known, unknown) = (create("t", "o"), create("other", "o"));
    let waits = connectors.awaits(&known.addressee()).unwrap();
    assert_eq!(waits.matches(NOT_REQUESTED).count(), 2, "{waits}");
    ask(&connectors, &known).await.unwrap();
    assert_eq!(connectors.awaits(&known.addressee()), None);
    assert_eq!(connectors.lists(&known.category), Listed::Yes);
    let waits = connectors.awaits(&unknown.addressee()).unwrap();
    let expected = "connector silent may take it, and has not listed its task types yet: its list is requested, and there \
                    is no answer yet";
    assert_eq!(waits, expected);
    assert_eq!(connectors.lists(&unknown.category), Listed::Unknown(waits));
    tokio::select! {
        biased;
        told = ask(&connectors, &unknown) => panic!("no connector is known to take it: {told:?}"),
        told = ask(&connectors, &known) => assert!(told.is_ok(), "{told:?}"),
    }
}

#[tokio::test]
async fn the_last_list_of_a_connector_counts_and_until_then_its_jobs_are_asked_about() {
    let (fake, is_starting) = (Arc::new(Fake::default()), Arc::new(AtomicBool::new(true)));
    let (served, starting) = (Arc::clone(&fake), Arc::clone(&is_starting));
    let endpoint = server::serve(move |path: String, body| {
        let is_refused = path.ends_with("ListConnectors") && starting.load(Ordering::Relaxed);
        ready(if is_refused {
            Answered::Status(14, "starting")
        } else {
            served.answer(&path, &body)
        })
    });
    let section = json!({"connectors": {"c": {"endpoint": endpoint.await, "insecure": true}}});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let named = Named {
        name: "c",
        deployment: &connectors.config.connectors["c"],
    };
    let mut changes = connectors.changes();
    connectors.refresh(named).await;
    let new = create("t", "o").addressee();
    let expected = "connector c may take it, and has not listed its task types yet: ListConnectors of connector c \
                    failed with gRPC status unavailable: starting";
    assert_eq!(connectors.awaits(&new).as_deref(), Some(expected));
    assert_eq!(changes.next().now_or_never(), None);
    let on_record = Call {
        connector: Some("c".to_owned()),
        ..get("o")
    };
    for call in [get("o"), on_record, delete("o")] {
        assert_eq!(connectors.awaits(&call.addressee()), None);
        let _ = connectors.ask(&call).await;
    }
    assert_eq!(
        (fake.n_asked("GetTask"), fake.n_asked("DeleteTask")),
        (2, 1)
    );
    for is_refused in [false, true] {
        is_starting.store(is_refused, Ordering::Relaxed);
        connectors.refresh(named).await;
        assert_eq!(connectors.awaits(&new), None);
        let expected = (!is_refused).then_some(Some(()));
        assert_eq!(changes.next().now_or_never(), expected, "{is_refused}");
    }
}

#[tokio::test]
async fn a_connector_that_is_slow_is_given_up() {
    let endpoint = server::serve(async |path: String, _| {
        if path.ends_with("ListConnectors") {
            return Answered::Status(12, "unimplemented");
        }
        std::future::pending().await
    });
    let section = json!({"defaultConnector": {
        "endpoint": endpoint.await, "timeouts": {"GetTask": "20ms"},
    }});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let error = ask(&connectors, &get("o")).await.unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("GetTask of connector defaultConnector got no answer: http://"));
    assert!(error.ends_with("did not answer within 20ms"), "{error}");
}

#[tokio::test]
async fn few_questions_are_asked_at_the_same_time() {
    let (asked, now) = (
        Arc::new(Mutex::new((0, 0))),
        std::time::Duration::from_millis(20),
    );
    let counted = Arc::clone(&asked);
    let endpoint = server::serve(move |path: String, _| {
        let counted = Arc::clone(&counted);
        async move {
            if path.ends_with("ListConnectors") {
                return Answered::Status(12, "unimplemented");
            }
            {
                let mut counted = counted.lock().unwrap();
                counted.0 += 1;
                counted.1 = counted.1.max(counted.0);
            }
            tokio::time::sleep(now).await;
            counted.lock().unwrap().0 -= 1;
            server::ok(&GetTaskResponse::default())
        }
    });
    let section = json!({
        "defaultConnector": {"endpoint": endpoint.await},
        "webApi": {"caching": {"workers": 3}},
    });
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let calls: Vec<_> = (0..12).map(|_| get("o")).collect();
    let answers = calls.iter().map(|call| connectors.ask(call));
    tokio::select! {
        answers = join_all(answers) => assert!(answers.iter().all(Result::is_ok)),
        () = connectors.follow() => panic!("it stopped following"),
    }
    assert_eq!(*asked.lock().unwrap(), (0, 3));
}

#[tokio::test]
async fn a_silent_connector_keeps_no_worker_of_another_one() {
    let silent = server::serve(move |path: String, _| async move {
        if path.ends_with("ListConnectors") {
            return Answered::Status(12, "unimplemented");
        }
        std::future::pending().await
    });
    let (fake, endpoint) = serve().await;
    let section = json!({
        "defaultConnector": {"endpoint": silent.await},
        "connectors": {"c": {"endpoint": endpoint, "insecure": true}},
        "webApi": {"caching": {"workers": 1}},
    });
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let (unanswered, answered) = (about("other", get("o").request), get("o"));
    tokio::select! {
        biased;
        told = connectors.ask(&unanswered) => panic!("it is silent: {told:?}"),
        told = connectors.ask(&answered) => assert!(told.is_err(), "no such job: {told:?}"),
        () = connectors.follow() => panic!("it stopped following"),
    }
    assert_eq!(fake.n_asked("GetTask"), 1);
}

#[tokio::test]
async fn the_host_of_a_task_type_is_the_endpoint_of_its_connector_once_that_is_known() {
    let ((_, default), (_, own)) = (serve().await, serve().await);
    let section = json!({
        "defaultConnector": {"endpoint": default},
        "connectors": {"c": {"endpoint": own, "insecure": true}},
        "connectorForTaskTypes": {"t": "c", "u": "c"},
    });
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    let hosts = || ["t", "u", "v"].map(|of| connectors.host(&create(of, "o").addressee()));
    assert_eq!(hosts(), [own.as_str(), &own, UNROUTED]);
    let on_record = Call {
        connector: Some("defaultConnector".to_owned()),
        ..get("o")
    };
    assert_eq!(connectors.host(&on_record.addressee()), default);
    for connector in named(&connectors.config) {
        connectors.refresh(connector).await;
    }
    assert_eq!(hosts(), [own.as_str(), &own, &default]);
}

#[test]
fn what_is_sent_again_has_a_time_limit_and_the_begin_of_a_job_has_none_of_ours() {
    let of = |section| {
        let config = config(json!({"connectors": {"c": section}}));
        [CREATE, GET, DELETE].map(|method| policy_of(&config.connectors["c"], method).timeout)
    };
    let secs = |n| Some(Duration::from_secs(n));
    assert_eq!(of(json!({"endpoint": "c:1"})), [None, secs(60), secs(60)]);
    let limited = json!({"endpoint": "c:1", "defaultTimeout": "5s", "timeouts": {"GetTask": "2m"}});
    assert_eq!(of(limited), [secs(5), secs(120), secs(5)]);
}

#[tokio::test]
async fn no_more_is_read_of_the_answer_to_create_task_than_a_delete_needs() {
    let endpoint = server::serve(|path: String, body| async move {
        if path.ends_with("ListConnectors") {
            return Answered::Status(12, "unimplemented");
        }
        let request: CreateTaskRequest = server::read(&body);
        let n = request.output_prefix.parse().unwrap();
        server::ok(&CreateTaskResponse {
            resource_meta: vec![7; n],
        })
    });
    let section = json!({"defaultConnector": {"endpoint": endpoint.await}});
    let connectors = GrpcConnectors::new(&config(section), &Permit::always()).unwrap();
    for (n, is_read) in [(300 << 10, true), (600 << 10, false), (9 << 20, false)] {
        let created = ask(&connectors, &create("t", &n.to_string())).await;
        match created.unwrap() {
            Some(Answer::Created { response, .. }) => {
                assert!(is_read && response.resource_meta == vec![7; n], "{n} bytes");
            }
            Some(Answer::CreatedTooLarge(most)) => {
                assert_eq!((is_read, most), (false, MAX_CREATED));
            }
            other => panic!("expected that it was created, found {other:?}"),
        }
    }
}

#[test]
fn an_endpoint_that_is_none_is_named() {
    let config = config(json!({"connectors": {"c": {"endpoint": "https://c"}}}));
    let error = GrpcConnectors::new(&config, &Permit::always()).unwrap_err();
    assert!(error.to_string().contains("\"https://c\""), "{error}");
}
