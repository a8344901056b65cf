//! One controller for the TaskActions of several namespaces, and others that want some of them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use longshore_api::flyte::FINALIZER_PLUGIN;
use longshore_cluster::controllers;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::replica::{Plan, Replica, until};
use crate::{
    cluster::{Beside, TestCluster},
    longshore, outcome,
    task_actions::{PodRecord, TaskActions, action},
};

/// One namespace, with what happens in it.
struct Place {
    namespace: String,
    actions: TaskActions,
    record: PodRecord,
    _beside: Option<Beside>,
}

impl Place {
    fn of(cluster: &TestCluster, beside: Option<Beside>) -> Self {
        let namespace = beside
            .as_ref()
            .map_or(&cluster.namespace, |it| &it.namespace);
        let namespace = namespace.clone();
        Self {
            actions: TaskActions::of(cluster.admin.clone(), &namespace),
            record: PodRecord::of(cluster.admin.clone(), &namespace),
            namespace,
            _beside: beside,
        }
    }

    async fn create(&self, name: &str, script: &str) {
        self.actions.create(&action(name, 0, script)).await;
    }

    /// Whether a controller has taken an action up.
    async fn is_taken_up(&self, name: &str) -> bool {
        let action = self.actions.get(name).await;
        let finalizers = action["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER_PLUGIN))
    }
}

/// Three namespaces of a cluster that knows TaskActions; the first is that of the cluster.
async fn three(cluster: &TestCluster) -> [Place; 3] {
    TaskActions::install(cluster).await;
    let (b, c) = (cluster.beside("b").await, cluster.beside("c").await);
    [
        Place::of(cluster, None),
        Place::of(cluster, Some(b)),
        Place::of(cluster, Some(c)),
    ]
}

/// A replica of the role `tasks` in the namespace of the cluster and in these, with the rights that are made for that.
async fn in_all_of(cluster: &TestCluster, others: &[&Place]) -> Plan {
    let mut plan = Plan::of(cluster, "tasks");
    let others = others.iter();
    plan.more = others
        .flat_map(|place| ["-n".to_owned(), place.namespace.clone()])
        .collect();
    if cluster.is_real() {
        let mut arguments = vec!["--enable", "tasks"];
        arguments.extend(plan.more.iter().map(String::as_str));
        cluster.grant(&arguments).await;
        plan.kubeconfig = cluster.token().await;
    }
    plan
}

/// A replica of one namespace, with the rights of an administrator.
fn in_one(cluster: &TestCluster, place: &Place) -> Plan {
    Plan {
        namespace: place.namespace.clone(),
        folder: cluster.folder.path().join(&place.namespace),
        ..Plan::of(cluster, "tasks")
    }
}

fn n_starts(replica: &Replica) -> usize {
    replica.log().matches("tasks: runs here").count()
}

fn says(replica: &Replica, text: &str) -> bool {
    replica.log().contains(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_actions_of_all_named_namespaces_run_under_the_leases_of_all_of_them() {
    let cluster = TestCluster::start().await;
    let [a, b, c] = three(&cluster).await;
    let plan = in_all_of(&cluster, &[&b]).await;
    let mut first = plan.start("first");
    until("the first one leads", || first.leads()).await;
    let scope = format!(
        "tasks: watches namespaces {}, {}; TaskActions of other namespaces are not run here",
        a.namespace, b.namespace
    );
    assert!(says(&first, &scope), "{}", first.log());
    let mut second = plan.start("second");
    until("the second one waits", || second.waits()).await;
    let of_b = in_one(&cluster, &b);
    std::fs::create_dir_all(&of_b.folder).unwrap();
    let mut lone = of_b.start("lone");
    until("the one of b alone waits", || lone.waits()).await;
    let only = format!("tasks: watches namespace {} only", b.namespace);
    assert!(says(&lone, &only), "{}", lone.log());
    // After a death either of the two may be first at the lease of b.
    assert_eq!(lone.stop(), Some(0), "{}", lone.log());

    for place in [&a, &b, &c] {
        place.create("short", "run 10ms exit 0").await;
        place.create("long", "run 15s exit 0").await;
    }
    for place in [&a, &b] {
        place.actions.until_ended("short").await;
        until("the long one runs", || place.record.n_pods() == 2).await;
    }
    first.kill();
    for place in [&a, &b] {
        place.create("meanwhile", "run 10ms exit 0").await;
    }
    until("the second one leads", || second.leads()).await;
    let mut lone = of_b.start("lone-again");
    until("the one of b alone waits again", || lone.waits()).await;
    for place in [&a, &b] {
        place.actions.until_count(3).await;
        assert_eq!(place.record.n_launches_of_all(), 3);
        place.record.assert_one_pod_per_launch();
    }
    for name in ["short", "long"] {
        assert!(!c.is_taken_up(name).await, "{name} of c");
    }
    assert_eq!(c.record.n_pods(), 0);

    assert_eq!(second.stop(), Some(0), "{}", second.log());
    until("the one of b alone leads", || lone.leads()).await;
    b.create("last", "run 10ms exit 0").await;
    b.actions.until_ended("last").await;
    // The others have `a`, and wait for it.
    let mut third = plan.start("third");
    let waits = format!("holds in namespace {}", b.namespace);
    until("the third one waits for b", || says(&third, &waits)).await;
    a.create("last", "run 10ms exit 0").await;
    assert!(third.waits() && !a.is_taken_up("last").await);
    assert_eq!(lone.stop(), Some(0), "{}", lone.log());
    a.actions.until_ended("last").await;
    assert_eq!(third.stop(), Some(0), "{}", third.log());
}

fn leases(cluster: &TestCluster, place: &Place) -> Api<Lease> {
    Api::namespaced(cluster.admin.clone(), &place.namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_lease_in_one_namespace_stops_the_role_in_all_of_them() {
    let cluster = TestCluster::start().await;
    let [a, b, _] = three(&cluster).await;
    let mut replica = in_all_of(&cluster, &[&b]).await.start("replica");
    until("it leads", || replica.leads()).await;
    let somebody = Patch::Merge(json!({"spec": {
        "holderIdentity": "somebody", "leaseDurationSeconds": 12,
    }}));
    let params = PatchParams::default();
    let of_b = leases(&cluster, &b);
    let patched = of_b.patch("longshore-tasks", &params, &somebody);
    patched.await.unwrap();
    let lost = format!(
        "tasks: stopped, because the lease is held by somebody now in namespace {}",
        b.namespace
    );
    until("it stops", || says(&replica, &lost)).await;
    let waits = format!(
        "tasks: waits for the lease that somebody holds in namespace {}",
        b.namespace
    );
    until("it waits", || says(&replica, &waits)).await;
    a.create("waits", "run 10ms exit 0").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!a.is_taken_up("waits").await);
    assert_eq!(n_starts(&replica), 1);
    // The other one never renews its lease.
    a.actions.until_ended("waits").await;
    assert_eq!(n_starts(&replica), 2);
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}

/// Never on a real server: the other tests there have leases of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_all_namespaces_and_one_of_a_namespace_never_act_together() {
    let cluster = TestCluster::embedded().await;
    let [a, b, c] = three(&cluster).await;
    let mut plan = Plan::of(&cluster, "tasks");
    plan.more = vec!["--all-namespaces".to_owned()];
    let mut everywhere = plan.start("everywhere");
    until("it leads", || everywhere.leads()).await;
    let scope = format!(
        "tasks: watches all namespaces; its Lease is in namespace {}",
        a.namespace
    );
    assert!(says(&everywhere, &scope), "{}", everywhere.log());
    for place in [&a, &b, &c] {
        place.create("first", "run 10ms exit 0").await;
        place.actions.until_ended("first").await;
    }

    // The one of a namespace comes later.
    let of_b = in_one(&cluster, &b);
    std::fs::create_dir_all(&of_b.folder).unwrap();
    let mut lone = of_b.start("lone");
    let waits = format!("holds in namespace {} for all namespaces", a.namespace);
    until("it waits", || says(&lone, &waits)).await;
    let lease = leases(&cluster, &b)
        .get_opt("longshore-tasks")
        .await
        .unwrap();
    assert!(lease.is_none(), "it takes none: {lease:?}");
    assert_eq!(everywhere.stop(), Some(0), "{}", everywhere.log());
    until("it leads", || lone.leads()).await;

    // The one of all namespaces comes later.
    let mut everywhere = plan.start("everywhere-again");
    let waits = format!("holds in namespace {}, because", b.namespace);
    until("it waits", || says(&everywhere, &waits)).await;
    for place in [&b, &c] {
        place.create("second", "run 10ms exit 0").await;
    }
    b.actions.until_ended("second").await;
    assert!(!everywhere.leads() && !c.is_taken_up("second").await);
    lone.kill();
    until("it leads", || everywhere.leads()).await;
    c.actions.until_ended("second").await;
    stops_for_others(&cluster, &everywhere, [&a, &b, &c]).await;
    assert_eq!(everywhere.stop(), Some(0), "{}", everywhere.log());
}

/// One that does not look at the leases of others, and the mark of a role that was uninstalled.
async fn stops_for_others(cluster: &TestCluster, everywhere: &Replica, places: [&Place; 3]) {
    let [a, b, c] = places;
    let lease: Value = json!({
        "metadata": {"name": "longshore-tasks"},
        "spec": {"holderIdentity": "old", "leaseDurationSeconds": 8},
    });
    let lease = serde_json::from_value(lease).unwrap();
    let params = PostParams::default();
    let of_c = leases(cluster, c);
    of_c.create(&params, &lease).await.unwrap();
    let lost = format!(
        "tasks: stopped, because the lease is held by old in namespace {}",
        c.namespace
    );
    until("it stops", || says(everywhere, &lost)).await;
    // The other one never renews its lease.
    until("it leads again", || n_starts(everywhere) == 2).await;
    c.create("third", "run 10ms exit 0").await;
    c.actions.until_ended("third").await;

    let uninstall = |flag: &'static str| {
        let mut command = longshore();
        command.args(["uninstall", "--role", "tasks", flag, "-n", &b.namespace]);
        command.arg("--kubeconfig").arg(cluster.admin_kubeconfig());
        tokio::task::spawn_blocking(move || outcome(&mut command))
    };
    let (code, _, stderr) = uninstall("--yes").await.unwrap();
    assert_eq!(code, 0, "{stderr}");
    let mark = format!(
        "tasks: was uninstalled in namespace {}, and does nothing in the others either",
        b.namespace
    );
    until("it says why it does nothing", || says(everywhere, &mark)).await;
    a.create("waits", "run 10ms exit 0").await;
    let (code, _, stderr) = uninstall("--undo").await.unwrap();
    assert_eq!(code, 0, "{stderr}");
    a.actions.until_ended("waits").await;
    assert_eq!(n_starts(everywhere), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_or_not_there_yet_stops_no_action_of_the_others() {
    // With the generated roles, the rights in a namespace go with it; an administrator keeps them.
    let cluster = TestCluster::embedded().await;
    let stop = CancellationToken::new();
    tokio::spawn(controllers::run(cluster.admin.clone(), stop.child_token()));
    let _stop = stop.drop_guard();
    let [a, b, _] = three(&cluster).await;
    let mut plan = in_all_of(&cluster, &[&b]).await;
    let late = format!("{}-late", cluster.namespace);
    plan.more.extend(["-n".to_owned(), late.clone()]);
    let mut replica = plan.start("replica");
    let without = format!("tasks: goes on without the lease in namespace {late}: there is no");
    until("it says what is missing", || says(&replica, &without)).await;
    until("it leads", || n_starts(&replica) == 1).await;
    for place in [&a, &b] {
        place.create("first", "run 10ms exit 0").await;
        place.actions.until_ended("first").await;
    }
    b.create("running", "run 600s exit 0").await;
    until("it runs", || b.record.n_pods() == 2).await;

    let made = Place::of(&cluster, Some(cluster.beside("late").await));
    until("it begins again", || n_starts(&replica) == 2).await;
    made.create("first", "run 10ms exit 0").await;
    made.actions.until_ended("first").await;

    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.admin.clone());
    let now = kube::api::DeleteParams::default();
    namespaces.delete(&b.namespace, &now).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while namespaces.get_opt(&b.namespace).await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "{}", replica.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    a.create("second", "run 10ms exit 0").await;
    a.actions.until_ended("second").await;
    assert_eq!(replica.stop(), Some(0), "{}", replica.log());
}
