use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use longshore_test::{NodeConfig, ScriptedNode, SimClock, clock::cluster, pod, quiet_logs};

fn phase_and_code(pod: &Pod) -> (String, Option<i32>) {
    let status = pod.status.clone().unwrap_or_default();
    let state = status
        .container_statuses
        .and_then(|all| all.first()?.state.clone());
    let code = state.and_then(|state| Some(state.terminated?.exit_code));
    (status.phase.unwrap_or_default(), code)
}

#[tokio::test(start_paused = true)]
async fn pods_run_their_scripts() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let node = ScriptedNode::start(cluster.client(), clock.clone(), NodeConfig::default());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let table = [
        ("good", "run 3s exit 0 message {\"rows\": 3}"),
        ("bad", "exit 0 | exit 7"),
        ("moved", "run 1s evicted 137"),
        ("stuck", "hang"),
        ("imageless", "waiting ErrImagePull"),
    ];
    for (name, script) in table {
        let fixture = pod(name).scripted(script).labelled("try_number", "2");
        pods.create(&PostParams::default(), &fixture.typed())
            .await
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let state = async |name: &str| phase_and_code(&pods.get(name).await.unwrap());
    assert_eq!(state("good").await, ("Succeeded".to_owned(), Some(0)));
    assert_eq!(state("bad").await, ("Failed".to_owned(), Some(7)));
    assert_eq!(state("moved").await, ("Failed".to_owned(), Some(137)));
    assert_eq!(state("stuck").await, ("Running".to_owned(), None));
    assert_eq!(state("imageless").await, ("Pending".to_owned(), None));
    assert_eq!(node.history().runs().len(), 4);
    let moved = pods.get("moved").await.unwrap().status.unwrap();
    assert_eq!(moved.reason.as_deref(), Some("Evicted"));
    let mut conditions = moved.conditions.iter().flatten();
    assert!(conditions.any(|it| it.type_ == "DisruptionTarget" && it.status == "True"));
    let good = pods.get("good").await.unwrap();
    let statuses = good.status.unwrap().container_statuses.unwrap();
    let terminated = statuses[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(terminated.message.as_deref(), Some("{\"rows\": 3}"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_gets_its_grace_and_goes() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let node = ScriptedNode::start(cluster.client(), clock.clone(), NodeConfig::default());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for (name, script) in [
        ("obeys", "run 1m"),
        ("ignores", "hang"),
        ("never", "waiting X"),
    ] {
        pods.create(&PostParams::default(), &pod(name).scripted(script).typed())
            .await
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for name in ["obeys", "ignores", "never"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pods.get_opt("obeys").await.unwrap().is_none());
    assert!(pods.get_opt("never").await.unwrap().is_none());
    assert!(pods.get_opt("ignores").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(pods.get_opt("ignores").await.unwrap().is_none());
    let codes: Vec<_> = node
        .history()
        .runs()
        .iter()
        .map(|run| run.exit_code)
        .collect();
    assert_eq!(codes, [Some(143), Some(137)]);
}
