//! What the kit makes of whole plans, on the embedded cluster.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, api::PostParams};
use longshore_cluster::Cluster;
use longshore_core::{
    Action, ChildIdentity, Class, Classify, Create, Never, ObjectRef, Patch, PatchKind, Plan,
    Resource,
};
use longshore_kit::{
    Answers, Applier, ApplyError, Cache, CacheFeed, Controller, ListWatch, Runner, cache::reference,
};
use longshore_test::{
    FaultPlan, Faults, SimClock, WatchFault, clock::cluster, config_map, pod, quiet_logs,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A record of the toy.
#[derive(Clone, Debug)]
enum Record {
    /// A status upon the object that was seen.
    Status {
        target: ObjectRef,
        seen: Value,
        status: Value,
    },
    /// A patch that names the version that was seen.
    Patch(Patch),
}

/// Does one plan after the other, whatever it sees.
#[derive(Debug)]
struct Scripted {
    name: &'static str,
    applier: Applier,
    plans: Mutex<VecDeque<Plan<Record>>>,
    failed: Mutex<Vec<String>>,
}

impl Scripted {
    fn new(name: &'static str, applier: &Applier, plans: Vec<Plan<Record>>) -> Arc<Self> {
        Arc::new(Self {
            name,
            applier: applier.clone(),
            plans: Mutex::new(plans.into()),
            failed: Mutex::default(),
        })
    }

    fn n_left(&self) -> usize {
        self.plans.lock().unwrap().len()
    }
}

impl Controller for Scripted {
    type Key = String;
    type Observed = Plan<Record>;
    type Status = Record;
    type Effect = Never;
    type Question = Never;
    type Error = ApplyError;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn observe(
        &self,
        _: &String,
        _: Timestamp,
        _: &Answers<Never>,
    ) -> Result<Plan<Record>, ApplyError> {
        let plan = self.plans.lock().unwrap().pop_front();
        Ok(plan.unwrap_or_else(Plan::await_change))
    }

    fn decide(&self, plan: &Plan<Record>) -> Plan<Record> {
        plan.clone()
    }

    async fn persist(&self, key: &String, record: &Record) -> Result<(), ApplyError> {
        let persisted = match record {
            Record::Status {
                target,
                seen,
                status,
            } => self.applier.write_status(key, target, seen, status).await,
            Record::Patch(patch) => self.applier.patch(key, patch).await,
        };
        if let Err(error) = &persisted {
            self.failed.lock().unwrap().push(error.to_string());
        }
        persisted
    }

    async fn call(&self, _: &String, effect: &Never) -> Result<(), ApplyError> {
        match *effect {}
    }
}

/// Runs rounds of the key `k` for this time.
async fn run(controllers: Vec<Arc<Scripted>>, clock: &Arc<SimClock>, time: Duration) {
    let shutdown = CancellationToken::new();
    let runs = controllers.into_iter().map(|controller| {
        let applier = controller.applier.clone();
        let clock: Arc<SimClock> = Arc::clone(clock);
        let runner = Runner::new(controller, applier, clock);
        runner.run(stream::iter(["k".to_owned()]), shutdown.clone())
    });
    let stopper = async {
        tokio::time::sleep(time).await;
        shutdown.cancel();
    };
    tokio::join!(futures::future::join_all(runs), stopper);
}

fn pods(client: Client) -> Api<Pod> {
    Api::default_namespaced(client)
}

async fn stored(cluster: &Cluster, object: Value) -> (ObjectRef, Value) {
    let typed: Pod = serde_json::from_value(object).unwrap();
    let api = pods(cluster.client());
    let stored = api.create(&PostParams::default(), &typed).await.unwrap();
    // The cluster's own controllers have their turn first.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stored = api.get(&stored.metadata.name.unwrap()).await.unwrap();
    let target = reference(Resource::POD, &stored);
    (target, serde_json::to_value(stored).unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_record_of_a_plan_is_written_upon_the_one_before() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let (target, seen) = stored(&cluster, pod("a").build()).await;
    let status = |message: &str| {
        Action::Persist(Record::Status {
            target: target.clone(),
            seen: seen.clone(),
            status: json!({"phase": "Pending", "message": message}),
        })
    };
    let label = Action::Persist(Record::Patch(Patch {
        target: target.clone(),
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": {
            "resourceVersion": seen["metadata"]["resourceVersion"],
            "labels": {"step": "last"},
        }}),
    }));
    let hold = Action::EnsureFinalizer {
        target: target.clone(),
        finalizer: "test.longshore.dev/hold",
    };
    let faults = Faults::none();
    let applier = Applier::new(faults.start().client(cluster.service()), "test", []);
    let plan = Plan::of(vec![
        status("one"),
        hold,
        status("two"),
        status("three"),
        label,
    ]);
    let toy = Scripted::new("toy", &applier, vec![plan]);
    run(vec![toy.clone()], &clock, Duration::from_secs(5)).await;
    assert_eq!(*toy.failed.lock().unwrap(), [""; 0]);
    let now = pods(cluster.client()).get("a").await.unwrap();
    assert_eq!(now.status.unwrap().message.as_deref(), Some("three"));
    assert_eq!(now.metadata.labels.unwrap()["step"], "last");
    assert_eq!(faults.count("patch pods/status"), 3);
    // The finalizer's, which reads what it has no cache for, and the label's.
    assert_eq!(
        (faults.count("patch pods"), faults.count("get pods")),
        (2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_is_not_written_upon_what_somebody_else_wrote_since() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let (target, seen) = stored(&cluster, pod("a").build()).await;
    let others = Applier::new(cluster.client(), "others", []);
    let theirs = json!({"phase": "Pending", "message": "theirs"});
    others
        .write_status(&"k", &target, &seen, &theirs)
        .await
        .unwrap();
    let record = Action::Persist(Record::Status {
        target,
        seen,
        status: json!({"phase": "Pending", "message": "ours"}),
    });
    let applier = Applier::new(cluster.client(), "test", []);
    let toy = Scripted::new("toy", &applier, vec![Plan::of(vec![record])]);
    run(vec![toy.clone()], &clock, Duration::from_secs(5)).await;
    assert_eq!(toy.failed.lock().unwrap().len(), 1);
    let now = pods(cluster.client()).get("a").await.unwrap();
    assert_eq!(now.status.unwrap().message.as_deref(), Some("theirs"));
}

/// Both keys are `k`, and the watch shows nothing for a long time.
#[tokio::test(start_paused = true)]
async fn a_controller_does_not_wait_for_the_writes_of_another_with_keys_of_the_same_text() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let late = FaultPlan::watches(WatchFault::late(Duration::from_secs(60)));
    let client = Faults::new(late).start().client(cluster.service());
    let cache = Cache::new();
    let updates = ListWatch::new(pods(client.clone())).into_cache(Arc::clone(&cache));
    tokio::spawn(updates.for_each(|_| std::future::ready(())));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let feed: Arc<dyn CacheFeed> = cache.clone();
    let applier = Applier::new(client, "test", [(Resource::POD, feed)]);
    let create = Plan::of(vec![Action::Create(Create {
        resource: Resource::POD,
        object: pod("a").annotated("id", "1").build(),
        identity: ChildIdentity::annotation("id", "1"),
    })]);
    let again = |after| Plan::after(Duration::from_millis(after));
    let writes = Scripted::new("writes", &applier, vec![create]);
    let other = Scripted::new("other", &applier, vec![again(100), again(100)]);
    run(vec![writes, other.clone()], &clock, Duration::from_secs(5)).await;
    assert_eq!(other.n_left(), 0);
    let writes = applier.own_writes();
    assert_eq!((writes.n_waits(), writes.n_live_reads()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_another_operator_made_for_the_same_owner_is_taken_over() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let owner: ConfigMap = config_map("o").typed();
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let owner = api.create(&PostParams::default(), &owner).await.unwrap();
    let uid = owner.metadata.uid.unwrap();
    let owners =
        |uid: &str| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}]);
    let theirs = pod("a").with("/metadata/ownerReferences", owners(&uid));
    stored(&cluster, theirs.build()).await;
    let applier = Applier::new(cluster.client(), "test", []);
    let create = |uid: &str| Create {
        resource: Resource::POD,
        object: pod("a")
            .with("/metadata/ownerReferences", owners(uid))
            .build(),
        identity: ChildIdentity::owner(uid),
    };
    applier.create(&"k", &create(&uid)).await.unwrap();
    let error = applier.create(&"k", &create("v")).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    assert_eq!(
        error.to_string(),
        format!(
            "Pod default/a exists and is not ours: expected an owner reference to the uid v, \
             found {uid}; delete it or rename it"
        )
    );
    let mut orphan = create(&uid);
    orphan.object = pod("a").build();
    let error = applier.create(&"k", &orphan).await.unwrap_err();
    assert_eq!(error.class(), Class::Bug);
}
