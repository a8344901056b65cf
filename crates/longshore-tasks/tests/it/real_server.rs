//! The stories on a real API server in real time: the same code and the same ends as on the embedded cluster.
//!
//! All of them at the same time, each in a namespace of its own: they mostly wait.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use longshore_plugins::GracePeriods;
use longshore_test::{
    Fault, FaultPlan, FaultProxy, Faults, Place, Point, RealNamespace, RealServer, WatchFault,
    faults::Refusal,
    laws::{Run, ends_as, replay},
    play_all,
};
use serde_json::json;

use crate::{
    laws::STORIES,
    operators,
    stories::{self, Story},
    takeover,
    world::{World, action, actions, ending, install},
};

/// A list that shrinks fails here.
const N_SCENARIOS: usize = 33;
/// The stories that are not played here: a collection takes minutes, by labels that have no seconds; operators bring
/// kinds that all namespaces share.
const LEFT_OUT: [&str; 9] = [
    stories::COLLECTED.name,
    stories::OPERATORS.name,
    stories::MORE_OPERATORS.name,
    stories::HEADS_FAIL.name,
    stories::REMOTE.name,
    stories::REMOTE_WAITING.name,
    stories::REMOTE_CACHED.name,
    stories::OPERATORS_ABORTED.name,
    stories::TIMEOUT_OF_OTHERS.name,
];

/// What is played.
struct Play {
    story: Story,
    /// Faults in the executor's process.
    plan: FaultPlan,
    /// A fault of a watch in a proxy between the executor and the API server: not one request more is made for an
    /// action than the budget has, and the watch begins at least so often.
    proxied: Option<(WatchFault, u32)>,
}

/// Kills with a restart, lost answers and refusals.
const DISTURBED: [(Story, &str, u32, Fault); 7] = [
    (stories::SUCCESS, "create pods", 1, Fault::KillAfter),
    (stories::SUCCESS, "report", 2, Fault::KillAfter),
    (
        stories::RETRY,
        "patch taskactions/status",
        3,
        Fault::KillAfter,
    ),
    (
        stories::RETRY,
        "patch taskactions/status",
        5,
        Fault::KillBefore,
    ),
    (stories::RETRY, "create pods", 2, Fault::LoseAnswer),
    (
        stories::RETRY,
        "patch taskactions/status",
        2,
        Fault::Refuse(Refusal::Conflict),
    ),
    (
        stories::ABORTED,
        "create pods",
        1,
        Fault::Refuse(Refusal::TooManyRequests(1)),
    ),
];

/// Everything that runs on a real API server, by name.
fn scenarios() -> Vec<(String, Play)> {
    let mut all = Vec::new();
    for story in STORIES.iter().filter(|it| !LEFT_OUT.contains(&it.name)) {
        let play = Play {
            story: *story,
            plan: FaultPlan::none(),
            proxied: None,
        };
        all.push((story.name.to_owned(), play));
    }
    for (story, what, n, fault) in DISTURBED {
        let name = format!("{} with {fault:?} at {what} #{n}", story.name);
        let play = Play {
            story,
            plan: FaultPlan::at(Point::new(what, n), fault),
            proxied: None,
        };
        all.push((name, play));
    }
    let resource = || Some("pods".to_owned());
    let late = WatchFault::Late {
        resource: resource(),
        by: Duration::from_secs(2),
    };
    let cut = WatchFault::CutEvery {
        resource: resource(),
        time: Duration::from_secs(1),
    };
    for (what, fault, least) in [("2 s late", late, 1), ("cut every second", cut, 10)] {
        let play = Play {
            story: stories::MANY,
            plan: FaultPlan::none(),
            proxied: Some((fault, least)),
        };
        all.push((format!("many with the pod watch {what}"), play));
    }
    all
}

#[test]
fn the_scenarios_for_a_real_server_are_many() {
    let names: BTreeSet<String> = scenarios().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), N_SCENARIOS, "{names:#?}");
    let known: BTreeSet<&str> = STORIES.iter().map(|story| story.name).collect();
    assert!(LEFT_OUT.iter().all(|name| known.contains(name)));
}

#[test]
fn stories_end_on_a_real_server_as_on_the_embedded_cluster() {
    let Some(server) = RealServer::given() else {
        return;
    };
    let prepared: Vec<_> = scenarios()
        .into_iter()
        .map(|(name, play)| {
            let reference = replay(&play.story, FaultPlan::none());
            (name, play, reference)
        })
        .collect();
    in_real_time().block_on(async {
        introduce(&server).await;
        play_all(prepared.into_iter().map(|(name, play, reference)| {
            (name, play_in_namespace(server.clone(), play, reference))
        }))
        .await;
    });
}

/// The table of takeovers, as far as it is about pods.
#[test]
fn pods_of_the_peer_go_on_on_a_real_server_and_none_is_made_beside_them() {
    let Some(server) = RealServer::given() else {
        return;
    };
    in_real_time().block_on(async {
        introduce(&server).await;
        let taken_over = in_namespace(server.clone(), "takeover", takeover::pods_go_on);
        play_all([("takeover of pods".to_owned(), taken_over)]).await;
    });
}

