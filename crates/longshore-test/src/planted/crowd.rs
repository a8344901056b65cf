//! A crowd of errands whose foreign system may be silent, and a few others that ask another one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use longshore_cluster::Cluster;
use longshore_kit::{Cache, ListWatch};

use super::{
    ErrandBug,
    errands::{Errands, LABEL, STATE_ASKED},
};
use crate::{
    Process, SimClock, clock,
    fixtures::config_map,
    foreign::{ForeignSystem, Reply},
    laws::{Asking, Host, Owned, Scenario},
};

/// The foreign systems, and how many errands ask each: more than a controller has rounds at once, and a few.
const HOSTS: [(&str, usize); 2] = [("crowded", 100), ("other", 5)];

/// The toy that calls foreign systems, with many keys.
#[derive(Clone, Copy, Debug)]
pub struct ErrandCrowd(pub ErrandBug);

/// See [`ErrandCrowd`].
#[derive(Debug)]
pub struct CrowdWorld {
    cluster: Cluster,
    clock: Arc<SimClock>,
    foreign: ForeignSystem,
    silent: Arc<Mutex<BTreeSet<String>>>,
    ends: Arc<Mutex<BTreeMap<String, Duration>>>,
    _watch: Owned,
}

impl Scenario for ErrandCrowd {
    type World = CrowdWorld;
    type Subject = Owned;

    fn name(&self) -> String {
        format!("a crowd of errands with {:?}", self.0)
    }

    #[expect(
        clippy::expect_used,
        reason = "a scenario that cannot be built cannot be judged"
    )]
    async fn build(&self) -> CrowdWorld {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        for name in self.hosts().into_iter().flat_map(|host| host.keys) {
            let map = config_map(&name).labelled(LABEL, "").typed();
            let created = api.create(&PostParams::default(), &map).await;
            created.expect("the scenario's objects");
        }
        let silent: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let silenced = Arc::clone(&silent);
        let foreign = ForeignSystem::new(move |question, _| {
            if lock(&silenced).contains(host_of(question)) {
                return Reply::Hangs;
            }
            Reply::Answers(format!("answer to {question}"))
        });
        let ends: Arc<Mutex<BTreeMap<String, Duration>>> = Arc::default();
        let (ended, seen_by) = (Arc::clone(&ends), clock.clone());
        let updates = ListWatch::new(api).labels(LABEL).into_cache(Cache::new());
        let watch = Owned::spawn(updates.for_each(move |update| {
            if let Some(map) = update.into_object()
                && let Some(state) = map.data.as_ref().and_then(|data| data.get("state"))
                && state != STATE_ASKED
            {
                let name = map.metadata.name.clone().unwrap_or_default();
                let elapsed = seen_by.elapsed();
                lock(&ended).entry(name).or_insert(elapsed);
            }
            std::future::ready(())
        }));
        CrowdWorld {
            cluster,
            clock,
            foreign,
            silent,
            ends,
            _watch: watch,
        }
    }

    fn start(&self, world: &mut CrowdWorld, process: &Process) -> Owned {
        let client = process.client(world.cluster.service());
        let foreign = world.foreign.through(process);
        Owned::spawn(Errands::run(self.0, client, foreign, world.clock.clone()))
    }

    async fn digest(&self, world: &CrowdWorld) -> String {
        let ends = lock(&world.ends);
        let ended: Vec<&String> = ends.keys().collect();
        format!("{ended:?}")
    }

    fn time(&self) -> Duration {
        Duration::from_secs(120)
    }
}

impl Asking for ErrandCrowd {
    fn hosts(&self) -> Vec<Host> {
        let host = |(name, n): (&str, usize)| Host {
            name: name.to_owned(),
            keys: (0..n).map(|n| format!("{name}-{n}")).collect(),
        };
        HOSTS.into_iter().map(host).collect()
    }

    fn silence(&self, world: &CrowdWorld, host: &str) {
        lock(&world.silent).insert(host.to_owned());
    }

    fn ends(&self, world: &CrowdWorld) -> BTreeMap<String, Duration> {
        lock(&world.ends).clone()
    }
}

/// The foreign system that an errand of this name calls.
pub(super) fn host_of(errand: &str) -> &str {
    errand.split_once('-').map_or("foreign", |(host, _)| host)
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
