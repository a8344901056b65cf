//! Rules that ask somebody else, and what API servers ask about rules.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::join;
use longshore_api::podops::{OperationLabel, detail_annotation};
use longshore_test::HttpAnswers;
use serde_json::{Value, json};

use super::{http, place::Place, world::World};
use crate::{longshore, outcome};

pub(super) async fn all(world: &World) {
    let (asked, written) = join!(world.namespace("asked"), world.namespace("written"));
    join!(
        a_pod_waits_for_whom_its_rule_asks(&asked),
        a_rule_is_filled_in_and_checked_before_it_is_written(&written),
    );
}

fn hook(url: &str) -> Value {
    json!({"name": "hook", "webhook": {
        "clientConfig": {"url": url},
        "parameters": [{"key": "pod", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }})
}

/// Rejected, then unreachable with a named reason, then let go.
async fn a_pod_waits_for_whom_its_rule_asks(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    let lets_pass = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&lets_pass);
    let answers = HttpAnswers::start(move |_| match says.load(Ordering::Relaxed) {
        true => (200, json!({"success": true})),
        false => (200, json!({"success": false, "message": "not today"})),
    });
    let answers = answers.await.unwrap();
    place.rule("ptr", json!([hook(&answers.url())])).await;
    place
        .label(
            "web-0",
            json!({
                OperationLabel::Operating.of("a"): "1",
                OperationLabel::OperationType.of("a"): "update",
            }),
        )
        .await;
    until_told(place, "Webhook check ").await;
    until_told(place, "msg: not today").await;
    let question = &answers.asked()[0];
    assert_eq!(question["ruleName"], "hook", "{question}");
    assert_eq!(question["stage"], "PreCheck", "{question}");
    let resources = json!([{
        "apiVersion": "core/v1", "kind": "Pod", "name": "web-0", "parameters": {"pod": "web-0"},
    }]);
    assert_eq!(question["resources"], resources, "{question}");
    let url = answers.url();
    answers.stop().await;
    until_told(place, "Fail to do webhook request ").await;
    explains(place);
    // Another one in its place: a new rule, because the address is another one.
    lets_pass.store(true, Ordering::Relaxed);
    let answers = HttpAnswers::start(|_| (200, json!({"success": true})))
        .await
        .unwrap();
    assert_ne!(answers.url(), url);
    let patch = json!({"spec": {"rules": [hook(&answers.url())]}});
    let rule = place.rules("/ptr");
    http::patch(place.client(), &rule, http::Asked::Merge, &patch)
        .await
        .unwrap();
    place
        .until_label("web-0", &OperationLabel::Operate.of("a"))
        .await;
    assert_eq!(answers.asked().len(), 1, "{:?}", answers.asked());
    // A webhook that is down keeps no rule from being deleted.
    answers.stop().await;
    http::delete(place.client(), &rule, json!({}))
        .await
        .unwrap();
    while http::get(place.client(), &rule).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Waits until the pod shows that its rule says so.
async fn until_told(place: &Place<'_>, what: &str) {
    let is_told = |pod: &Value| {
        let detail = pod["metadata"]["annotations"][detail_annotation("ptr")].as_str();
        detail.is_some_and(|detail| detail.contains(what))
    };
    let path = place.core("pods/web-0");
    place.world.until_object(&path, is_told).await;
}

/// The command line names who is not reached.
fn explains(place: &Place<'_>) {
    let mut command = longshore();
    command.args(["pods", "explain", "web-0", "-n", &place.namespace]);
    command.arg("--kubeconfig").arg(place.world.kubeconfig());
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 0, "{stderr}");
    let who = format!(
        "hook: Fail to do webhook request {}/ptr/hook, ",
        place.namespace
    );
    assert!(
        stdout.contains("Held by Rule ptr") && stdout.contains(&who),
        "{stdout}"
    );
}

/// The webhooks of PodTransitionRules.
async fn a_rule_is_filled_in_and_checked_before_it_is_written(place: &Place<'_>) {
    let answers = HttpAnswers::start(|_| (200, json!({}))).await.unwrap();
    place.rule("ptr", json!([hook(&answers.url())])).await;
    let path = place.rules("/ptr");
    let is_filled_in =
        |rule: &Value| rule["spec"]["rules"][0]["webhook"]["failurePolicy"] == "Ignore";
    place.world.until_object(&path, is_filled_in).await;
    // Whether somebody listens there is nothing that a rule finds out.
    place
        .rule("nobody", json!([hook("http://127.0.0.1:1/")]))
        .await;
    assert_eq!(answers.asked(), Vec::<Value>::new());
    let policy = "minAvailableValue and maxUnavailableValue must have at least one configured";
    for (rules, expected) in [
        (
            json!([{"name": "a", "availablePolicy": {}}]),
            format!("spec.rule.a: Invalid value: \"null\": {policy}"),
        ),
        (
            json!([hook("ftp://a.example/")]),
            "spec.rule.hook.clientConfig.url: Invalid value: \"ftp://a.example/\": podtransitionrule validate webhook \
             failed, check server reachable, while parse url error: "
                .to_owned(),
        ),
    ] {
        let rule = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": "refused"}, "spec": {"selector": {}, "rules": rules},
        });
        let refused = http::create(place.client(), &place.rules(""), &rule).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(status.code, 403, "{status:?}");
        let by =
            "admission webhook \"validating-generic.apps.kusionstack.io\" denied the request: ";
        assert!(
            status.message.contains(by) && status.message.contains(&expected),
            "{status:?}"
        );
    }
}
