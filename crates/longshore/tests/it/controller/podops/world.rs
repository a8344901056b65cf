//! A cluster with nodes, and a controller of pods as a process, with the rights that it declares and no others.

use std::{collections::BTreeSet, path::PathBuf, sync::Mutex, time::Duration};

use kube::Client;
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, POD_TRANSITION_RULE_CRD};
use serde_json::{Value, json};

use super::{
    super::{
        kills::{BINARY, told},
        replica::{Plan, Replica, free_port, page, until},
    },
    forged::{self, Door},
    http::{self, Asked},
    kubelet::{Kubelet, PLAYED, Pace},
    place::Place,
};
use crate::{cluster::TestCluster, metrics_reference::all_is_in_the_reference};

/// What the manifest for a controller beside a real API server is made with.
pub(super) const GRANTED: [&str; 3] = ["--enable", "podops", "--webhook-on-loopback"];

pub(super) const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
pub(super) const RULES: &str = "/apis/apps.kusionstack.io/v1alpha1/namespaces";

/// Everything around the pods of these tests.
pub(super) struct World {
    pub(super) cluster: TestCluster,
    pub(super) kubelet: Kubelet,
    /// Whether there are controllers of workloads.
    pub(super) has_workloads: bool,
    controller: Mutex<Controller>,
    id: String,
}

/// Verb and resource of a request.
pub(super) type Asking = (String, String);

/// The controller, which may be another process at any time.
struct Controller {
    plan: Plan,
    running: Option<Replica>,
    metrics: String,
    /// Where its webhooks listen.
    address: String,
    n_started: usize,
    /// What the processes before it asked for: verb and resource, and the status of the answer.
    asked: BTreeSet<(String, String, String)>,
}

impl World {
    /// The cluster with a controller that runs.
    pub(super) async fn start() -> Self {
        Self::on(TestCluster::start().await, Pace::default()).await
    }

    /// The same on this cluster, whose nodes play pods at this pace.
    pub(super) async fn on(cluster: TestCluster, pace: Pace) -> Self {
        let id = cluster.namespace.trim_start_matches("test-").to_owned();
        install(&cluster.admin).await;
        forget_webhooks(&cluster.admin).await;
        let kubelet = Kubelet::start(&cluster.admin, &id, pace).await;
        let has_workloads = cluster.is_real() && has_controllers(&cluster).await;
        let mut plan = Plan::of(&cluster, "podops");
        if let Some(binary) = told(BINARY) {
            plan.program = binary.into();
        }
        if cluster.is_real() {
            cluster.grant(&GRANTED).await;
            plan.kubeconfig = cluster.token().await;
        }
        plan.lease = "0";
        let world = Self {
            cluster,
            kubelet,
            has_workloads,
            controller: Mutex::new(Controller {
                plan,
                running: None,
                metrics: String::new(),
                address: String::new(),
                n_started: 0,
                asked: BTreeSet::new(),
            }),
            id,
        };
        // Its certificate is for another name: the next controller makes its own, publishes its own
        // address, and accepts only clients with a client certificate.
        let authority = world.cluster.webhook_client_authority();
        let authority = authority.to_str().unwrap();
        let arguments = [
            "--dns-name",
            "other.elsewhere.svc",
            "--webhook-client-ca",
            authority,
        ];
        world.begin(&arguments, free_port()).await;
        forged::only_certificates_count(&world).await;
        world.stop().await;
        world.begin(&[], free_port()).await;
        world
    }

    pub(super) fn client(&self) -> &Client {
        &self.cluster.admin
    }

    /// Starts the controller at this port, and waits until API servers ask it.
    async fn begin(&self, more: &[&str], port: u16) {
        let address = format!("127.0.0.1:{port}");
        let excluded = format!("excluded-{}", self.id);
        let arguments = [
            "--webhook-address",
            &address,
            "--feature-gates",
            "GraceDeleteWebhook=true",
            // Where the webhooks of the rules of these tests are.
            "--allow-webhook-cidr",
            "127.0.0.1/32",
            "--exclude-namespaces",
            &excluded,
        ];
        let mut replica = {
            let mut controller = self.controller.lock().unwrap();
            controller.plan.more = arguments
                .iter()
                .chain(more)
                .map(|it| (*it).to_owned())
                .collect();
            controller.address.clone_from(&address);
            controller.n_started += 1;
            let name = format!("podops-{}", controller.n_started);
            controller.plan.spawn(&name)
        };
        let ready = replica.ready();
        until("it runs", || replica.leads()).await;
        {
            let mut controller = self.controller.lock().unwrap();
            controller.metrics = ready["metrics"].as_str().unwrap().to_owned();
            controller.running = Some(replica);
        }
        self.until_told().await;
    }

