//! The controller dies between any two requests, and no end of a pod is counted twice or not at all.

use serde_json::{Value, json};

use super::world::{World, end, job, requests};

/// Rounds after which a Job has long ended.
const ROUNDS: usize = 40;

/// What the nodes have ended, which is what the Job has to count.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ended {
    n_succeeded: i64,
    n_failed: i64,
}

/// How a pod ends, by its number and its index.
type Fate<'a> = &'a dyn Fn(usize, &Value) -> &'static str;

/// Runs a Job with pods of some fate. The controller dies before the request of number `dies_at`. Returns the end, and
/// how many requests there were.
fn run(job: Value, fate: Fate<'_>, dies_at: usize) -> (World, Ended, usize) {
    let mut world = World::new(job, Vec::new());
    let (mut ended, mut n_requests) = (Ended::default(), 0);
    for _ in 0..ROUNDS {
        for request in requests(&world.plan()) {
            n_requests += 1;
            if n_requests == dies_at {
                break;
            }
            world.send(&request);
        }
        for pod in &mut world.pods {
            if pod["status"]["phase"] != "Pending" {
                continue;
            }
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
            let phase = fate(name[1..].parse().unwrap(), index);
            end(pod, phase);
            let n = if phase == "Failed" {
                &mut ended.n_failed
            } else {
                &mut ended.n_succeeded
            };
            *n += 1;
        }
    }
    (world, ended, n_requests)
}

/// Runs a Job without a crash, and with one at each request.
fn check(job: &Value, fate: Fate<'_>, last: &str) {
    let (_, _, n_requests) = run(job.clone(), fate, usize::MAX);
    assert!(n_requests > 5, "{n_requests}");
    for dies_at in 1..=n_requests {
        let (world, ended, _) = run(job.clone(), fate, dies_at);
        let counted = Ended {
            n_succeeded: world.count("succeeded"),
            n_failed: world.count("failed"),
        };
        assert_eq!(
            counted, ended,
            "crash at {dies_at}: {:#}",
            world.job["status"]
        );
        assert!(
            world.conditions().contains(&last),
            "crash at {dies_at}: {:#}",
            world.job["status"]
        );
        assert_eq!(
            world.job["status"]["uncountedTerminatedPods"],
            json!({}),
            "crash at {dies_at}"
        );
        let held = |it: &Value| it["metadata"]["finalizers"] != json!([]);
        assert!(
            !world.pods.iter().any(held),
            "crash at {dies_at}: {:#?}",
            world.pods
        );
    }
}

#[test]
fn every_pod_is_counted_once_in_spite_of_a_crash_at_any_request() {
    let plain = job(json!({"completions": 4, "parallelism": 2}));
    let some = |n: usize, _: &Value| if n % 3 == 1 { "Failed" } else { "Succeeded" };
    check(&plain, &some, "Complete");
    let failing = job(json!({"completions": 4, "parallelism": 2, "backoffLimit": 2}));
    check(&failing, &|_, _| "Failed", "Failed");
}

#[test]
fn every_index_is_done_once_in_spite_of_a_crash_at_any_request() {
    let indexed = job(json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"}));
    let second = |n: usize, _: &Value| if n == 1 { "Failed" } else { "Succeeded" };
    check(&indexed, &second, "Complete");
    let each = job(json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": 100, "backoffLimitPerIndex": 1,
    }));
    let of_one = |_: usize, index: &Value| if index == "1" { "Failed" } else { "Succeeded" };
    check(&each, &of_one, "Failed");
}
