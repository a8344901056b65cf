//! The webhooks with an API server behind them.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, LABEL_CONTROL,
    LABEL_TO_DELETE, OperationLabel,
};
use longshore_cluster::Cluster;
use longshore_kit::SystemClock;
use serde_json::{Value, json};

use super::*;

struct World {
    client: Client,
    mutating: Arc<dyn Admission>,
    validating: Arc<dyn Admission>,
}

impl World {
    fn new() -> Self {
        let client = Cluster::in_memory().client();
        Self::asking_through(client.clone(), client)
    }

    /// The same, where the webhooks have another client than the test.
    fn asking_through(client: Client, of_webhooks: Client) -> Self {
        let config = AdmitConfig {
            grace_delete: true,
            ..AdmitConfig::default()
        };
        let requests = Requests::new(of_webhooks);
        let [(_, mutating), (_, validating)] = webhooks(
            config,
            requests,
            Arc::new(SystemClock),
            Arc::default(),
            CancellationToken::new(),
            &PodMeasures::default(),
        );
        Self {
            client,
            mutating,
            validating,
        }
    }

    fn pods(&self) -> Api<k8s_openapi::api::core::v1::Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn make(&self) {
        let pod = serde_json::from_value(pod()).unwrap();
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }

    /// The review of a delete of the pod that is there.
    async fn deletion(&self) -> Review {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        Review {
            old_object: serde_json::to_value(&pods.items[0]).unwrap(),
            ..deletion()
        }
    }

    /// Whether the pod is marked to go.
    async fn is_to_go(&self) -> bool {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let metadata = &pods.items[0].metadata;
        let has_label = metadata
            .labels
            .as_ref()
            .unwrap()
            .contains_key(LABEL_TO_DELETE);
        let annotations = metadata.annotations.as_ref();
        let is_timed = annotations.is_some_and(|it| it.contains_key(ANNOTATION_DELETE_TIMESTAMP));
        assert_eq!(has_label, is_timed);
        has_label
    }
}

impl World {
    /// When the eviction of the pod was noted.
    async fn evicted_at(&self) -> Option<String> {
        let pod = self.pods().get("p").await.unwrap();
        let annotations = pod.metadata.annotations?;
        annotations.get(ANNOTATION_EVICTED_AT).cloned()
    }

    /// A budget over all pods, which no disruption controller counts.
    async fn budget(&self) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), "default");
        let budget =
            json!({"metadata": {"name": "b"}, "spec": {"selector": {}, "minAvailable": 1}});
        let budget = serde_json::from_value(budget).unwrap();
        budgets
            .create(&PostParams::default(), &budget)
            .await
            .unwrap();
    }
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "default", "labels": {LABEL_CONTROL: "true"}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "readinessGates": [{"conditionType": CONDITION_SERVICE_READY}],
        },
    })
}

fn review(operation: &str, subresource: &str) -> Review {
    Review {
        uid: "u".to_owned(),
        operation: operation.to_owned(),
        namespace: "default".to_owned(),
        name: "p".to_owned(),
        resource: "pods".to_owned(),
        subresource: subresource.to_owned(),
        is_dry_run: false,
        user: String::new(),
        object: Value::Null,
        old_object: Value::Null,
        options: Value::Null,
    }
}

fn eviction() -> Review {
    Review {
        object: json!({"metadata": {"name": "p", "namespace": "default"}}),
        ..review("CREATE", "eviction")
    }
}

fn deletion() -> Review {
    Review {
        old_object: pod(),
        ..review("DELETE", "")
    }
}

fn denial(response: Response) -> Denial {
    match response.verdict {
        Verdict::Denied(denial) => denial,
        Verdict::Allowed | Verdict::Changed(_) | Verdict::Unknown(_) => panic!("{response:?}"),
    }
}

#[tokio::test]
async fn an_eviction_looks_its_pod_up_notes_itself_and_is_asked_to_come_back() {
    let world = World::new();
    let of_nobody = world.validating.admit(&eviction()).await;
    let Verdict::Changed(marked) = of_nobody.verdict else {
        panic!("an eviction that is allowed is marked");
    };
    assert_eq!(
        marked["metadata"]["annotations"],
        json!({ANNOTATION_EVICTION: EVICTION_ALLOWED})
    );
    world.make().await;
    let of_review = Review {
        is_dry_run: true,
        ..eviction()
    };
    let mut of_eviction = eviction();
    of_eviction.object["deleteOptions"] = json!({"dryRun": ["All"]});
    for dry in [of_review, of_eviction] {
        let answer = world.validating.admit(&dry).await;
        assert!(
            matches!(answer.verdict, Verdict::Changed(_)),
            "as the real one ends: {answer:?}"
        );
        assert_eq!(world.evicted_at().await, None);
    }
    let first = denial(world.validating.admit(&eviction()).await);
    assert_eq!((first.code, first.retry_after_seconds), (429, Some(5)));
    assert_eq!(first.reason, "TooManyRequests");
    let noted = world.evicted_at().await;
    assert!(noted.is_some());
    assert!(!world.is_to_go().await, "the controller begins it");
    let again = denial(world.validating.admit(&eviction()).await);
    assert_eq!(again.message, first.message, "no budget is about the pod");
    world.budget().await;
    let held = denial(world.validating.admit(&eviction()).await);
    assert!(
        held.message.contains("PodDisruptionBudget default/b: "),
        "{held:?}"
    );
    assert_eq!((held.code, held.retry_after_seconds), (429, None));
    assert_eq!(world.evicted_at().await, noted);
}

