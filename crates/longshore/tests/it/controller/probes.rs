//! The probes of a controller, where the peer's configuration has them.

use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{EvictParams, PostParams},
};
use longshore_test::{Fault, FaultPlan, FaultProxy, Faults, Point, faults::Refusal};
use serde_json::json;
use tokio::net::TcpStream;

use super::replica::{Plan, free_port, page, until};
use crate::cluster::TestCluster;

#[tokio::test(flavor = "multi_thread")]
async fn probes_find_the_process_where_the_peers_configuration_says_too() {
    let cluster = TestCluster::embedded().await;
    let address = format!("127.0.0.1:{}", free_port());
    let config = json!({"executor": {"healthProbeBindAddress": address}});
    let file = cluster.folder.path().join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    let mut plan = Plan::of(&cluster, "tasks");
    plan.config = Some(file);
    let mut replica = plan.spawn("probed");
    let ready = replica.ready();
    for address in [&address, ready["metrics"].as_str().unwrap()] {
        for path in ["/healthz", "/readyz"] {
            let answer = page(address, path).await;
            assert!(answer.contains("200 OK"), "{address}{path}: {answer}");
            assert!(
                answer.trim_end().ends_with("ok"),
                "{address}{path}: {answer}"
            );
        }
    }
    assert_eq!(replica.stop(), Some(0));
}

/// Waits until a page says so.
async fn until_page(address: &str, path: &str, expected: &[&str]) {
    let says = async {
        loop {
            let text = page(address, path).await;
            if expected.iter().all(|expected| text.contains(expected)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), says).await;
    if in_time.is_err() {
        panic!("{expected:?}: {}", page(address, path).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_waits_for_webhooks_that_are_served_and_names_configurations_that_are_missing() {
    let cluster = TestCluster::embedded().await;
    // As with the rights that it declares, which let it create neither of them.
    let refused = |what: &str, n| {
        let fault = Fault::Refuse(Refusal::QuotaExceeded);
        (Point::new(what, n), fault)
    };
    let creates = "create mutatingwebhookconfigurations";
    let faults = Faults::unbounded(FaultPlan {
        at: vec![
            refused("create secrets", 1),
            refused("create secrets", 2),
            refused("create secrets", 3),
            refused(creates, 1),
            refused(creates, 2),
        ],
        ..FaultPlan::none()
    });
    let process = faults.start();
    let proxy = FaultProxy::start(cluster.admin.clone(), &process);
    let proxy = proxy.await.unwrap();
    let mut plan = Plan::of(&cluster, "podops");
    plan.kubeconfig = proxy.kubeconfig();
    let address = format!("127.0.0.1:{}", free_port());
    plan.more = vec!["--webhook-address".to_owned(), address];
    let mut replica = plan.spawn("podops");
    let ready = replica.ready();
    let metrics = ready["metrics"].as_str().unwrap();
    let text = page(metrics, "/readyz").await;
    for expected in [
        "503 Service Unavailable",
        "[-]webhooks of podops wait for their certificate failed",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // Alive: a restart would not help.
    let text = page(metrics, "/healthz").await;
    assert!(text.contains("200 OK"), "{text}");
    let name = longshore_podops::webhooks::MUTATING;
    let without = [
        "200 OK",
        "[+]webhooks of podops are served, and no API server asks them without ",
        name,
    ];
    until_page(metrics, "/readyz?verbose", &without).await;
    let gauge = |value: u8| {
        format!(
            "longshore_webhook_configuration_missing{{role=\"podops\",configuration=\"MutatingWebhookConfiguration {name}\"}} {value}\n"
        )
    };
    until_page(metrics, "/metrics", &[&gauge(1)]).await;
    // The next try makes it.
    let whole = ["200 OK", "[+]webhooks of podops are served ok"];
    until_page(metrics, "/readyz?verbose", &whole).await;
    until_page(metrics, "/metrics", &[&gauge(0)]).await;
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_the_api_server_does_not_answer_is_not_ready_and_refuses_no_eviction() {
    let cluster = TestCluster::embedded().await;
    let process = Faults::unbounded(FaultPlan::none()).start();
    let proxy = FaultProxy::start(cluster.admin.clone(), &process);
    let proxy = proxy.await.unwrap();
    let mut plan = Plan::of(&cluster, "podops");
    plan.kubeconfig = proxy.kubeconfig();
    let address = format!("127.0.0.1:{}", free_port());
    let gates = "GraceDeleteWebhook=true";
    let more = ["--webhook-address", &address, "--feature-gates", gates];
    plan.more = more.map(str::to_owned).to_vec();
    let mut replica = plan.spawn("podops");
    let ready = replica.ready();
    let metrics = ready["metrics"].as_str().unwrap();
    let served = ["200 OK", "[+]webhooks of podops are served ok"];
    until_page(metrics, "/readyz?verbose", &served).await;

    // Of others: they have no label.
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), &cluster.namespace);
    let evicted = async |name: &str| {
        let pod = json!({
            "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let evicted = pods.evict(name, &EvictParams::default()).await;
        evicted.map(drop).map_err(|error| error.to_string())
    };
    proxy.stall(true);
    assert_eq!(evicted("at-first").await, Ok(()));
    let cut_off = [
        "503 Service Unavailable",
        "[-]webhooks of podops are served, and this replica has had no answer of the API server for 10 s or more failed",
    ];
    until_page(metrics, "/readyz", &cut_off).await;
    // A restart would not help.
    let text = page(metrics, "/healthz").await;
    assert!(text.contains("200 OK"), "{text}");
    assert_eq!(evicted("cut-off").await, Ok(()));
    proxy.stall(false);
    until_page(metrics, "/readyz?verbose", &served).await;
    assert_eq!(evicted("back").await, Ok(()));
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_webhook_listens_where_its_flag_says_and_nowhere_else() {
    let cluster = TestCluster::embedded().await;
    let (of_flag, of_file, invalidation) = (free_port(), free_port(), free_port());
    let token = cluster.folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
    // No API server is to ask it: this is about its ports.
    let config = json!({"webhook": {
        "listenPort": of_file, "cacheInvalidationPort": invalidation,
        "cacheInvalidationTokenFile": token, "disableCreateMutatingWebhookConfig": true,
    }});
    let file = cluster.folder.path().join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    let mut plan = Plan::of(&cluster, "webhook");
    plan.config = Some(file);
    plan.more = vec![
        "--webhook-address".to_owned(),
        format!("127.0.0.1:{of_flag}"),
    ];
    let mut replica = plan.start("webhook");
    until("it serves", || replica.leads()).await;
    let says = format!("https://127.0.0.1:{of_flag}/");
    assert!(replica.log().contains(&says), "{}", replica.log());
    let connects = async |ip: &str, port: u16| TcpStream::connect((ip, port)).await.is_ok();
    for port in [of_flag, invalidation] {
        assert!(connects("127.0.0.1", port).await, "{port}");
        // Another address of this machine.
        assert!(!connects("127.0.0.2", port).await, "{port}");
    }
    assert!(!connects("127.0.0.1", of_file).await, "{of_file}");
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}
