//! Many TaskActions at the same time on one controller, with a cache service, an events service and outputs; the programs
//! of some are killed in each launch. They run undisturbed, with a pod watch that is late or cut, and with a controller that
//! is killed again and again. `cargo xtask campaign actions-thousand` runs this with other numbers.

mod checks;
mod run;
mod work;

use std::time::Duration;

use longshore_test::WatchFault;
use serde_json::json;

use super::{
    kills::{ACTIONS, KILLS, SEED, number},
    replica::Plan,
};

/// What is in the way.
#[derive(Clone, Debug)]
struct Variant {
    name: &'static str,
    watches: Vec<WatchFault>,
    n_kills: u64,
    /// Whether there is a proxy between the controller and the API server, which counts the
    /// requests that a killed controller can no longer count.
    has_proxy: bool,
}

/// The watches of pods with this fault.
fn disturbed(name: &'static str, fault: WatchFault) -> Variant {
    Variant {
        name,
        watches: vec![fault],
        n_kills: 0,
        has_proxy: true,
    }
}

fn variants() -> [Variant; 4] {
    let pods = || Some("pods".to_owned());
    [
        Variant {
            name: "undisturbed",
            watches: Vec::new(),
            n_kills: 0,
            has_proxy: false,
        },
        disturbed(
            "pod watch 2 s late",
            WatchFault::Late {
                resource: pods(),
                by: Duration::from_secs(2),
            },
        ),
        disturbed(
            "pod watch cut every second",
            WatchFault::CutEvery {
                resource: pods(),
                time: Duration::from_secs(1),
            },
        ),
        Variant {
            name: "killed",
            watches: Vec::new(),
            n_kills: number(KILLS, 3),
            has_proxy: true,
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn many_actions_end_right_with_one_pod_per_launch_whatever_is_in_the_way() {
    let n_actions = u32::try_from(number(ACTIONS, u64::from(work::PERIOD))).unwrap();
    let mut results = Vec::new();
    for variant in variants() {
        let result = run::play(&variant, n_actions, number(SEED, 1)).await;
        println!("{}: {result}", variant.name);
        results.push(result);
    }
    let result = json!({
        "actions": n_actions,
        "seed": number(SEED, 1),
        "variants": results,
        "each_launch_had": "exactly one pod",
        "programs_that_are_killed": "launched as often as is counted, later each time, and no more",
        "each_change_was": "told at least once, in order",
        "left_behind": "no reservation, no pod",
    });
    println!("result {result}");
}
