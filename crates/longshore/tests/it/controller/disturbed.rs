//! The role `tasks` behind a proxy that delays and cuts its watches: no more pods, and no more writes.

use std::{collections::BTreeMap, time::Duration};

use longshore_test::{FaultPlan, FaultProxy, Faults, WatchFault};

use super::replica::{Plan, until};
use crate::{
    cluster::TestCluster,
    task_actions::{PodRecord, TaskActions, action},
};

/// At the same time, and then one more.
const N_ACTIONS: u32 = 13;
/// What an action costs at most when nothing is in its way: nothing is written twice if all of it is within this.
const WRITES: [(&str, u32); 3] = [
    ("create pods", 1),
    // The finalizer, and the labels of the end.
    ("patch taskactions", 2),
    // Accepted with its pod, running, ended.
    ("patch taskactions/status", 3),
];

/// Runs all actions with these faults of the watches. Answers the requests about them, by verb and resource.
async fn requests(watches: Vec<WatchFault>) -> BTreeMap<String, u32> {
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let record = PodRecord::start(&cluster);
    let faults = Faults::new(FaultPlan {
        watches,
        ..FaultPlan::none()
    });
    let process = faults.start();
    let proxy = FaultProxy::start(cluster.admin.clone(), &process)
        .await
        .unwrap();
    let plan = Plan {
        kubeconfig: proxy.kubeconfig(),
        // Renewals are no requests about actions.
        lease: "0",
        ..Plan::of(&cluster, "tasks")
    };
    let mut controller = plan.start("controller");
    until("it runs", || controller.leads()).await;
    const SHORT: &str = "run 0ms exit 0";
    for n in 1..N_ACTIONS {
        let script = if n % 2 == 0 {
            "run 1500ms exit 0"
        } else {
            SHORT
        };
        actions.create(&action(&format!("a{n}"), 0, script)).await;
    }
    let n_at_once = usize::try_from(N_ACTIONS - 1).unwrap();
    actions.until_count(n_at_once).await;
    // Whatever it repeats comes with the events that are still under way. They keep their order: when the end of one
    // more is seen, so is all that was before.
    actions.create(&action("last", 0, SHORT)).await;
    actions.until_count(n_at_once + 1).await;
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
    for action in actions.list().await {
        assert_eq!(action["status"]["attempts"], 1, "{action}");
    }
    record.assert_one_pod_per_launch();
    let mut requests = BTreeMap::new();
    for point in faults.points() {
        let is_of_action = ["pods", "taskactions", "events"]
            .iter()
            .any(|of| point.what.contains(of));
        if is_of_action && !point.what.starts_with("list ") && !point.what.starts_with("watch ") {
            *requests.entry(point.what).or_default() += 1;
        }
    }
    assert_eq!(requests["create pods"], N_ACTIONS, "{requests:?}");
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_watch_that_is_late_or_cut_costs_neither_a_pod_nor_a_request() {
    let pods = || Some("pods".to_owned());
    let late = WatchFault::Late {
        resource: pods(),
        by: Duration::from_secs(2),
    };
    let cut = WatchFault::CutEvery {
        resource: pods(),
        time: Duration::from_secs(1),
    };
    let (undisturbed, late, cut) =
        tokio::join!(requests(vec![]), requests(vec![late]), requests(vec![cut]));
    let all = [
        ("undisturbed", &undisturbed),
        ("late", &late),
        ("cut", &cut),
    ];
    for (what, requests) in all {
        let n: u32 = requests.values().sum();
        let each = f64::from(n) / f64::from(N_ACTIONS);
        println!("{what}: {each:.2} requests for an action, {requests:?}");
        for (request, n) in requests
            .iter()
            .filter(|(request, _)| !request.starts_with("get "))
        {
            let known = WRITES.iter().find(|(write, _)| write == request);
            let at_most = known.map_or(0, |(_, each)| each * N_ACTIONS);
            assert!(*n <= at_most, "{what}: {request} {n} times, not {at_most}");
        }
        // A read where the watch is late is cheap, and bounded.
        let n_reads = requests
            .iter()
            .filter(|(request, _)| request.starts_with("get "));
        let n_reads: u32 = n_reads.map(|(_, n)| n).sum();
        assert!(n_reads <= N_ACTIONS, "{what}: {requests:?}");
    }
}
