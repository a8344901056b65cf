//! The scenarios on a real API server in real time: the same code and the same ends as on the embedded cluster.
//!
//! All of them at the same time, each in a namespace of its own: they mostly wait. Left out are the stories whose times
//! are dates of the simulated clock, and tests that wait for minutes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use longshore_test::{
    Fault, FaultPlan, FaultProxy, Faults, Place, Point, RealServer, WatchFault,
    faults::Refusal,
    laws::{Owned, Run, ends_as, replay},
    play_all,
};

use crate::{
    laws::STORIES,
    logs, restart,
    scenarios::{self, Story},
    surroundings::Surroundings,
    world::World,
};

/// A list that shrinks fails here.
const N_SCENARIOS: usize = 36;

/// What is played.
enum Play {
    /// A story, with these faults in the scheduler's process. Ends like the undisturbed one on the embedded cluster.
    Story(Story, FaultPlan),
    /// The same, with a fault of the pod watch in a proxy between the scheduler and the API server: not one pod more is
    /// created, and the watch begins at least so often.
    Proxied(Story, WatchFault, u32),
    /// A test of its own, in a world with this DAG.
    Test(&'static str, fn(World) -> BoxFuture<'static, ()>),
}

/// Everything that runs on a real API server, by name.
fn scenarios() -> Vec<(String, Play)> {
    let mut all = Vec::new();
    let stories = STORIES.into_iter();
    for story in stories.filter(|story| !LEFT_OUT.contains(&story.name)) {
        let play = Play::Story(story, FaultPlan::none());
        all.push((story.name.to_owned(), play));
    }
    for (story, what, n, fault) in DISTURBED {
        let name = format!("{} with {fault:?} at {what} #{n}", story.name);
        let plan = FaultPlan::at(Point::new(what, n), fault);
        all.push((name, Play::Story(story, plan)));
    }
    let pods = || "pods".to_owned();
    let expire = WatchFault::Expire {
        resource: pods(),
        n: 3,
    };
    let play = Play::Story(scenarios::RETRY, FaultPlan::watches(expire));
    all.push(("retry with an expired watch".to_owned(), play));
    let late = WatchFault::Late {
        resource: Some(pods()),
        by: Duration::from_secs(2),
    };
    let cut = WatchFault::CutEvery {
        resource: Some(pods()),
        time: Duration::from_secs(1),
    };
    for (what, fault, least) in [("2 s late", late, 1), ("cut every second", cut, 10)] {
        let name = format!("retry with the pod watch {what}");
        let play = Play::Proxied(scenarios::RETRY, fault, least);
        all.push((name, play));
    }
    for (name, dag, test) in TESTS {
        all.push((name.to_owned(), Play::Test(dag, test)));
    }
    all
}

/// The stories that are not played here: their times are dates of the simulated clock.
const LEFT_OUT: [&str; 2] = [scenarios::SCHEDULED.name, scenarios::PAUSED.name];

/// Kills with a restart, lost answers and refusals.
const DISTURBED: [(Story, &str, u32, Fault); 8] = [
    (scenarios::CHAIN, "create pods", 1, Fault::KillAfter),
    (scenarios::CHAIN, "create pods", 2, Fault::KillBefore),
    (scenarios::RETRY, "commit", 5, Fault::KillAfter),
    (scenarios::RETRY, "delete pods", 1, Fault::KillAfter),
    (
        scenarios::DIAMOND,
        "create persistentvolumeclaims",
        1,
        Fault::KillAfter,
    ),
    (scenarios::DIAMOND, "create pods", 3, Fault::LoseAnswer),
    (
        scenarios::RETRY,
        "create pods",
        2,
        Fault::Refuse(Refusal::Conflict),
    ),
    (
        scenarios::RETRY,
        "create pods",
        3,
        Fault::Refuse(Refusal::TooManyRequests(1)),
    ),
];

type Test = (
    &'static str,
    &'static str,
    fn(World) -> BoxFuture<'static, ()>,
);

