//! Leader election on the embedded cluster, in simulated time: processes that are paused, networks that lose and delay.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams, client::Body};
use longshore_cluster::Cluster;
use longshore_core::{Class, Classify, ObjectRef, Resource};
use longshore_kit::{
    Clock, Elector, Gate, GateWrites, Requests,
    lease::{LEASE, LeaseError, LeaseName, Lost, Terms},
};
use longshore_test::{SimClock, clock::cluster};
use serde_json::{Value, json};
use tower::{BoxError, Service, ServiceExt};

/// A clock that is wrong.
#[derive(Debug)]
pub(crate) struct Skewed(pub(crate) Arc<SimClock>, pub(crate) SignedDuration);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.0.now() + self.1
    }
}

fn lease() -> LeaseName {
    LeaseName {
        namespace: "default".to_owned(),
        name: "longshore-test".to_owned(),
    }
}

fn elector(client: Client, me: &str, clock: &Arc<SimClock>, skew_minutes: i64) -> Elector {
    let skew = SignedDuration::from_mins(skew_minutes);
    let clock = Arc::new(Skewed(clock.clone(), skew));
    Elector::new(client, lease(), me, Terms::default(), clock)
}

async fn stored(cluster: &Cluster) -> Value {
    let target = ObjectRef {
        resource: LEASE,
        namespace: lease().namespace,
        name: lease().name,
        uid: None,
    };
    let stored = Requests::new(cluster.client()).get(&target).await;
    stored.unwrap().unwrap()
}

/// A process that can be stopped like with SIGSTOP: nothing of it runs, and time goes on.
#[derive(Clone, Default)]
pub(crate) struct Pause(Arc<Mutex<(bool, Option<Waker>)>>);

