//! Candidates for several leases, on the embedded cluster, in simulated time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use longshore_api::{tasks::ANNOTATION_ALL_NAMESPACES, uninstall::HOLDER_UNINSTALLED};
use longshore_cluster::Cluster;
use longshore_kit::{
    Clock, Electors, Gate,
    lease::{LeaseError, LeaseName, Lost, Notice, OtherHolder, Survey, Tenure, Terms},
};
use longshore_test::{SimClock, clock::cluster};
use serde_json::json;

use crate::lease::{BadNetwork, Dice, Pause, Skewed};

const NAME: &str = "longshore-tasks";

fn lease(namespace: &str) -> LeaseName {
    LeaseName {
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
    }
}

fn set(namespaces: &[&str]) -> BTreeSet<String> {
    namespaces.iter().map(|it| (*it).to_owned()).collect()
}

/// A cluster with these namespaces.
async fn with(clock: &Arc<SimClock>, namespaces: &[&str]) -> Cluster {
    let cluster = cluster(clock.clone(), 1);
    for namespace in namespaces {
        create(&cluster, namespace).await;
    }
    cluster
}

async fn create(cluster: &Cluster, namespace: &str) {
    let object = json!({"metadata": {"name": namespace}});
    let object: Namespace = serde_json::from_value(object).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let created = namespaces.create(&PostParams::default(), &object).await;
    created.unwrap();
}

/// A candidate for the leases of these namespaces; the first is its own.
fn candidate(client: &Client, me: &str, namespaces: &[&str], clock: &Arc<SimClock>) -> Electors {
    let clock: Arc<dyn Clock> = clock.clone();
    let names = namespaces.iter().map(|namespace| lease(namespace));
    let own = lease(namespaces[0]);
    Electors::new(client, own, names, me, Terms::default(), &clock)
}

async fn acquire(candidate: &mut Electors) -> Tenure {
    candidate.acquire(|_, _| {}).await.unwrap()
}

fn leases(cluster: &Cluster, namespace: &str) -> Api<Lease> {
    Api::namespaced(cluster.client(), namespace)
}

async fn stored(cluster: &Cluster, namespace: &str) -> Lease {
    leases(cluster, namespace).get(NAME).await.unwrap()
}

async fn holder(cluster: &Cluster, namespace: &str) -> Option<String> {
    let spec = stored(cluster, namespace).await.spec;
    spec.and_then(|spec| spec.holder_identity)
}

/// Another process takes the lease, whoever has it.
async fn take_away(cluster: &Cluster, namespace: &str, by: &str) {
    let theirs = Patch::Merge(json!({"spec": {"holderIdentity": by}}));
    let params = PatchParams::default();
    let leases = leases(cluster, namespace);
    leases.patch(NAME, &params, &theirs).await.unwrap();
}

