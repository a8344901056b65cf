//! Sends the requests of a subject to a server and takes down what it answers.

use std::{collections::BTreeMap, time::Duration};

use http::{
    header::{ACCEPT, CONTENT_TYPE, WARNING},
    request::Builder,
};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    mask::mask,
    rights::Rights,
    scenario::{Step, Subject},
};
use crate::judge::Judge;

/// Longest that an event of a watch may take. A watch that sends fewer events than expected is a
/// difference.
const EVENT_PATIENCE: Duration = Duration::from_secs(5);
/// Longest that a whole answer may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Attempts at an answer that needs a while.
const ATTEMPTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// What a request may refer to.
type Variables = BTreeMap<String, String>;

/// Sends all requests and returns the masked answers with their names, in order.
pub(super) async fn replay(client: &kube::Client, subject: &Subject) -> Vec<(String, Value)> {
    let namespace = format!("diff-{}", subject.name);
    let below = |version: &str| format!("{version}/namespaces/{namespace}");
    let mut variables: Variables = [
        ("core", below("/api/v1")),
        ("apps", below("/apis/apps/v1")),
        ("batch", below("/apis/batch/v1")),
        ("rbac", below("/apis/rbac.authorization.k8s.io/v1")),
        ("ns", namespace.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let judge = subject.needs_judge().then(Judge::start);
    if let Some(judge) = &judge {
        variables.insert("hook".to_owned(), judge.url());
        variables.insert("ca".to_owned(), judge.ca_bundle().to_owned());
    }
    make_namespace(client, &namespace).await;
    let mut rights = Rights::new(&subject.name);
    let mut answers = Vec::new();
    for step in &subject.steps {
        rights.settle(client, step).await;
        let mut answer = ask(client, step, &variables).await;
        for _ in 0..ATTEMPTS {
            if step.until.is_none_or(|code| answer["code"] == code) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            answer = ask(client, step, &variables).await;
        }
        for (name, pointer) in &step.save {
            let value = answer["body"].pointer(pointer).unwrap_or(&Value::Null);
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            variables.insert(name.clone(), value);
        }
        answers.push((subject.id(step), mask(answer, &step.mask, &step.only)));
    }
    answers
}

async fn make_namespace(client: &kube::Client, name: &str) {
    let request = http::Request::post("/api/v1/namespaces")
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(
            json!({"metadata": {"name": name}}).to_string().into_bytes(),
        ))
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(
        response.status(),
        201,
        "expected a server without namespace {name}"
    );
}

/// One request and its answer: code, content type, warnings, and the body or the events.
async fn ask(client: &kube::Client, step: &Step, variables: &Variables) -> Value {
    let response = client.send(request(step, variables)).await.unwrap();
    let header = |name| {
        let values = response.headers().get_all(name).iter();
        let texts = values.map(|value| value.to_str().unwrap().to_owned());
        texts.collect::<Vec<String>>()
    };
    let mut answer = Map::new();
    answer.insert("code".into(), response.status().as_u16().into());
    let content_type = header(CONTENT_TYPE).concat();
    answer.insert("type".into(), content_type.as_str().into());
    let warnings = header(WARNING);
    if !warnings.is_empty() {
        answer.insert("warnings".into(), warnings.into());
    }
    let is_success = response.status().is_success();
    match step.events {
        Some(n_events) if is_success => {
            let events = events(response.into_body(), n_events).await;
            answer.insert("events".into(), events.into());
        }
        _ => {
            // A watch that was expected to be refused and is not goes on for ever.
            let whole = timeout(BODY_PATIENCE, response.into_body().collect()).await;
            let text = match whole {
                Ok(whole) => String::from_utf8_lossy(&whole.unwrap().to_bytes()).into_owned(),
                Err(_) => "a body that does not end".to_owned(),
            };
            let body = if content_type.starts_with("application/yaml") {
                serde_saphyr::from_str(&text).ok()
            } else {
                serde_json::from_str(&text).ok()
            };
            answer.insert("body".into(), body.unwrap_or(Value::String(text)));
        }
    }
    Value::Object(answer)
}

fn request(step: &Step, variables: &Variables) -> http::Request<Body> {
    let (method, path) = step.request.split_once(' ').unwrap();
    let mut request = http::Request::builder()
        .method(method)
        .uri(expand(path, variables));
    let body = body(step, variables);
    let content_type = match step.content_type.as_deref() {
        None if body.is_empty() => None,
        None | Some("json") => Some("application/json"),
        Some("none") => None,
        Some("merge") => Some("application/merge-patch+json"),
        Some("strategic") => Some("application/strategic-merge-patch+json"),
        Some("json-patch") => Some("application/json-patch+json"),
        Some("apply") => Some("application/apply-patch+yaml"),
        Some("yaml") => Some("application/yaml"),
        Some(other) => Some(other),
    };
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    let accept = match step.accept.as_deref() {
        None => "application/json",
        Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io",
        Some("metadata") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        Some("metadata-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        Some(other) => other,
    };
    if accept != "none" {
        request = request.header(ACCEPT, accept);
    }
    request = request_as(request, step, variables);
    request.body(Body::from(body.into_bytes())).unwrap()
}

/// Adds the headers of a request in the name of another user.
fn request_as(mut request: Builder, step: &Step, variables: &Variables) -> Builder {
    if let Some(user) = &step.acting {
        request = request.header("impersonate-user", expand(user, variables));
    }
    for group in &step.groups {
        request = request.header("impersonate-group", expand(group, variables));
    }
    for (name, value) in &step.identity {
        let name = format!("impersonate-{}", name.to_lowercase());
        request = request.header(name, expand(value, variables));
    }
    request
}

fn body(step: &Step, variables: &Variables) -> String {
    if let Some(raw) = &step.raw {
        return expand(raw, variables);
    }
    let Some(body) = &step.body else {
        return String::new();
    };
    let mut body = body.clone();
    for (pointer, n_bytes) in &step.fill {
        *body.pointer_mut(pointer).unwrap() = "x".repeat(*n_bytes).into();
    }
    expand(&body.to_string(), variables)
}

/// Puts in the values of `${name}`.
fn expand(text: &str, variables: &Variables) -> String {
    let mut expanded = text.to_owned();
    for (name, value) in variables {
        expanded = expanded.replace(&format!("${{{name}}}"), value);
    }
    assert!(!expanded.contains("${"), "an unknown name in {expanded}");
    expanded
}

/// The first events of a watch, and the end of the stream if it comes first.
async fn events(mut body: Body, n_events: usize) -> Vec<Value> {
    let mut events = Vec::new();
    let mut unread = Vec::new();
    while events.len() < n_events {
        let frame = match timeout(EVENT_PATIENCE, body.frame()).await {
            Err(_) => break,
            Ok(None) => {
                events.push("end".into());
                break;
            }
            Ok(Some(frame)) => frame.unwrap(),
        };
        unread.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            events.push(serde_json::from_slice(&line).unwrap());
        }
    }
    // One frame may hold more of them, depending on how fast they are read.
    events.truncate(n_events);
    events
}
