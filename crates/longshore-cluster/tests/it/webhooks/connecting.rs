//! Ways into pods and services, about which webhooks are asked as `CONNECT`.

use serde_json::{Value, json};

use super::{Court, rule};
use crate::harness::{PODS, pod};

const WAYS: [&str; 5] = [
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/proxy",
    "services/proxy",
];

fn rules(operation: &str) -> Value {
    WAYS.iter().map(|way| rule(&[operation], way)).collect()
}

#[tokio::test]
async fn a_way_in_is_refused_in_the_words_of_the_webhook() {
    let court = Court::open();
    let members = json!({"rules": rules("CONNECT"), "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}});
    court.validate("/deny/message", members).await;
    court.api.make(PODS, pod("p")).await;
    let services = "/api/v1/namespaces/default/services";
    for (path, kind, options) in [
        (
            format!("{PODS}/p/exec?command=ls&command=-l&stdout=true&container=c"),
            "PodExecOptions",
            json!({"stdout": true, "container": "c", "command": ["ls", "-l"]}),
        ),
        (
            format!("{PODS}/p/attach?stdin=1&tty=true&stdout=false"),
            "PodAttachOptions",
            json!({"stdin": true, "tty": true}),
        ),
        (
            format!("{PODS}/p/portforward?ports=80,443"),
            "PodPortForwardOptions",
            json!({"ports": [80, 443]}),
        ),
        (
            format!("{PODS}/p/proxy/a/b?c=d"),
            "PodProxyOptions",
            json!({"path": "/a/b"}),
        ),
        (
            format!("{services}/s/proxy"),
            "ServiceProxyOptions",
            json!({}),
        ),
    ] {
        let (code, status) = court.api.get(&path).await;
        assert_eq!(code, 400, "{path}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("denied the request"), "{path}: {message}");
        let asked = court.judge.asked("/deny/message");
        let [asked] = asked.as_slice() else {
            panic!("{path}: {asked:?}")
        };
        let mut expected = options;
        expected["kind"] = kind.into();
        expected["apiVersion"] = "v1".into();
        assert_eq!(asked["object"], expected, "{path}");
        assert_eq!(
            asked["kind"],
            json!({"group": "", "version": "v1", "kind": kind})
        );
        assert_eq!(asked["operation"], "CONNECT");
        assert_eq!(asked["oldObject"], Value::Null);
        assert_eq!(asked["options"], Value::Null);
        let name = if kind.starts_with("Service") {
            "s"
        } else {
            "p"
        };
        assert_eq!(asked["name"], name);
        let way = format!(
            "{}/{}",
            asked["resource"]["resource"].as_str().unwrap(),
            asked["subResource"].as_str().unwrap()
        );
        assert!(WAYS.contains(&way.as_str()), "{way}");
    }
}

#[tokio::test]
async fn an_object_selector_finds_no_way_in() {
    let court = Court::open();
    let members = json!({"rules": rules("*"), "objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}});
    court.validate("/deny/message", members).await;
    court.api.make(PODS, pod("p")).await;
    let (_, status) = court
        .api
        .get(&format!("{PODS}/p/exec?command=ls&stdout=true"))
        .await;
    assert_eq!(court.judge.asked("/deny/message").len(), 0);
    assert_eq!(status["message"], "pod p does not have a host assigned");
}