#[tokio::test]
async fn a_delete_begins_the_operation_or_says_why_it_cannot() {
    let world = World::new();
    let missing = denial(world.validating.admit(&deletion()).await);
    assert_eq!(missing.code, 403);
    assert_eq!(
        missing.reason,
        "failed to validate GraceDeleteWebhook, pods \"p\" not found"
    );
    world.make().await;
    let denial = denial(world.validating.admit(&world.deletion().await).await);
    assert_eq!(
        denial.reason,
        "failed to validate GraceDeleteWebhook, pod deletion process is underway and being managed by PodOpsLifecycle"
    );
    assert!(world.is_to_go().await);
}

#[tokio::test]
async fn the_review_of_an_earlier_pod_or_of_one_that_takes_part_no_more_begins_nothing() {
    let world = World::new();
    world.make().await;
    let earlier = world.deletion().await;
    let now = DeleteParams::default().grace_period(0);
    world.pods().delete("p", &now).await.unwrap();
    world.make().await;
    let replayed = denial(world.validating.admit(&earlier).await);
    assert_eq!(replayed.code, 403);
    assert!(replayed.reason.ends_with(REPLACED), "{}", replayed.reason);
    assert!(!world.is_to_go().await);
    // Its label is taken away between the review and the write.
    let review = world.deletion().await;
    let free = json!({"metadata": {"labels": {LABEL_CONTROL: null}}});
    let (patch, params) = (Patch::Merge(free), PatchParams::default());
    world.pods().patch("p", &params, &patch).await.unwrap();
    let late = denial(world.validating.admit(&review).await);
    assert!(late.reason.ends_with(REPLACED), "{}", late.reason);
    let pods = world.pods().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items[0].metadata.annotations, None);
}

/// A client that reads the pod, and takes its label away before it says what it has read.
fn freeing(client: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = client.clone();
        async move {
            let is_read = request.method() == http::Method::GET;
            let answer = client.send(request).await;
            if is_read {
                let free = json!({"metadata": {"labels": {LABEL_CONTROL: null}}});
                let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
                let (patch, params) = (Patch::Merge(free), PatchParams::default());
                pods.patch("p", &params, &patch).await.unwrap();
            }
            answer
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn an_eviction_leaves_no_mark_on_a_pod_that_takes_part_no_more() {
    let client = Cluster::in_memory().client();
    let world = World::asking_through(client.clone(), freeing(client));
    world.make().await;
    let late = denial(world.validating.admit(&eviction()).await);
    assert_eq!((late.code, late.retry_after_seconds), (429, Some(5)));
    assert!(late.message.ends_with(REPLACED), "{}", late.message);
    assert_eq!(world.evicted_at().await, None);
    let freed = world.validating.admit(&eviction()).await;
    assert!(
        matches!(freed.verdict, Verdict::Changed(_)),
        "the next try is allowed: {freed:?}"
    );
}

/// A client whose requests are never answered.
fn stalled() -> Client {
    type Answered = Result<http::Response<kube::client::Body>, std::convert::Infallible>;
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Answered>()
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_api_server_an_eviction_has_no_verdict_and_a_delete_says_so() {
    let world = World::asking_through(Cluster::in_memory().client(), stalled());
    let in_time = async |review: Review| {
        let asked = timeout(TIME_LIMIT, world.validating.admit(&review));
        asked.await.unwrap()
    };
    let unknown = in_time(eviction()).await.verdict;
    let Verdict::Unknown(why) = &unknown else {
        panic!("{unknown:?}");
    };
    let says = "no answer of the API server within 3s; try again";
    assert!(why.contains("default/p") && why.ends_with(says), "{why}");
    let refused = denial(in_time(deletion()).await);
    assert_eq!(refused.code, 403);
    let says = "no answer of the API server within 4.5s; try again";
    assert!(refused.reason.ends_with(says), "{}", refused.reason);
    // Nothing of the API server is needed for these.
    let mut free = deletion();
    free.old_object["metadata"]["labels"] = json!({});
    assert_eq!(in_time(free).await.verdict, Verdict::Allowed);
}

#[tokio::test]
async fn what_is_written_to_a_pod_is_taken_further_and_other_resources_are_let_be() {
    let world = World::new();
    let mut begun = pod();
    begun["metadata"]["labels"][OperationLabel::Operating.of("x")] = json!("1");
    begun["metadata"]["labels"][OperationLabel::OperationType.of("x")] = json!("update");
    let update = Review {
        object: begun,
        old_object: pod(),
        ..review("UPDATE", "status")
    };
    let response = world.mutating.admit(&update).await;
    let Verdict::Changed(pod) = &response.verdict else {
        panic!("{response:?}");
    };
    let labels = &pod["metadata"]["labels"];
    assert!(
        labels[OperationLabel::PreCheck.of("x")].is_string(),
        "{pod}"
    );
    let other = Review {
        resource: "configmaps".to_owned(),
        ..update
    };
    for webhook in [&world.mutating, &world.validating] {
        assert_eq!(webhook.admit(&other).await.verdict, Verdict::Allowed);
    }
}

#[tokio::test]
async fn an_update_with_labels_that_do_not_fit_together_is_refused_by_the_webhook_that_is_asked() {
    let world = World::new();
    let mut object = pod();
    object["metadata"]["labels"][OperationLabel::Operated.of("a")] = json!("1");
    let update = Review {
        object,
        old_object: pod(),
        ..review("UPDATE", "")
    };
    let refused = denial(world.mutating.admit(&update).await);
    assert_eq!(refused.code, 403);
    let why = "failed to validate PodOpsLifecycleWebhook, not found label done-operation-type";
    assert!(refused.reason.starts_with(why), "{refused:?}");
    let of_status = Review {
        subresource: "status".to_owned(),
        ..update
    };
    let allowed = world.mutating.admit(&of_status).await.verdict;
    assert!(!matches!(allowed, Verdict::Denied(_)), "{allowed:?}");
}
