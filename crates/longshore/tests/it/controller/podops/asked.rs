//! Rules that call webhooks, and the validation of rules by API servers.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use futures::join;
use longshore_api::podops::{OperationLabel, detail_annotation};
use longshore_test::HttpAnswers;
use serde_json::{Value, json};

use super::{http, place::Place, world::World};
use crate::{longshore, outcome};

pub(super) async fn all(world: &World) {
    let (asked, written, task) = join!(
        world.namespace("asked"),
        world.namespace("written"),
        world.namespace("task"),
    );
    join!(
        a_pod_waits_for_the_task_of_whom_its_rule_asks(&task),
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

/// A slow webhook: its requests by method, and the state of its task.
struct Slow {
    answers: HttpAnswers,
    /// The task that is begun, and what is said of each.
    says: Arc<Mutex<(&'static str, Value)>>,
}

impl Slow {
    async fn start() -> Self {
        let wait = json!({"success": true, "message": "wait"});
        let says = Arc::new(Mutex::new(("t-7", wait)));
        let said = Arc::clone(&says);
        let answers = HttpAnswers::start(move |question| match question["GET"].as_str() {
            Some(_) => (200, said.lock().unwrap().1.clone()),
            None => {
                let task = said.lock().unwrap().0;
                let begun =
                    json!({"success": true, "poll": true, "taskId": task, "message": "begun"});
                (200, begun)
            }
        });
        Self {
            answers: answers.await.unwrap(),
            says,
        }
    }

    fn rule(&self) -> Value {
        let mut rule = hook(&self.answers.url());
        let url = format!("{}/tasks", self.answers.url());
        rule["webhook"]["clientConfig"]["poll"] = json!({
            "url": url, "rawQueryKey": "id", "intervalSeconds": 1, "timeoutSeconds": 600,
        });
        rule
    }

    fn say(&self, answer: Value) {
        self.says.lock().unwrap().1 = answer;
    }

    /// The next question begins this task.
    fn begin(&self, task: &'static str) {
        self.says.lock().unwrap().0 = task;
    }

    /// The number of requests about pods, and of those about the task.
    fn asked(&self) -> (usize, usize) {
        let asked = self.answers.asked();
        let polls = asked.iter().filter(|question| question["GET"].is_string());
        for poll in polls.clone() {
            let path = poll["GET"].as_str().unwrap();
            assert!(path.starts_with("/tasks?id=t-"), "{path}");
        }
        (asked.len() - polls.clone().count(), polls.count())
    }
}

/// Waits until the status of the rule has a task that is like this.
async fn until_task(place: &Place<'_>, at: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let path = place.rules("/ptr");
    let task = |rule: &Value| rule["status"]["ruleStates"][0]["webhookStatus"][at][0].clone();
    let rule = place
        .world
        .until_object(&path, |rule| is_right(&task(rule)));
    task(&rule.await)
}

fn begin_a() -> Value {
    json!({
        OperationLabel::Operating.of("a"): "1",
        OperationLabel::OperationType.of("a"): "update",
    })
}

/// Some pods first, then all; and where the task is stopped, another one begins.
async fn a_pod_waits_for_the_task_of_whom_its_rule_asks(place: &Place<'_>) {
    place.serving(&["web-0", "web-1"]).await;
    let slow = Slow::start().await;
    place.rule("ptr", json!([slow.rule()])).await;
    for name in ["web-0", "web-1"] {
        place.label(name, begin_a()).await;
    }
    let task = until_task(place, "taskStates", |task| {
        task["processing"]
            .as_array()
            .is_some_and(|it| it.len() == 2)
    })
    .await;
    assert_eq!(
        (&task["taskId"], &task["processing"]),
        (&json!("t-7"), &json!(["web-0", "web-1"])),
        "{task}"
    );
    assert!(task["beginTime"].is_string(), "{task}");
    until_told(place, "polling task t-7 is running wait").await;
    slow.say(json!({"success": true, "finishedNames": ["web-1"], "message": "half"}));
    place
        .until_label("web-1", &OperationLabel::Operate.of("a"))
        .await;
    let task = until_task(place, "taskStates", |task| {
        task["approved"] == json!(["web-1"])
    })
    .await;
    assert_eq!(
        (&task["processing"], &task["message"]),
        (&json!(["web-0"]), &json!("half")),
        "{task}"
    );
    let pod = place.pod("web-0").await;
    assert!(
        pod.labels.contains_key(&OperationLabel::PreCheck.of("a")),
        "{pod:?}"
    );
    // The webhook gives up its task, and gets a new request about the pods that it has not let pass.
    let (n_before, _) = slow.asked();
    slow.begin("t-8");
    slow.say(json!({"success": false, "stop": true, "message": "no more"}));
    until_task(place, "history", |task| {
        task["processing"] == json!(["web-0"])
    })
    .await;
    slow.say(json!({"success": true, "finished": true, "message": "all"}));
    place
        .until_label("web-0", &OperationLabel::Operate.of("a"))
        .await;
    let (n_asked, n_polled) = slow.asked();
    assert!(n_asked > n_before && n_polled >= 3, "{n_asked} {n_polled}");
    until_task(place, "taskStates", Value::is_null).await;
}

/// The task is in the status: the next controller begins no other one.
pub(super) async fn a_task_is_asked_about_by_the_next_controller(place: &Place<'_>) {
    place.serving(&["web-0"]).await;
    let slow = Slow::start().await;
    place.rule("ptr", json!([slow.rule()])).await;
    place.label("web-0", begin_a()).await;
    let begun = until_task(place, "taskStates", |task| task["beginTime"].is_string()).await;
    place.world.note_asked().await;
    place.world.kill();
    let (_, n_polled) = slow.asked();
    place.world.revive();
    while slow.asked().1 == n_polled {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let task = until_task(place, "taskStates", |task| task["taskId"] == "t-7").await;
    assert_eq!(
        task["beginTime"], begun["beginTime"],
        "it has no more time than before"
    );
    slow.say(json!({"success": true, "finished": true}));
    place
        .until_label("web-0", &OperationLabel::Operate.of("a"))
        .await;
    assert_eq!(slow.asked().0, 1, "{:?}", slow.answers.asked());
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

/// `explain` names the webhook that is not reached.
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
    // The validation of a rule does not call its webhook.
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
            json!([
                {"name": "a", "availablePolicy": {"maxUnavailableValue": 1}},
                {"name": "a", "labelCheck": {"requires": {"matchLabels": {"b": "c"}}}},
            ]),
            "spec.rule.a.name: Duplicate value: \"a\": ".to_owned(),
        ),
        (
            json!([{"name": "a"}]),
            "expected exactly one of availablePolicy, labelCheck, webhook, found none of them"
                .to_owned(),
        ),
        (
            json!([{"name": "a", "availablePolicy": {"minAvailableValue": "50"}}]),
            "spec.rule.a.availablePolicy.minAvailableValue: Invalid value: \"50\": ".to_owned(),
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
