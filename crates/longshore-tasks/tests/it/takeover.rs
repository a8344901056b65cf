//! Running attempts of the peer are gone on with: its state is read, its resource is adopted, nothing is made again.

use std::time::Duration;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use longshore_api::flyte::FINALIZER_PLUGIN;
use longshore_kit::api_resource;
use longshore_plugins::{K8sState, Launch, Phase, PluginState};
use longshore_test::Faults;
use serde_json::{Value, json};

use crate::{
    operators,
    stories::Story,
    world::{World, action, actions, base64, ending},
};

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

/// Records what the peer has recorded, and makes what it has made.
async fn leave(world: &World, name: &str, state: &PluginState) {
    let (place, phase) = (&world.place, state.k8s.phase);
    let actions = actions(place);
    let uid = actions.get(name).await.unwrap().uid().unwrap();
    let held = json!({"metadata": {"finalizers": [FINALIZER_PLUGIN]}});
    let params = PatchParams::default();
    actions
        .patch(name, &params, &Patch::Merge(held))
        .await
        .unwrap();
    let status = json!({"status": {
        "pluginState": base64(&state.encode()), "pluginStateVersion": 1,
        "pluginPhase": phase.published(), "attempts": 1,
    }});
    actions
        .patch_status(name, &params, &Patch::Merge(status))
        .await
        .unwrap();
    let kind = operators::kinds()
        .into_iter()
        .find(|kind| kind.kind == "SparkApplication");
    let objects: Api<DynamicObject> = Api::namespaced_with(
        place.client(),
        place.namespace(),
        &api_resource(kind.unwrap()),
    );
    let application: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
        "metadata": {
            "name": format!("{name}-0"), "namespace": place.namespace(),
            "labels": {"flyte.org/managed": "true", "attempt": "1"},
            "ownerReferences": [{
                "apiVersion": "flyte.org/v1", "kind": "TaskAction", "name": name, "uid": uid,
                "controller": true,
            }],
        },
        "spec": {},
    }))
    .unwrap();
    objects
        .create(&PostParams::default(), &application)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_the_peer_goes_on_in_each_phase_without_a_second_child() {
    // The peer may have ended before it recorded the resource.
    let states = [
        (Launch::NotStarted, Phase::Undefined),
        (Launch::Started, Phase::Queued),
        (Launch::Started, Phase::Initializing),
        (Launch::Started, Phase::Running),
    ];
    const NOBODY: Story = Story::of("taken over", &[]).with_operators();
    let world = NOBODY.world().await;
    for (n, (launch, phase)) in states.into_iter().enumerate() {
        let name = format!("spark-{n}");
        world.apply(operators::typed(action(&name, 0, ""), 0)).await;
        leave(&world, &name, &state(launch, phase)).await;
    }
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(60), Box::pin(world.run(&process))).await;
    let ended: Vec<Value> = world.actions().await;
    let ends: Vec<_> = ended.iter().filter_map(ending).collect();
    let completed = "Completed: TaskAction completed successfully";
    assert_eq!(ends, [completed; 4], "{ended:?}");
    assert_eq!(world.seen.count(), 4);
}
