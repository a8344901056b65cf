//! Running attempts of the peer are gone on with: its state is read, its resource is adopted, nothing is made again.

use std::time::Duration;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use longshore_api::flyte::FINALIZER_PLUGIN;
use longshore_kit::api_resource;
use longshore_plugins::{
    K8sState, Launch, Phase, PluginState, ResourceMeta, WebApiPhase, WebApiState,
};
use longshore_test::{Faults, scripted_node::ANNOTATION_SCRIPT};
use serde_json::json;

use crate::{
    operators,
    stories::Story,
    world::{World, action, actions, base64, ending},
};

/// The families of plugins that make resources; each is the beginning of the name of an action.
const MAKERS: [&str; 9] = [
    "pod", "spark", "ray", "dask", "torch", "tf", "mpi", "set", "flink",
];
/// How far attempts are. The peer may have ended before it recorded the resource.
const PHASES: [(Launch, Phase); 5] = [
    (Launch::NotStarted, Phase::Undefined),
    (Launch::NotStarted, Phase::WaitingForCache),
    (Launch::Started, Phase::Queued),
    (Launch::Started, Phase::Initializing),
    (Launch::Started, Phase::Running),
];
const NOBODY: Story = Story::of("taken over", &[]).with_operators();

/// The state as the peer has it: byte for byte what it writes, by the tests of its encoding.
fn state(launch: Launch, phase: Phase) -> PluginState {
    PluginState {
        launch,
        k8s: K8sState {
            phase,
            version: 0,
            reason: "task submitted to K8s".to_owned(),
        },
        ..PluginState::default()
    }
}

/// Records what the peer has recorded; answers the uid of the action.
async fn record(world: &World, name: &str, state: &[u8], phase: Phase) -> String {
    record_after(world, name, state, phase, 0).await
}

/// The same after system failures.
async fn record_after(
    world: &World,
    name: &str,
    state: &[u8],
    phase: Phase,
    n_failures: u32,
) -> String {
    let actions = actions(&world.place);
    let held = json!({"metadata": {"finalizers": [FINALIZER_PLUGIN]}});
    let params = PatchParams::default();
    actions
        .patch(name, &params, &Patch::Merge(held))
        .await
        .unwrap();
    let mut status = json!({"pluginPhase": phase.published(), "attempts": 1});
    if n_failures > 0 {
        status["systemFailures"] = n_failures.into();
    }
    if !state.is_empty() {
        status["pluginState"] = base64(state).into();
        status["pluginStateVersion"] = 1.into();
    }
    let status = Patch::Merge(json!({"status": status}));
    let written = actions.patch_status(name, &params, &status).await.unwrap();
    written.uid().unwrap()
}

/// The kind of what is made for an action.
fn made_for(world: &World, name: &str) -> Api<DynamicObject> {
    let (place, kind) = (&world.place, operators::made_for(name).unwrap());
    Api::namespaced_with(place.client(), place.namespace(), &api_resource(kind))
}

/// Makes what the peer has made.
async fn make(world: &World, name: &str, uid: &str) {
    let (place, kind) = (&world.place, operators::made_for(name).unwrap());
    let objects = made_for(world, name);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {
            "name": format!("{name}-0"), "namespace": place.namespace(),
            "labels": {"flyte.org/managed": "true", "attempt": "1"},
            "annotations": {ANNOTATION_SCRIPT: "run 20s exit 0"},
            "ownerReferences": [{
                "apiVersion": "flyte.org/v1", "kind": "TaskAction", "name": name, "uid": uid,
                "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "main", "image": "example.test/image:1"}]},
    }))
    .unwrap();
    let made = objects.create(&PostParams::default(), &object).await;
    made.unwrap();
}

async fn begin(world: &World, name: &str) {
    let typed = operators::typed(action(name, 0, ""), 1);
    world.apply(typed).await;
}

/// What became of each action.
async fn go_on(world: &World) -> Vec<(String, String)> {
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(200), Box::pin(world.run(&process))).await;
    ends(world).await
}

/// How each action stands, by name.
async fn ends(world: &World) -> Vec<(String, String)> {
    let ended = world.actions().await;
    let ends = ended.iter().map(|action| {
        let name = action["metadata"]["name"].as_str().unwrap().to_owned();
        let end = ending(action).unwrap_or_else(|| action["status"].to_string());
        let attempts = &action["status"]["attempts"];
        (name, format!("{end}, attempt {attempts}"))
    });
    ends.collect()
}

