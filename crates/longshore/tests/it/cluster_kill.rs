//! SIGKILL at random moments on a `longshore standalone` under load: what it has acknowledged, and what its pods have,
//! is as before. `cargo xtask campaign cluster-kill` runs this with more kills, and with kubectl.

use std::{thread, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    controller::kills::{KILLS, SEED, dice::Dice, number},
    pod_network,
    service_process::{Service, until},
};

mod jobs;
mod known;
mod load;
mod pods;
mod stream;

use known::Known;
use load::Load;
use pods::Pods;
use stream::Stream;

/// How long a cluster is under load before it is killed, in milliseconds.
const LIFE_MS: (u64, u64) = (20, 600);

#[test]
fn what_pods_and_clients_have_survives_kills_of_the_cluster() {
    let n_kills = number(KILLS, 3);
    let mut dice = Dice::new(number(SEED, 1));
    let (dags, counts) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut service = Service::start(dags.path(), &["--pod-network"]);
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(pod_network::client(&service));
    if !runtime.block_on(pod_network::can_have_network(&client)) {
        return;
    }
    let pods = Pods::start(&runtime, &client);
    let mut known = Known::default();
    for pod in pods.iter() {
        known.tokens.push(pod.token());
    }
    runtime.block_on(load::prepare(&client));
    let mut n_streams = 0;
    for life in 1..=n_kills {
        let client = runtime.block_on(pod_network::client(&service));
        let stream = Stream::open(&service, pods.first(), life);
        let load = {
            let _entered = runtime.enter();
            Load::start(&client, pods.first(), life, counts.path(), known)
        };
        thread::sleep(Duration::from_millis(dice.between(LIFE_MS.0, LIFE_MS.1)));
        service.kill();
        if let Some(stream) = stream {
            stream.ends();
            n_streams += 1;
        }
        known = runtime.block_on(load.end());
        service.restart();

        let client = runtime.block_on(pod_network::client(&service));
        runtime.block_on(known.check(&client));
        pods.check(&runtime, &client, known.newest_service());
        pods.ask(&runtime, &client, life);
        runtime.block_on(jobs::count(&client, counts.path(), &mut known));
    }
    let client = runtime.block_on(pod_network::client(&service));
    until("all Jobs are complete", || {
        runtime.block_on(jobs::count(&client, counts.path(), &mut known)) == 0
    });
    let result = json!({
        "kills": n_kills,
        "acknowledged_writes": known.n_acknowledged,
        "services": known.services.len(),
        "tokens": known.tokens.len(),
        "jobs_counted_once": known.n_jobs,
        "exec_streams_ended": n_streams,
        "pods": pods.iter().count(),
    });
    println!("result {result}");
    assert!(known.n_acknowledged > 2 * n_kills, "{result}");
}