#[test]
fn a_head_pod_that_does_not_start_ends_its_task_on_a_real_server() {
    let Some(server) = RealServer::given() else {
        return;
    };
    in_real_time().block_on(async {
        introduce(&server).await;
        let late = in_namespace(server.clone(), "late-head", head_is_late);
        play_all([("late head".to_owned(), late)]).await;
    });
}

/// Its operator says that it runs, and nobody touches the pod any more.
async fn head_is_late(mut world: World) {
    let grace = GracePeriods {
        create_container_error: Duration::from_secs(5),
        ..GracePeriods::default()
    };
    world.plugins = Arc::new(operators::patient_plugins(grace));
    world.cache.leave_inputs(&operators::inputs()).await;
    operators::start_one("PyTorchJob", &world.place, &world.seen).await;
    let late = operators::typed(action("torch-head-late", 0, ""), 0);
    world.apply(late).await;
    let process = Faults::none().start();
    let has_ended = async {
        loop {
            if let Some(end) = world.actions().await.iter().find_map(ending) {
                return end;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let end = tokio::select! {
        () = Box::pin(world.run(&process)) => None,
        end = tokio::time::timeout(Duration::from_secs(120), has_ended) => end.ok(),
    };
    let end = end.unwrap_or_default();
    let is_late = end.contains("Grace period [5s] exceeded");
    assert!(is_late, "{end}: {:#?}", world.actions().await);
}

fn in_real_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Plays this in a namespace of its own.
async fn in_namespace<F>(
    server: RealServer,
    name: &'static str,
    play: fn(World) -> F,
) -> Result<(), String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let namespace = RealNamespace::create(&server, name).await.unwrap();
    let place = namespace.place();
    let world = World::real(place.clone(), &[]);
    let ended = tokio::spawn(play(world)).await;
    remove_actions(&place).await;
    let removed = namespace.remove().await.map_err(|error| error.to_string());
    ended.map_err(|error| error.to_string())?;
    removed
}

/// Makes the server know TaskActions.
async fn introduce(server: &RealServer) {
    let home = RealNamespace::create(server, "story").await.unwrap();
    install(&home.place().client()).await;
    while actions(&home.place())
        .list(&ListParams::default())
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    home.remove().await.unwrap();
}

async fn play_in_namespace(server: RealServer, play: Play, reference: Run) -> Result<(), String> {
    let namespace = RealNamespace::create(&server, "story").await.unwrap();
    let place = namespace.place();
    let ended = tokio::spawn(play_one(place.clone(), play, reference)).await;
    remove_actions(&place).await;
    let removed = namespace.remove().await.map_err(|error| error.to_string());
    ended.map_err(|error| error.to_string())?.and(removed)
}

async fn play_one(place: Place, play: Play, reference: Run) -> Result<(), String> {
    let mut world = World::real(place, play.story.rules);
    let Some((fault, least_watches)) = play.proxied else {
        let is_to_be_met = !play.plan.at.is_empty();
        let faults = Faults::new(play.plan);
        let world = play.story.begun_in(world).await;
        ends_as(&play.story, world, &faults, &reference.digest).await?;
        let is_met = faults.n_starts_and_faults().1 > 0;
        return (is_met || !is_to_be_met)
            .then_some(())
            .ok_or_else(|| "the fault was never met".to_owned());
    };
    let faults = Faults::new(FaultPlan::watches(fault));
    let proxy = FaultProxy::start(world.place.client(), &faults.start()).await;
    let proxy = proxy.map_err(|error| error.to_string())?;
    let client = proxy.client().await.map_err(|error| error.to_string())?;
    world.api = Place::behind(client, world.place.namespace());
    let world = play.story.begun_in(world).await;
    ends_as(&play.story, world, &Faults::none(), &reference.digest).await?;
    let n_actions = u32::try_from(play.story.actions.len()).unwrap_or(u32::MAX);
    let n_creates = faults.count("create pods");
    let n_writes =
        n_creates + faults.count("patch taskactions") + faults.count("patch taskactions/status");
    let n_watches = faults.count("watch pods");
    if n_creates != n_actions || n_writes > 6 * n_actions || n_watches < least_watches {
        return Err(format!(
            "{n_creates} creates of pods and {n_writes} writes for {n_actions} actions, {n_watches} watches"
        ));
    }
    Ok(())
}

/// An API server without controllers keeps what has finalizers.
async fn remove_actions(place: &Place) {
    let actions = actions(place);
    for action in actions.list(&ListParams::default()).await.unwrap() {
        let name = action.metadata.name.unwrap_or_default();
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = actions.patch(&name, &PatchParams::default(), &free).await;
        let _ = actions.delete(&name, &DeleteParams::default()).await;
    }
}