/// What a candidate tells.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn hears(&self) -> impl FnMut(&LeaseName, Notice<'_>) + Send + use<> {
        let told = self.0.clone();
        move |lease, notice| {
            let namespace = &lease.namespace;
            let text = match notice {
                Notice::WaitsFor(holder) => format!("{namespace}: waits for {holder}"),
                Notice::ActsWithout(error) => format!("{namespace}: without, {error}"),
            };
            told.lock().unwrap().push(text);
        }
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_of_several_leases_ends_the_leadership() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a", "b"]).await;
    let mut first = candidate(&cluster.client(), "first", &["b", "a"], &clock);
    let tenure = acquire(&mut first).await;
    assert_eq!(tenure.namespaces, set(&["a", "b"]));
    for namespace in ["a", "b"] {
        let holder = holder(&cluster, namespace).await;
        assert_eq!(holder.as_deref(), Some("first"), "{namespace}");
    }
    // Renewed for an hour.
    let hour = Duration::from_secs(3600);
    let kept = tokio::time::timeout(hour, first.keep()).await;
    assert!(kept.is_err() && tenure.gate.check().is_ok());

    take_away(&cluster, "b", "somebody").await;
    let lost = first.keep().await;
    assert_eq!(lost, (lease("b"), Lost::Taken("somebody".to_owned())));
    assert!(tenure.gate.check().is_err());
    let of_a = holder(&cluster, "a").await;
    assert_eq!(of_a.as_deref(), Some("first"), "it expires");

    // It has to have both again.
    let told = Told::default();
    let asked_at = clock.now();
    let again = first.acquire(told.hears()).await.unwrap();
    let waited = clock.now().duration_since(asked_at).as_secs();
    assert!((13..=17).contains(&waited), "{waited}");
    assert_eq!(told.all(), ["b: waits for somebody"]);
    assert!(again.gate.check().is_ok() && tenure.gate.check().is_err());
    first.release().await;
    assert!(again.gate.check().is_err());
    for namespace in ["a", "b"] {
        assert_eq!(holder(&cluster, namespace).await, None, "{namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_one_takes_over_all_leases_as_soon_as_one() {
    let clock = SimClock::start();
    let namespaces = ["a", "b", "c", "d", "e"];
    let cluster = with(&clock, &namespaces).await;
    let mut first = candidate(&cluster.client(), "first", &namespaces, &clock);
    let mut second = candidate(&cluster.client(), "second", &namespaces, &clock);
    acquire(&mut first).await;
    let told = Told::default();
    {
        let acquire = second.acquire(told.hears());
        tokio::select! {
            _ = acquire => panic!("two holders"),
            (lease, lost) = first.keep() => panic!("{lease:?}: {lost}"),
            () = tokio::time::sleep(Duration::from_secs(100)) => {}
        }
    }
    assert_eq!(
        told.all(),
        ["a: waits for first"],
        "the first one in its way"
    );
    let gone_at = clock.now();
    drop(first);
    let tenure = acquire(&mut second).await;
    let took = clock.now().duration_since(gone_at).as_secs();
    assert!((10..=17).contains(&took), "{took}");
    assert_eq!(tenure.namespaces, set(&namespaces));
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_one_of_them_only_waits_for_it() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a", "b"]).await;
    let mut both = candidate(&cluster.client(), "both", &["a", "b"], &clock);
    let mut one = candidate(&cluster.client(), "one", &["b"], &clock);
    acquire(&mut both).await;
    let told = Told::default();
    tokio::select! {
        _ = one.acquire(told.hears()) => panic!("two holders of b"),
        (lease, lost) = both.keep() => panic!("{lease:?}: {lost}"),
        () = tokio::time::sleep(Duration::from_secs(100)) => {}
    }
    assert_eq!(told.all(), ["b: waits for both"]);
    both.release().await;
    acquire(&mut one).await;

    // Now it is the other way round; `a` is kept meanwhile.
    let told = Told::default();
    tokio::select! {
        _ = both.acquire(told.hears()) => panic!("two holders of b"),
        (lease, lost) = one.keep() => panic!("{lease:?}: {lost}"),
        () = tokio::time::sleep(Duration::from_secs(100)) => {}
    }
    assert_eq!(told.all(), ["b: waits for one"]);
    assert_eq!(holder(&cluster, "a").await.as_deref(), Some("both"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_left_out_until_it_does() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["b"]).await;
    let mut first = candidate(&cluster.client(), "first", &["b", "a"], &clock);
    let told = Told::default();
    let tenure = first.acquire(told.hears()).await.unwrap();
    assert_eq!(tenure.namespaces, set(&["b"]));
    assert!(tenure.gate.check().is_ok());
    assert_eq!(
        told.all(),
        ["a: without, there is no namespace a for the lease longshore-tasks"]
    );
    let kept = tokio::time::timeout(Duration::from_secs(300), first.keep()).await;
    assert!(kept.is_err() && tenure.gate.check().is_ok());

    create(&cluster, "a").await;
    assert_eq!(first.keep().await, (lease("a"), Lost::Changed));
    assert!(tenure.gate.check().is_err());
    let tenure = acquire(&mut first).await;
    assert_eq!(tenure.namespaces, set(&["a", "b"]));

    // Without its own one there is none.
    let mut second = candidate(&cluster.client(), "second", &["nowhere", "b"], &clock);
    let refused = second.acquire(|_, _| {}).await.unwrap_err();
    assert!(
        matches!(refused, LeaseError::NoNamespace { .. }),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_being_deleted_it_cleans_up_without_a_lease() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a", "b"]).await;
    let mut first = candidate(&cluster.client(), "first", &["a", "b"], &clock);
    acquire(&mut first).await;
    // As the namespace controller does it, which does not run here.
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let now = DeleteParams::default();
    namespaces.delete("b", &now).await.unwrap();
    leases(&cluster, "b").delete(NAME, &now).await.unwrap();
    let lost = first.keep().await;
    assert_eq!(lost, (lease("b"), Lost::Taken("no process".to_owned())));
    let told = Told::default();
    let tenure = first.acquire(told.hears()).await.unwrap();
    assert_eq!(tenure.namespaces, set(&["a", "b"]));
    assert_eq!(
        told.all(),
        ["b: without, the namespace b of the lease longshore-tasks is being deleted"]
    );
    let kept = tokio::time::timeout(Duration::from_secs(300), first.keep()).await;
    assert!(kept.is_err() && tenure.gate.check().is_ok());

    // A controller of that namespace alone has nothing to do.
    let mut second = candidate(&cluster.client(), "second", &["b"], &clock);
    let refused = second.acquire(|_, _| {}).await.unwrap_err();
    assert!(
        matches!(refused, LeaseError::Terminating { .. }),
        "{refused}"
    );
}

/// Three candidates, of which each two want one namespace, in a bad network, where one of them is paused most of the time.
/// Returns how many gates were open at the same time, and for how many of 72,000 steps the gate of each was open.
async fn an_hour(seed: u64) -> (usize, [u32; 3]) {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a", "b", "c"]).await;
    let gates: Arc<Mutex<Vec<(usize, Gate)>>> = Arc::default();
    let mut pauses = Vec::new();
    let mut processes = tokio::task::JoinSet::new();
    for (n, namespaces) in [["b", "a"], ["b", "c"], ["c", "a"]].into_iter().enumerate() {
        let network = BadNetwork {
            service: cluster.service(),
            dice: Arc::new(Mutex::new(Dice(seed * 100 + n as u64))),
        };
        let client = Client::new(network, "default");
        let skew = SignedDuration::from_mins([-700, 0, 45][n]);
        let clock: Arc<dyn Clock> = Arc::new(Skewed(clock.clone(), skew));
        let (own, names) = (lease(namespaces[0]), namespaces.map(lease));
        let me = format!("candidate-{n}");
        let mut electors = Electors::new(&client, own, names, &me, Terms::default(), &clock);
        let (gates, pause) = (gates.clone(), Pause::default());
        pauses.push(pause.clone());
        processes.spawn(pause.over(async move {
            let mut dice = Dice(seed + n as u64);
            loop {
                let tenure = electors.acquire(|_, _| {}).await.unwrap();
                gates.lock().unwrap().push((n, tenure.gate));
                let work = Duration::from_secs(dice.below(120));
                let is_done = tokio::time::timeout(work, electors.keep()).await.is_err();
                if is_done {
                    electors.release().await;
                }
            }
        }));
    }
    let (mut dice, mut most_open, mut open_for) = (Dice(seed), 0, [0; 3]);
    for step in 0..72_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if step % 200 == 0 {
            let n = dice.below(6) as usize;
            for (at, pause) in pauses.iter().enumerate() {
                pause.set(at == n);
            }
        }
        let mut gates = gates.lock().unwrap();
        gates.retain(|(_, gate)| gate.check().is_ok());
        gates.iter().for_each(|(n, _)| open_for[*n] += 1);
        most_open = most_open.max(gates.len());
    }
    (most_open, open_for)
}

#[tokio::test(start_paused = true)]
async fn of_candidates_with_overlapping_sets_one_acts_and_none_waits_for_ever() {
    for seed in 0..3 {
        let (most_open, open_for) = an_hour(seed).await;
        assert_eq!(most_open, 1, "seed {seed}: {open_for:?}");
        assert!(
            open_for.iter().all(|n| *n > 300),
            "seed {seed}: {open_for:?}"
        );
    }
}

fn other(namespace: &str, holder: &str) -> OtherHolder {
    OtherHolder {
        namespace: namespace.to_owned(),
        holder: holder.to_owned(),
        is_uninstalled: holder == HOLDER_UNINSTALLED,
        is_everywhere: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_survey_finds_the_holders_that_live_and_the_marks() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a", "b", "c", "d"]).await;
    let mut living = candidate(&cluster.client(), "living", &["a"], &clock);
    let mut dead = candidate(&cluster.client(), "dead", &["b"], &clock);
    let mut gone = candidate(&cluster.client(), "gone", &["c"], &clock);
    let mut survey = Survey::new(cluster.client(), NAME);
    assert_eq!(survey.look().await.unwrap(), []);
    acquire(&mut living).await;
    for candidate in [&mut dead, &mut gone] {
        acquire(candidate).await;
    }
    drop(dead);
    gone.release().await;
    let both = [other("a", "living"), other("b", "dead")];
    assert_eq!(survey.look().await.unwrap(), both, "it may live");
    for _ in 0..4 {
        let _ = tokio::time::timeout(Duration::from_secs(5), living.keep()).await;
        assert_eq!(survey.look().await.unwrap()[0], other("a", "living"));
    }
    assert_eq!(survey.look().await.unwrap(), [other("a", "living")]);

    let mark = json!({
        "metadata": {"name": NAME},
        "spec": {"holderIdentity": HOLDER_UNINSTALLED, "leaseDurationSeconds": i32::MAX},
    });
    let mark = serde_json::from_value(mark).unwrap();
    let (leases, params) = (leases(&cluster, "d"), PostParams::default());
    leases.create(&params, &mark).await.unwrap();
    living.release().await;
    let year = Duration::from_secs(365 * 24 * 3600);
    for _ in 0..2 {
        let found = survey.look().await.unwrap();
        assert_eq!(found, [other("d", HOLDER_UNINSTALLED)]);
        tokio::time::sleep(year).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_says_that_its_holder_works_everywhere_until_another_one_has_it() {
    let clock = SimClock::start();
    let cluster = with(&clock, &["a"]).await;
    let one = |me, value| {
        let candidate = candidate(&cluster.client(), me, &["a"], &clock);
        candidate.saying(ANNOTATION_ALL_NAMESPACES, value)
    };
    let mut survey = Survey::new(cluster.client(), NAME);
    // The first one creates the lease, the others take it.
    for (me, value) in [
        ("first", Some("true")),
        ("second", None),
        ("third", Some("true")),
    ] {
        let mut candidate = one(me, value);
        acquire(&mut candidate).await;
        let expected = OtherHolder {
            is_everywhere: value.is_some(),
            ..other("a", me)
        };
        assert_eq!(survey.look().await.unwrap(), [expected]);
        candidate.release().await;
        assert_eq!(survey.look().await.unwrap(), []);
    }
}
