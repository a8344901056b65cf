//! The role `tasks`: another replica takes over, and what it says where the API server knows no TaskActions.

use std::{collections::BTreeMap, time::Duration};

use kube::api::DeleteParams;
use serde_json::Value;

use super::replica::{Plan, page, until};
use crate::{
    cluster::TestCluster,
    task_actions::{PodRecord, TaskActions, action},
};

/// Where the reason of the true terminal condition is.
pub(super) fn ending(action: &Value) -> Option<String> {
    let conditions = action["status"]["conditions"].as_array()?;
    let is_terminal = |it: &&Value| {
        it["status"] == "True" && matches!(it["type"].as_str(), Some("Succeeded" | "Failed"))
    };
    let terminal = conditions.iter().find(is_terminal)?;
    terminal["reason"].as_str().map(str::to_owned)
}

/// An action that changes while no controller leads.
struct Story {
    name: &'static str,
    retries: u32,
    script: &'static str,
    /// The reason of its end, and how many attempts it took; `None`: it is aborted.
    end: Option<(&'static str, u64)>,
}

const STORIES: [Story; 6] = [
    Story {
        name: "runs-on",
        retries: 0,
        script: "run 20s exit 0",
        end: Some(("Completed", 1)),
    },
    Story {
        name: "succeeds",
        retries: 0,
        script: "run 3s exit 0",
        end: Some(("Completed", 1)),
    },
    Story {
        name: "fails-for-good",
        retries: 0,
        script: "run 3s oom",
        end: Some(("PermanentFailure", 1)),
    },
    Story {
        name: "fails-and-retries",
        retries: 1,
        script: "run 3s oom | run 1s exit 0",
        end: Some(("Completed", 2)),
    },
    Story {
        name: "is-initializing-and-aborted",
        retries: 0,
        script: "waiting ContainerCreating",
        end: None,
    },
    Story {
        name: "is-running-and-aborted",
        retries: 0,
        script: "run 60s exit 0",
        end: None,
    },
];
const ENDED_BEFORE: &str = "ended-before";
const CREATED_MEANWHILE: &str = "created-while-nobody-leads";

/// Created right before the kill: without or with a finalizer, a pod, a status.
fn burst() -> impl Iterator<Item = String> {
    (0..8).map(|n| format!("burst-{n}"))
}

/// How each action ends, and after how many attempts.
type Ends = BTreeMap<String, (String, u64)>;

fn expected() -> Ends {
    let short = burst().chain([ENDED_BEFORE, CREATED_MEANWHILE].map(str::to_owned));
    let short = short.map(|name| (name, ("Completed".to_owned(), 1)));
    let stories = STORIES.iter().filter_map(|story| {
        let (reason, attempts) = story.end?;
        Some((story.name.to_owned(), (reason.to_owned(), attempts)))
    });
    short.chain(stories).collect()
}

fn found(actions: &[Value]) -> Ends {
    let end = |action: &Value| {
        let status = &action["status"];
        let n_failures = status["systemFailures"].as_u64().unwrap_or(0);
        assert_eq!(n_failures, 0, "{action}");
        let name = action["metadata"]["name"].as_str().unwrap().to_owned();
        let attempts = status["attempts"].as_u64().unwrap_or(0);
        (name, (ending(action).unwrap(), attempts))
    };
    actions.iter().map(end).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_in_every_phase_go_on_when_their_leader_is_killed_and_no_attempt_runs_twice() {
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let record = PodRecord::start(&cluster);
    let mut plan = Plan::of(&cluster, "tasks");
    if cluster.is_real() {
        plan.kubeconfig = cluster.account("tasks").await;
    }
    let mut first = plan.start("first");
    until("the first one leads", || first.leads()).await;
    let second = plan.start("second");
    until("the second one waits", || second.waits()).await;
    let short = |name: &str| action(name, 0, "run 1s exit 0");
    actions.create(&short(ENDED_BEFORE)).await;
    actions.until_ended(ENDED_BEFORE).await;
    for story in &STORIES {
        let action = action(story.name, story.retries, story.script);
        actions.create(&action).await;
    }
    until("every action has its pod", || {
        record.n_pods() == STORIES.len() + 1
    })
    .await;
    for name in burst() {
        actions.create(&short(&name)).await;
    }
    first.kill();
    actions.create(&short(CREATED_MEANWHILE)).await;
    for story in STORIES.iter().filter(|story| story.end.is_none()) {
        let (api, params) = (actions.api(), DeleteParams::default());
        api.delete(story.name, &params).await.unwrap();
    }
    assert!(!second.leads(), "the lease of the dead one is waited for");
    until("the second one leads", || second.leads()).await;

    let expected = expected();
    actions.until_count(expected.len()).await;
    assert_eq!(found(&actions.list().await), expected);
    record.assert_one_pod_per_launch();
    let n_attempts = expected.len() + 3;
    assert_eq!(
        record.n_launches_of_all(),
        n_attempts,
        "one retry, and two that were aborted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_resource_the_role_says_so_and_begins_when_it_appears() {
    // Never a real one: other tests install the resource there.
    let cluster = TestCluster::embedded().await;
    let plan = Plan::of(&cluster, "tasks");
    let mut replica = plan.spawn("waiting");
    let ready = replica.ready();
    until("it says what is missing, and what to apply", || {
        let log = replica.log();
        log.contains("waits for the resource taskactions.flyte.org")
            && log.contains("longshore controller crd | kubectl apply -f -")
    })
    .await;
    assert!(!replica.leads());
    let metrics = ready["metrics"].as_str().unwrap();
    let readyz = page(metrics, "/readyz?verbose").await;
    assert!(readyz.contains("200 OK"), "{readyz}");
    let actions = TaskActions::install(&cluster).await;
    until("it begins by itself", || replica.leads()).await;
    actions.create(&action("a", 0, "run 10ms exit 0")).await;
    tokio::time::timeout(Duration::from_secs(30), actions.until_ended("a"))
        .await
        .unwrap();
    assert_eq!(replica.stop(), Some(0));
}
