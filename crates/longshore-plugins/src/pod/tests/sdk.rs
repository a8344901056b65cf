//! The pod of a real action of the SDK beside the pod that upstream built for it.

use serde_json::{Value, json};

use super::super::PodPlugin;
use crate::{Config, Owner, Plugin, fixtures, with_metadata};

/// What upstream's pod has in addition, because it went through an API server and a node.
const ADDED_LATER: [(&str, &str); 15] = [
    ("/metadata/creationTimestamp", "the API server"),
    ("/metadata/generation", "the API server"),
    ("/metadata/resourceVersion", "the API server"),
    ("/metadata/uid", "the API server"),
    (
        "/spec/containers/0/imagePullPolicy",
        "a default, by the image's tag",
    ),
    ("/spec/containers/0/terminationMessagePath", "a default"),
    ("/spec/dnsPolicy", "a default"),
    ("/spec/schedulerName", "a default"),
    ("/spec/securityContext", "a default"),
    ("/spec/terminationGracePeriodSeconds", "a default"),
    (
        "/spec/preemptionPolicy",
        "admission, from the priority class",
    ),
    ("/spec/priority", "admission, from the priority class"),
    (
        "/spec/tolerations",
        "admission, of nodes that are not ready",
    ),
    ("/status", "the scheduler and the node"),
    // `restartPolicy` and `affinity` are upstream's own, though they are defaults too.
    ("/apiVersion", "compared by itself"),
];

fn upstreams_pod() -> Value {
    serde_saphyr::from_str(include_str!("../../../testdata/sdk-root-pod.yaml")).unwrap()
}

fn our_pod() -> Value {
    let config = Config::default();
    let context = fixtures::sdk_context(&config);
    let action = fixtures::sdk_action();
    let plugin = PodPlugin::new(config.clone().into());
    let pod = plugin.build(&context).unwrap();
    let owner = Owner {
        name: action["metadata"]["name"].as_str().unwrap(),
        uid: action["metadata"]["uid"].as_str().unwrap(),
    };
    let name = plugin.resource_name(&context);
    with_metadata(
        pod,
        &name,
        &context,
        owner,
        plugin.properties(),
        &config.k8s,
    )
}

fn remove(object: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, field) = pointer.rsplit_once('/')?;
    object.pointer_mut(parent)?.as_object_mut()?.remove(field)
}

/// Splits the variables at the first of the task's own, whose order upstream leaves to chance.
fn env(pod: &mut Value) -> (Vec<Value>, Vec<Value>) {
    let env = remove(pod, "/spec/containers/0/env").unwrap();
    let mut env = env.as_array().unwrap().clone();
    let version = json!("FLYTE_INTERNAL_VERSION");
    let last = env.iter().position(|v| v["name"] == version).unwrap();
    let mut own = env.split_off(last + 1);
    own.sort_by_key(|variable| variable["name"].as_str().unwrap().to_owned());
    (env, own)
}

#[test]
fn the_pod_of_a_real_action_is_upstreams() {
    let mut ours = our_pod();
    let mut upstreams = upstreams_pod();
    assert_eq!(ours["apiVersion"], upstreams["apiVersion"]);
    for (pointer, by) in ADDED_LATER {
        let removed = remove(&mut upstreams, pointer);
        assert!(removed.is_some(), "{pointer} is said to come from {by}");
        let has = remove(&mut ours, pointer).is_some();
        assert_eq!(has, pointer == "/apiVersion", "we have {pointer} already");
    }
    assert_eq!(env(&mut ours), env(&mut upstreams));
    assert_eq!(ours, upstreams);
}

#[test]
fn the_tasks_own_variables_are_sorted() {
    let pod = our_pod();
    let names: Vec<&str> = pod["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    let own = &names[names.len() - 8..];
    assert!(own.is_sorted(), "{own:?}");
}