    /// Waits until API servers ask the controller.
    pub(super) async fn until_told(&self) {
        let address = {
            let controller = self.controller.lock().unwrap();
            let more = &controller.plan.more;
            let flag = more.iter().position(|it| it == "--webhook-address");
            more[flag.unwrap() + 1].clone()
        };
        let told = |object: &Value| {
            let url = object["webhooks"][0]["clientConfig"]["url"].as_str();
            url.is_some_and(|url| url.contains(&address))
        };
        for (plural, name) in CONFIGURED {
            let path = format!("{CONFIGURATIONS}/{plural}/{name}");
            self.until_object(&path, told).await;
        }
        // API servers hear of it by a watch: a pod without its gate was not seen by the webhook.
        let namespace = format!("probe-{}", self.id);
        let _ = self.make_namespace(&namespace).await;
        loop {
            let name = uuid::Uuid::new_v4().to_string();
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            let mut pod = self.pod(&name);
            pod["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove(PLAYED);
            if let Ok(made) = http::create(self.client(), &path, &pod).await {
                let has_gate = made["spec"]["readinessGates"].is_array();
                let mut free = json!({"metadata": {"labels": {LABEL_CONTROL: null}}});
                free["metadata"]["finalizers"] = json!([]);
                let pod = format!("{path}/{name}");
                http::patch(self.client(), &pod, Asked::Merge, &free)
                    .await
                    .unwrap();
                let _ = http::delete(self.client(), &pod, json!({"gracePeriodSeconds": 0})).await;
                if has_gate {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The most memory that the controller that runs had so far, in MiB.
    pub(super) fn peak_mib(&self) -> f64 {
        let controller = self.controller.lock().unwrap();
        controller.running.as_ref().unwrap().peak_mib()
    }

    /// Starts another controller after one that was stopped, with these arguments more.
    pub(super) async fn begin_again(&self, more: &[&str]) {
        self.stop().await;
        self.begin(more, free_port()).await;
    }

    /// Kills the controller where it is.
    pub(super) fn kill(&self) {
        let mut controller = self.controller.lock().unwrap();
        if let Some(mut replica) = controller.running.take() {
            replica.kill();
        }
    }

    /// Starts it again, at the same address.
    pub(super) fn revive(&self) {
        let mut controller = self.controller.lock().unwrap();
        controller.n_started += 1;
        let name = format!("podops-{}", controller.n_started);
        let mut replica = controller.plan.spawn(&name);
        let ready = replica.ready();
        controller.metrics = ready["metrics"].as_str().unwrap().to_owned();
        controller.running = Some(replica);
    }

    /// Waits until it serves its webhooks: it says that it is ready before that.
    pub(super) async fn until_it_serves(&self) {
        let serves = || {
            let controller = self.controller.lock().unwrap();
            let log = controller.running.as_ref().map(Replica::log);
            log.is_some_and(|log| log.contains("podops: webhooks at "))
        };
        until("the webhooks are served", serves).await;
    }

    /// Stops it in order.
    pub(super) async fn stop(&self) {
        if self.controller.lock().unwrap().running.is_none() {
            return;
        }
        self.note_asked().await;
        let mut controller = self.controller.lock().unwrap();
        if let Some(mut replica) = controller.running.take() {
            assert_eq!(replica.stop(), Some(0), "{}", replica.log());
        }
    }

    /// Notes what the controller that runs has asked for.
    pub(super) async fn note_asked(&self) {
        let address = self.controller.lock().unwrap().metrics.clone();
        let text = page(&address, "/metrics").await;
        all_is_in_the_reference(&text);
        let mut controller = self.controller.lock().unwrap();
        for line in text.lines() {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\""))?;
                Some(rest.split('"').next()?.to_owned())
            };
            let is_ours = label("client").is_some_and(|client| client.starts_with("podops"));
            if line.starts_with("longshore_api_requests_total{") && is_ours {
                let labels = [label("verb"), label("resource"), label("code")];
                let [verb, resource, code] = labels.map(Option::unwrap);
                controller.asked.insert((verb, resource, code));
            }
        }
    }

    /// Whether the controllers of this test have asked for that.
    pub(super) fn has_asked(&self, verb: &str, resource: &str) -> bool {
        let controller = self.controller.lock().unwrap();
        let mut asked = controller.asked.iter();
        asked.any(|asked| (asked.0.as_str(), asked.1.as_str()) == (verb, resource))
    }

    /// All that they asked for, by verb and resource; and what they never got.
    pub(super) fn asked(&self) -> (BTreeSet<Asking>, Vec<Asking>) {
        let controller = self.controller.lock().unwrap();
        let asked = controller.asked.iter();
        let pair = |asked: &(String, String, String)| (asked.0.clone(), asked.1.clone());
        let answered = asked.clone().filter(|(_, _, code)| code != "403");
        let answered: BTreeSet<Asking> = answered.map(pair).collect();
        // Not only for want of rights: no Event is created where a namespace goes.
        let forbidden = asked
            .map(pair)
            .filter(|pair| !answered.contains(pair))
            .collect();
        (answered, forbidden)
    }

    /// The webhooks as their configurations describe them to API servers.
    pub(super) async fn door(&self) -> Door {
        let address = self.controller.lock().unwrap().address.clone();
        Door::find(self.client(), &address).await
    }

    /// The id of the controller's process.
    pub(super) fn process(&self) -> u32 {
        let controller = self.controller.lock().unwrap();
        controller.running.as_ref().unwrap().id()
    }

    /// All metrics of the controller that runs.
    pub(super) async fn metrics(&self) -> String {
        let address = self.controller.lock().unwrap().metrics.clone();
        page(&address, "/metrics").await
    }

    /// A value of the metrics of the controller that runs.
    pub(super) async fn metric(&self, line: &str) -> Option<f64> {
        let address = self.controller.lock().unwrap().metrics.clone();
        let text = page(&address, "/metrics").await;
        let mut lines = text.lines();
        lines.find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
    }

    /// So many requests the controller that runs has made, watches as one each.
    pub(super) async fn n_requests(&self) -> f64 {
        let address = self.controller.lock().unwrap().metrics.clone();
        let text = page(&address, "/metrics").await;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("longshore_api_requests_total{"));
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    }

    /// A namespace for one scenario.
    pub(super) async fn namespace(&self, name: &str) -> Place<'_> {
        let namespace = format!("{name}-{}", self.id);
        self.make_namespace(&namespace).await.unwrap();
        Place {
            world: self,
            namespace,
        }
    }