impl Pause {
    pub(crate) fn set(&self, is_paused: bool) {
        let mut state = self.0.lock().unwrap();
        state.0 = is_paused;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    pub(crate) async fn over<T>(self, process: impl Future<Output = T>) -> T {
        let mut process = pin!(process);
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                state.1 = Some(cx.waker().clone());
                return Poll::Pending;
            }
            drop(state);
            process.as_mut().poll(cx)
        })
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn one_holds_the_lease_and_the_other_waits_and_takes_over_when_it_expires() {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let mut first = elector(cluster.client(), "first", &clock, -90);
    let mut second = elector(cluster.client(), "second", &clock, 600);
    let first_gate = first.acquire(|_| {}).await.unwrap();
    assert!(first_gate.check().is_ok());
    assert_eq!(stored(&cluster).await["spec"]["holderIdentity"], "first");

    // Renewed for an hour: the other one waits, whatever its clock says.
    let mut waited_for = Vec::new();
    let acquire = second.acquire(|holder| waited_for.push(holder.to_owned()));
    let hour = Duration::from_secs(3600);
    tokio::select! {
        _ = acquire => panic!("two holders"),
        lost = first.keep() => panic!("{lost}"),
        () = tokio::time::sleep(hour) => {}
    }
    assert_eq!(waited_for, ["first"]);
    assert!(first_gate.check().is_ok());

    // The first one is gone without a word.
    let gone_at = clock.now();
    drop(first);
    let second_gate = second.acquire(|_| {}).await.unwrap();
    let took = clock.now().duration_since(gone_at);
    assert!((10..=17).contains(&took.as_secs()), "{took}");
    assert!(first_gate.check().is_err() && second_gate.check().is_ok());
    assert_eq!(stored(&cluster).await["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_released_is_taken_without_waiting_for_its_end() {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let mut first = elector(cluster.client(), "first", &clock, 0);
    let mut second = elector(cluster.client(), "second", &clock, 0);
    let gate = first.acquire(|_| {}).await.unwrap();
    let released_at = clock.now();
    first.release().await;
    assert!(gate.check().is_err(), "before the lease was let go");
    second.acquire(|_| {}).await.unwrap();
    assert!(clock.now().duration_since(released_at).as_secs() < 3);
    first.release().await;
    assert_eq!(stored(&cluster).await["spec"]["holderIdentity"], "second");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_taken_away_is_lost() {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let mut first = elector(cluster.client(), "first", &clock, 0);
    let requests = Requests::new(cluster.client());
    let target = ObjectRef {
        resource: LEASE,
        namespace: lease().namespace,
        name: lease().name,
        uid: None,
    };
    let gate = first.acquire(|_| {}).await.unwrap();
    requests.delete(&target, None).await.unwrap();
    assert_eq!(first.keep().await, Lost::Taken("no process".to_owned()));
    assert!(gate.check().is_err());

    let gate = first.acquire(|_| {}).await.unwrap();
    let theirs = json!({"spec": {"holderIdentity": "somebody"}});
    let patched = requests.patch(&target, None, longshore_core::PatchKind::Merge, theirs);
    patched.await.unwrap();
    assert_eq!(first.keep().await, Lost::Taken("somebody".to_owned()));
    assert!(gate.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_said_at_once() {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let name = LeaseName {
        namespace: "nowhere".to_owned(),
        ..lease()
    };
    let mut first = Elector::new(cluster.client(), name, "a", Terms::default(), clock);
    let refused = first.acquire(|_| {}).await.unwrap_err();
    assert!(
        matches!(refused, LeaseError::NoNamespace { .. }),
        "{refused}"
    );
}

/// Writes through the gate for as long as it may.
async fn write_until_refused(cluster: &Cluster, me: &str, gate: &Gate) -> longshore_kit::ApiError {
    let client = Client::new(GateWrites::new(cluster.service(), gate.clone()), "default");
    let requests = Requests::new(client);
    for n in 0.. {
        let target = ObjectRef {
            resource: Resource::CONFIG_MAP,
            namespace: "default".to_owned(),
            name: format!("{me}-{n}"),
            uid: None,
        };
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": target.name, "namespace": "default", "labels": {"writer": me}},
        });
        if let Err(error) = requests.create(&target, &object).await {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_paused_writes_nothing_when_it_goes_on() {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let pause = Pause::default();
    let first = {
        let (cluster, clock) = (cluster.clone(), clock.clone());
        tokio::spawn(pause.clone().over(async move {
            let mut elector = elector(cluster.client(), "first", &clock, 0);
            let gate = elector.acquire(|_| {}).await.unwrap();
            // The renewals and the writes of one process: both are paused, and whichever is polled first goes on first.
            tokio::join!(
                write_until_refused(&cluster, "first", &gate),
                elector.keep()
            )
        }))
    };
    tokio::time::sleep(Duration::from_secs(30)).await;
    pause.set(true);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let by_first = ListParams::default().labels("writer=first");
    let n_before = maps.list(&by_first).await.unwrap().items.len();
    assert!(n_before > 30, "{n_before}");

    let mut second = elector(cluster.client(), "second", &clock, 0);
    let gate = second.acquire(|_| {}).await.unwrap();
    pause.set(false);
    let (refused, lost) = first.await.unwrap();
    assert!(refused.is_not_leader(), "{refused}");
    assert_eq!(refused.class(), Class::Retry);
    // The holder knows only that its time is over; it has not read who has the lease.
    assert_eq!(lost, Lost::NotRenewed(Duration::from_secs(10)));
    assert_eq!(maps.list(&by_first).await.unwrap().items.len(), n_before);
    assert!(gate.check().is_ok());
}

/// Small numbers that look random, always the same for a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// A network that delays requests and answers and loses some. What was sent arrives, however late,
/// even if the client no longer waits for the answer.
#[derive(Clone)]
pub(crate) struct BadNetwork<S> {
    pub(crate) service: S,
    pub(crate) dice: Arc<Mutex<Dice>>,
}

impl<S> Service<Request<Body>> for BadNetwork<S>
where
    S: Service<Request<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.service.clone();
        let (there, back, is_lost) = {
            let mut dice = self.dice.lock().unwrap();
            let mut delay = || match dice.below(10) {
                0 if dice.below(3) == 0 => 15_000,
                0 | 1 => 4_000,
                2..=4 => 300,
                _ => 0,
            };
            (delay(), delay(), dice.below(12) == 0)
        };
        Box::pin(async move {
            let answer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(there)).await;
                service.oneshot(request).await
            });
            let answer = answer.await?;
            tokio::time::sleep(Duration::from_millis(back)).await;
            if is_lost {
                return Err("the answer was lost".into());
            }
            answer.map_err(Into::into)
        })
    }
}

/// What was seen of three candidates in an hour.
#[derive(Debug, Default)]
struct Hour {
    /// Gates that were open at the same time.
    most_open: usize,
    /// For how many of 72,000 steps the gate of each was open.
    open_for: [u32; 3],
}

/// Three candidates with these terms in a bad network, where one of them is paused most of the time.
async fn an_hour(seed: u64, terms: Terms) -> Hour {
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let gates: Arc<Mutex<Vec<(usize, Gate)>>> = Arc::default();
    let mut pauses = Vec::new();
    let mut processes = tokio::task::JoinSet::new();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let network = BadNetwork {
            service: cluster.service(),
            dice: Arc::new(Mutex::new(Dice(seed * 100 + n as u64))),
        };
        let client = Client::new(network, "default");
        let skewed = Skewed(clock.clone(), SignedDuration::from_mins([-700, 0, 45][n]));
        let mut elector = Elector::new(client, lease(), name, terms, Arc::new(skewed));
        let (gates, pause) = (gates.clone(), Pause::default());
        pauses.push(pause.clone());
        processes.spawn(pause.over(async move {
            let mut dice = Dice(seed + n as u64);
            loop {
                let gate = elector.acquire(|_| {}).await.unwrap();
                gates.lock().unwrap().push((n, gate));
                let work = Duration::from_secs(dice.below(120));
                let is_done = tokio::time::timeout(work, elector.keep()).await.is_err();
                if is_done {
                    elector.release().await;
                }
            }
        }));
    }
    let (mut dice, mut hour) = (Dice(seed), Hour::default());
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
        gates.iter().for_each(|(n, _)| hour.open_for[*n] += 1);
        hour.most_open = hour.most_open.max(gates.len());
    }
    hour
}

#[tokio::test(start_paused = true)]
async fn there_are_never_two_holders_whatever_networks_clocks_and_machines_do() {
    for seed in 0..5 {
        let hour = an_hour(seed, Terms::default()).await;
        assert_eq!(hour.most_open, 1, "seed {seed}: {hour:?}");
        let open_for: u32 = hour.open_for.iter().sum();
        assert!(
            open_for > 36_000,
            "seed {seed}: half of the time somebody acts, {hour:?}"
        );
        assert!(
            hour.open_for.iter().all(|n| *n > 0),
            "seed {seed}: {hour:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn terms_that_let_a_holder_act_for_longer_than_others_wait_are_found_out() {
    let terms = Terms {
        renew_deadline: Duration::from_secs(40),
        ..Terms::default()
    };
    assert!(an_hour(0, terms).await.most_open > 1);
}
