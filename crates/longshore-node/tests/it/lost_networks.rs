//! Running pods keep their networks when the node stops, and get back what is lost of them.

use std::{
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    events::v1::Event,
};
use kube::{Api, api::ListParams};
use longshore_node::{LogOptions, PodsLifetime};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use serde_json::{Value, json};

use crate::{
    network::{asking, config, greeter, profiles, python, service},
    node_rig::{PATIENCE, Rig, is, script},
};

/// How often the node is stopped: each time it may take an actor that ended with it for one whose pod is gone.
const N_STOPS: usize = 8;

/// Asks the keeper in the place of a node, which must have ended.
fn ask_keeper(rig: &Rig, ask: &Value) -> Value {
    let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
    let made = socket::socket(AddressFamily::Unix, kind, flags, None).expect("a socket");
    let path = rig.path().join("node/network/socket");
    let address = UnixAddr::new(path.as_path()).expect("a short path");
    socket::connect(made.as_raw_fd(), &address).expect("a keeper");
    let mut keeper = UnixStream::from(made);
    let request = json!({"id": 1, "ask": ask}).to_string();
    keeper.write_all(request.as_bytes()).expect("asked");
    let mut answer = vec![0; 64 * 1024];
    let n_bytes = keeper.read(&mut answer).expect("an answer");
    let answer: Value = serde_json::from_slice(&answer[..n_bytes]).expect("JSON");
    assert_eq!(answer["error"], Value::Null);
    answer
}

/// Waits for the Event that tells of a network that was lost.
async fn until_told(rig: &Rig, pod: &str) {
    let events = Api::<Event>::default_namespaced(rig.client.clone());
    let told = async {
        loop {
            let all = events.list(&ListParams::default()).await.expect("a list");
            let is_told = all.items.iter().any(|event| {
                let about = event.regarding.as_ref().and_then(|it| it.name.as_deref());
                event.reason.as_deref() == Some("NetworkLost") && about == Some(pod)
            });
            if is_told {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("an Event about the network");
}

#[tokio::test]
async fn pods_keep_their_networks_when_the_node_stops() {
    for profile in profiles() {
        let rig = Rig::new();
        let config = config(&rig, profile, PodsLifetime::OutliveNode, 1);
        let names = ["a", "b", "c"];
        let mut sleeper = script("exec sleep 600");
        sleeper["containers"][0]["image"] = json!("pod");
        sleeper["terminationGracePeriodSeconds"] = json!(1);
        for name in names {
            rig.run(name, sleeper.clone()).await;
        }
        for n in 0..N_STOPS {
            let node = rig.start_with(config.clone()).await;
            // The node looks at events after the actors of the others have come to rest, and so ends after them.
            let ends = format!("ends-{n}");
            rig.run(&ends, script("true")).await;
            rig.until_phase(&ends, "Succeeded").await;
            for name in names {
                rig.until_phase(name, "Running").await;
            }
            node.stop().await;
            let kept = ask_keeper(&rig, &json!("pods"));
            let kept = kept["pods"].as_array().expect("pods");
            for name in names {
                let uid = json!(rig.uid(name).await);
                assert!(kept.contains(&uid), "{profile}, stop {n}: {name}: {kept:?}");
            }
        }
        let last = rig.start_with(config).await;
        for name in names {
            rig.delete(name).await;
            rig.until_gone(name).await;
        }
        last.stop().await;
    }
}

/// A keeper without any pod ends, so that the next node starts another one. The pod waits for a name that appears later.
#[tokio::test]
async fn pods_whose_networks_were_lost_are_connected_again_and_that_is_told() {
    for profile in profiles() {
        for lost in [&["late"][..], &["late", "asks"]] {
            let rig = Rig::new();
            let config = config(&rig, profile, PodsLifetime::OutliveNode, 1);
            let first = rig.start_with(config.clone()).await;
            rig.create::<Pod>(greeter("late")).await;
            let asks = python("pod", &asking(&[("late", 80)]));
            rig.run("asks", asks).await;
            rig.until_phase("asks", "Running").await;
            rig.until("late", "ready", |it| is(it, "Ready", "True"))
                .await;
            first.stop().await;
            for name in lost {
                let uid = rig.uid(name).await;
                ask_keeper(&rig, &json!({"detach": {"pod": uid}}));
            }
            let second = rig.start_with(config).await;
            for name in lost {
                until_told(&rig, name).await;
            }
            let late = json!({"selector": {"app": "late"}, "clusterIP": "None"});
            rig.create::<Service>(service("late", &late)).await;
            let status = rig.until_phase("asks", "Succeeded").await;
            assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
            let log = second.log("asks", LogOptions::default()).await;
            assert_eq!(log, "late late\n", "{profile}: {lost:?}");
            for name in ["late", "asks"] {
                rig.delete(name).await;
                rig.until_gone(name).await;
            }
            second.stop().await;
        }
    }
}