    /// The one that never waits for the webhooks.
    pub(super) async fn excluded_namespace(&self) -> Place<'_> {
        self.namespace("excluded").await
    }

    /// The value of the label of pods that the nodes play.
    pub(super) fn player(&self) -> &str {
        &self.id
    }

    /// What the controller that runs, or ran last, has said.
    pub(super) fn log(&self) -> String {
        let controller = self.controller.lock().unwrap();
        controller
            .running
            .as_ref()
            .map(Replica::log)
            .unwrap_or_default()
    }

    /// Where the controller works.
    pub(super) fn home(&self) -> &str {
        &self.cluster.namespace
    }

    /// Waits until an object is not there.
    pub(super) async fn until_missing(&self, path: &str) {
        for _ in 0..1_200 {
            match http::get(self.client(), path).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("{path} stays");
    }

    async fn make_namespace(&self, name: &str) -> kube::Result<Value> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        http::create(self.client(), "/api/v1/namespaces", &object).await
    }

    /// A pod that takes part, and that the nodes play.
    pub(super) fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": self.labels()},
            "spec": self.spec(),
        })
    }

    pub(super) fn labels(&self) -> Value {
        json!({LABEL_CONTROL: CONTROLLED, PLAYED: self.id, "app": "web"})
    }

    pub(super) fn spec(&self) -> Value {
        json!({
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "example.test/image:1"}],
        })
    }

    /// Waits until an object is as it should be.
    pub(super) async fn until_object(
        &self,
        path: &str,
        is_right: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        for _ in 0..1_200 {
            match http::get(self.client(), path).await {
                Ok(object) if is_right(&object) => return object,
                Ok(object) => last = object,
                Err(kube::Error::Api(status)) if status.code == 404 => last = Value::Null,
                Err(error) => panic!("{path}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not in time: {path}: {last}");
    }

    /// Takes away what other tests would meet.
    pub(super) async fn end(self) {
        self.stop().await;
        forget_webhooks(self.client()).await;
        self.kubelet.leave(self.client()).await;
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.cluster.admin_kubeconfig()
    }
}

/// No webhook configuration may outlive a test: requests about pods of other tests would wait for a
/// server that has ended.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut controller) = self.controller.lock()
            && let Some(replica) = controller.running.take()
        {
            println!("{}", replica.log());
        }
    }
}

pub(super) const CONFIGURED: [(&str, &str); 2] = [
    (
        "mutatingwebhookconfigurations",
        longshore_podops::webhooks::MUTATING,
    ),
    (
        "validatingwebhookconfigurations",
        longshore_podops::webhooks::VALIDATING,
    ),
];

async fn forget_webhooks(client: &Client) {
    for (plural, name) in CONFIGURED {
        let path = format!("{CONFIGURATIONS}/{plural}/{name}");
        let _ = http::delete(client, &path, json!({})).await;
    }
}

/// Makes PodTransitionRules known.
pub(super) async fn install(client: &Client) {
    let crd: Value = serde_saphyr::from_str(POD_TRANSITION_RULE_CRD).unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    match http::create(client, path, &crd).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made.unwrap()),
    }
    while http::get(client, &format!("{RULES}/default/podtransitionrules"))
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether kube-controller-manager runs: it creates the default service account of a new namespace.
async fn has_controllers(cluster: &TestCluster) -> bool {
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/default",
        cluster.namespace
    );
    for _ in 0..50 {
        if http::get(&cluster.admin, &path).await.is_ok() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}