/// Tests of `restart` and `logs`.
const TESTS: [Test; 4] = [
    ("beside a neighbour", restart::SHARING, |world| {
        restart::beside_a_neighbour(world).boxed()
    }),
    ("swept while down", restart::SHARING, |world| {
        let cut = vec![WatchFault::CutAfter(1)];
        restart::swept_while_down(world, cut).boxed()
    }),
    ("swept and forgotten", restart::SHARING, |world| {
        restart::swept_and_forgotten(world).boxed()
    }),
    ("stopped without log", logs::ENDLESS, |world| {
        logs::stopped_without_log(world).boxed()
    }),
];

#[test]
fn the_scenarios_for_a_real_server_are_many() {
    let names: BTreeSet<String> = scenarios().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), N_SCENARIOS, "{names:#?}");
}

#[test]
fn scenarios_end_on_a_real_server_as_on_the_embedded_cluster() {
    let Some(server) = RealServer::given() else {
        return;
    };
    let prepared: Vec<_> = scenarios()
        .into_iter()
        .map(|(name, play)| (name, prepare(play)))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(play_all(prepared.into_iter().map(
        |(name, (play, reference))| (name, play_in_namespace(server.clone(), play, reference)),
    )));
}

/// What is played, and how it ends on the embedded cluster.
fn prepare(play: Play) -> (Play, Option<Run>) {
    let reference = match &play {
        Play::Story(story, _) | Play::Proxied(story, ..) => Some(replay(story, FaultPlan::none())),
        Play::Test(..) => None,
    };
    (play, reference)
}

async fn play_in_namespace(
    server: RealServer,
    play: Play,
    reference: Option<Run>,
) -> Result<(), String> {
    let (around, namespace) = Surroundings::real(&server, "scenario").await;
    let ended = tokio::spawn(play_one(around, play, reference)).await;
    let removed = namespace.remove().await.map_err(|error| error.to_string());
    ended.map_err(|error| error.to_string())?.and(removed)
}

async fn play_one(around: Surroundings, play: Play, reference: Option<Run>) -> Result<(), String> {
    match (play, reference) {
        (Play::Story(story, plan), Some(reference)) => {
            let world = World::standing_on(around, story.dag, story.rules);
            let is_to_be_met = !plan.at.is_empty();
            let faults = Faults::new(plan);
            tell(story, world, &faults, &reference.digest).await?;
            let (_, n_faults) = faults.n_starts_and_faults();
            if is_to_be_met && n_faults == 0 {
                return Err("the fault was never met".to_owned());
            }
            Ok(())
        }
        (Play::Proxied(story, fault, least_watches), Some(reference)) => {
            let mut world = World::standing_on(around, story.dag, story.rules);
            let faults = Faults::new(FaultPlan::watches(fault));
            let proxy = FaultProxy::start(world.place.client(), &faults.start()).await;
            let proxy = proxy.map_err(|error| error.to_string())?;
            let client = proxy.client().await.map_err(|error| error.to_string())?;
            world.api = Place::behind(client, world.place.namespace());
            tell(story, world, &Faults::none(), &reference.digest).await?;
            let expected = reference.points.iter();
            let expected = expected.filter(|point| point.what == "create pods").count();
            let n_creates = faults.count("create pods");
            let n_watches = faults.count("watch pods");
            if n_creates as usize != expected || n_watches < least_watches {
                return Err(format!(
                    "expected {expected} creates of pods and at least {least_watches} watches, \
                     found {n_creates} and {n_watches}"
                ));
            }
            Ok(())
        }
        (Play::Test(dag, test), _) => {
            test(World::standing_on(around, dag, &[])).await;
            Ok(())
        }
        (Play::Story(..) | Play::Proxied(..), None) => Err("no end to compare with".to_owned()),
    }
}

/// Plays a story, with people in it.
async fn tell(story: Story, world: World, faults: &Faults, expected: &str) -> Result<(), String> {
    let people = Owned::spawn(story.people.use_cluster(world.place.clone()));
    let ended = ends_as(&story, Arc::new(world), faults, expected).await;
    drop(people);
    ended
}