fn completed(names: &[String]) -> Vec<(String, String)> {
    let end = "Completed: TaskAction completed successfully, attempt 1";
    let mut names = names.to_vec();
    names.sort();
    names
        .into_iter()
        .map(|name| (name, end.to_owned()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_the_peer_goes_on_in_each_phase_without_a_second_child() {
    let world = NOBODY.world().await;
    // Until each kind is served.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut names = Vec::new();
    for maker in MAKERS {
        for (n, (launch, phase)) in PHASES.into_iter().enumerate() {
            let name = format!("{maker}-{n}");
            begin(&world, &name).await;
            let recorded = state(launch, phase).encode();
            let uid = record(&world, &name, &recorded, phase).await;
            make(&world, &name, &uid).await;
            names.push(name);
        }
    }
    assert_eq!(go_on(&world).await, completed(&names));
    let n_phases = PHASES.len();
    assert_eq!(world.seen.count(), (MAKERS.len() - 1) * n_phases);
    let pods = world.pods().await;
    let pods = pods.iter().filter(|pod| pod.name_any().starts_with("pod-"));
    assert_eq!(pods.count(), n_phases);
}

/// The launches after a system failure: of pods after each number of them, of the others after the first one, because only
/// the number in the launch differs.
fn launches_after_failures() -> Vec<(&'static str, u32, bool, usize)> {
    let mut launches = Vec::new();
    for maker in MAKERS {
        let most = if maker == "pod" { 3 } else { 1 };
        for n_failures in 1..=most {
            for (n, (launch, _)) in PHASES.into_iter().enumerate() {
                launches.push((maker, n_failures, true, n));
                if launch == Launch::NotStarted {
                    launches.push((maker, n_failures, false, n));
                }
            }
        }
    }
    launches
}

/// The peer has deleted the resource before the last system failure, and counts that: it has ended right before it made the
/// next one, or right after.
#[tokio::test(start_paused = true)]
async fn a_launch_of_the_peer_after_system_failures_is_adopted_or_made_once() {
    let world = NOBODY.world().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut names = Vec::new();
    for (maker, n_failures, is_made, n) in launches_after_failures() {
        let (launch, phase) = PHASES[n];
        let name = format!("{maker}-{n_failures}-{is_made}-{n}");
        begin(&world, &name).await;
        let recorded = match launch {
            Launch::NotStarted => Vec::new(),
            Launch::Started => state(launch, phase).encode(),
        };
        let uid = record_after(&world, &name, &recorded, phase, n_failures).await;
        if is_made {
            make(&world, &name, &uid).await;
        }
        names.push(name);
    }
    assert_eq!(go_on(&world).await, completed(&names));
    let of_operators = names.iter().filter(|name| !name.starts_with("pod-"));
    assert_eq!(world.seen.count(), of_operators.count());
    assert_eq!(world.seen.repeated(), [""; 0]);
    let history = world.node.history();
    let repeated = history.repeated(|run| Some(run.pod.clone()));
    assert!(repeated.is_empty(), "{repeated:?}");
}

/// The pods of the peer in each phase, without system failures and after some: they are there, or were about to be made.
/// Ends when all actions have, and each has run one pod.
pub(crate) async fn pods_go_on(world: World) {
    let of_pods = launches_after_failures().into_iter();
    let of_pods = of_pods.filter(|(maker, ..)| *maker == "pod");
    let first = (0..PHASES.len()).map(|n| ("pod", 0, true, n));
    let mut names = Vec::new();
    for (maker, n_failures, is_made, n) in first.chain(of_pods) {
        let (launch, phase) = PHASES[n];
        let name = format!("{maker}-{n_failures}-{is_made}-{n}");
        begin(&world, &name).await;
        let recorded = match launch {
            Launch::NotStarted => Vec::new(),
            Launch::Started => state(launch, phase).encode(),
        };
        let uid = record_after(&world, &name, &recorded, phase, n_failures).await;
        if is_made {
            make(&world, &name, &uid).await;
        }
        names.push(name);
    }
    let process = Faults::none().start();
    let have_ended = async {
        while ends(&world).await != completed(&names) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let in_time = tokio::select! {
        () = Box::pin(world.run(&process)) => Ok(()),
        in_time = tokio::time::timeout(Duration::from_secs(120), have_ended) => in_time,
    };
    assert!(in_time.is_ok(), "{:?}", ends(&world).await);
    let history = world.node.history();
    assert_eq!(history.runs().len(), names.len());
    let repeated = history.repeated(|run| Some(run.pod.clone()));
    assert!(repeated.is_empty(), "{repeated:?}");
}

/// The peer has counted a system failure, and its operator, or somebody else, has yet to let go of what it deleted then.
#[tokio::test(start_paused = true)]
async fn what_the_peer_has_deleted_after_a_system_failure_is_waited_for_and_made_once_more() {
    let world = NOBODY.world().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut names = Vec::new();
    for maker in MAKERS {
        let name = format!("{maker}-0");
        begin(&world, &name).await;
        let uid = record_after(&world, &name, &[], Phase::Undefined, 1).await;
        make(&world, &name, &uid).await;
        let (objects, object) = (made_for(&world, &name), format!("{name}-0"));
        let params = PatchParams::default();
        let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.test/keep"]}}));
        let patched = objects.patch(&object, &params, &held).await;
        patched.unwrap();
        let deleted = objects.delete(&object, &DeleteParams::default()).await;
        deleted.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let patched = objects.patch(&object, &params, &let_go).await;
            patched.unwrap();
        });
        names.push(name);
    }
    assert_eq!(go_on(&world).await, completed(&names));
    // That of the peer, and ours.
    assert_eq!(world.seen.count(), 2 * (MAKERS.len() - 1));
    assert_eq!(world.seen.repeated(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_the_peer_was_about_to_make_is_made_once() {
    let world = NOBODY.world().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut names = Vec::new();
    for maker in MAKERS {
        let name = format!("{maker}-0");
        begin(&world, &name).await;
        let recorded = state(Launch::NotStarted, Phase::Undefined).encode();
        record(&world, &name, &recorded, Phase::Undefined).await;
        names.push(name);
    }
    assert_eq!(go_on(&world).await, completed(&names));
    assert_eq!(world.seen.count(), MAKERS.len() - 1);
}

/// A job of a connector, as the peer remembers it.
fn job(phase: WebApiPhase, prefix: &str) -> WebApiState {
    let meta = ResourceMeta {
        output_prefix: prefix.to_owned(),
        connector_meta: prefix.into(),
        ..ResourceMeta::default()
    };
    WebApiState {
        phase,
        resource_meta: (phase == WebApiPhase::ResourcesCreated).then_some(meta),
        ..WebApiState::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_of_the_peer_goes_on_and_none_is_begun_beside_it() {
    let world = NOBODY.world().await;
    let states = [
        (WebApiPhase::NotStarted, Phase::Undefined),
        (WebApiPhase::AllocationTokenAcquired, Phase::Queued),
        (WebApiPhase::ResourcesCreated, Phase::Queued),
        (WebApiPhase::ResourcesCreated, Phase::Running),
    ];
    for (n, (state, phase)) in states.into_iter().enumerate() {
        let (name, prefix) = (format!("job-{n}"), format!("file:///of-the-peer/{n}"));
        begin(&world, &name).await;
        let recorded = job(state, &prefix).encode();
        record(&world, &name, &recorded, phase).await;
        if state != WebApiPhase::NotStarted {
            world.connector.adopt(&prefix);
        }
    }
    let mut expected = completed(&(0..4).map(|n| format!("job-{n}")).collect::<Vec<_>>());
    // Whether its job was begun is not known: it is not asked for again in this attempt.
    expected[1].1 = expected[1].1.replace("attempt 1", "attempt 2");
    assert_eq!(go_on(&world).await, expected);
    let jobs = world.connector.jobs();
    let asked: Vec<_> = jobs
        .iter()
        .map(|(prefix, job)| (prefix.contains("of-the-peer"), job.questions > 0))
        .collect();
    // Those of the peer are asked for, where the peer knew them, and two were begun here.
    let count = |expected| asked.iter().filter(|found| **found == expected).count();
    assert_eq!(count((true, true)), 2, "{jobs:?}");
    assert_eq!(count((true, false)), 1, "{jobs:?}");
    assert_eq!(count((false, true)), 2, "{jobs:?}");
    assert_eq!(world.connector.repeated(), [""; 0]);
}

/// The peer keeps its start in memory.
#[tokio::test(start_paused = true)]
async fn a_task_that_sleeps_sleeps_on() {
    let world = NOBODY.world().await;
    begin(&world, "sleep-0").await;
    record(&world, "sleep-0", &[], Phase::Running).await;
    assert_eq!(go_on(&world).await, completed(&["sleep-0".to_owned()]));
    assert_eq!(world.pods().await.len(), 0);
}
