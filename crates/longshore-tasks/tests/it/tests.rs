//! How stories end when nothing goes wrong on the way, and what they cost.

use std::{collections::BTreeSet, time::Duration};

use longshore_kit::Rule;
use longshore_tasks::RULES;
use longshore_test::{
    FaultPlan, Faults, WatchFault,
    faults::Point,
    laws::{Run, replay},
};
use serde_json::Value;

use crate::{
    laws::STORIES,
    stories::{self, Story},
    world::{World, ending},
};

fn digest(story: &Story) -> String {
    let run = replay(story, FaultPlan::none());
    assert_eq!(run.broken, [], "{}", run.log);
    run.digest
}

#[test]
fn stories_end_as_they_should() {
    for story in STORIES {
        insta::assert_snapshot!(story.name.replace(' ', "_"), digest(story));
    }
}

fn is_request(point: &Point) -> bool {
    point.what != "report" && !point.what.starts_with("ask ")
}

/// The requests of a run, but for those that any number of actions share.
fn requests(run: &Run) -> Vec<&Point> {
    let points = run.points.iter();
    points
        .filter(|point| {
            let is_shared = point.what.starts_with("watch ") || point.what.starts_with("list ");
            !is_shared && is_request(point)
        })
        .collect()
}

#[test]
fn a_successful_action_costs_six_requests_whatever_the_watches_do() {
    let late = |resource: Option<&str>| WatchFault::Late {
        resource: resource.map(str::to_owned),
        by: Duration::from_secs(2),
    };
    let troubles = [
        Vec::new(),
        vec![late(Some("pods"))],
        vec![late(Some("taskactions"))],
        vec![late(None)],
        vec![WatchFault::CutAfter(1)],
        vec![WatchFault::CutAfter(1), WatchFault::Repeat],
        vec![WatchFault::NoBookmarks],
    ];
    let n_actions = stories::MANY.actions.len();
    for watches in troubles {
        let plan = FaultPlan {
            watches,
            ..FaultPlan::none()
        };
        let run = replay(&stories::MANY, plan.clone());
        assert_eq!(run.broken, [], "{}", run.log);
        let requests = requests(&run);
        assert!(
            requests.len() <= 6 * n_actions,
            "{} requests under {plan:?}: {requests:?}\n{}",
            requests.len(),
            run.log
        );
        let creates = requests.iter().filter(|point| point.what == "create pods");
        assert_eq!(creates.count(), n_actions);
        assert_eq!(run.digest.matches("Completed").count(), n_actions);
    }
}

#[test]
fn the_rules_are_what_it_does_and_no_more() {
    let mut used = BTreeSet::new();
    for story in STORIES {
        let run = replay(story, FaultPlan::none());
        let done = run.points.iter().filter(|point| is_request(point));
        used.extend(done.map(|point| point.what.clone()));
    }
    // Of the kinds of operators not each verb is needed in each story.
    let is_ours = |rule: &Rule| matches!(rule.group, "" | "flyte.org" | "events.k8s.io");
    let words = |rule: &Rule| {
        let pairs = rule.verbs.iter().flat_map(|verb| {
            let resources = rule.resources.iter();
            resources.map(move |resource| format!("{verb} {resource}"))
        });
        pairs.collect::<Vec<_>>()
    };
    let allowed: BTreeSet<String> = RULES.iter().flat_map(words).collect();
    let needed = RULES.iter().filter(|rule| is_ours(rule));
    let needed: BTreeSet<String> = needed.flat_map(words).collect();
    let more: Vec<_> = used.difference(&allowed).collect();
    assert!(more.is_empty(), "not in the rules: {more:?}");
    // Only where somebody else wrote in between, or where an Event came twice.
    let rarely = ["get taskactions", "patch events"];
    let unused = needed
        .difference(&used)
        .filter(|it| !rarely.contains(&it.as_str()));
    let unused: Vec<_> = unused.collect();
    assert!(unused.is_empty(), "in the rules for nothing: {unused:?}");
}

/// Two Events at once are one write more, and so is one that comes later.
#[test]
fn events_are_told_in_order_and_written_together() {
    let run = replay(&stories::EVENTS, FaultPlan::none());
    assert_eq!(run.broken, [], "{}", run.log);
    let statuses = run.points.iter();
    let statuses = statuses.filter(|point| point.what == "patch taskactions/status");
    assert_eq!(statuses.count(), 3 + 2, "{}", run.log);
}

/// Upstream's own sample is older than its schema: it names no task type and has no template.
#[tokio::test(start_paused = true)]
async fn upstreams_stale_sample_says_what_it_lacks() {
    let sample = include_str!("../../testdata/flyte.org_v1_taskaction.yaml");
    let mut sample: Value = serde_saphyr::from_str(sample).unwrap();
    sample["metadata"]["namespace"] = "default".into();
    let world = World::new(&[]).await;
    world.apply(sample).await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(30), world.run(&process)).await;
    let action = &world.actions().await[0];
    assert_eq!(
        ending(action).unwrap(),
        "InvalidSpec: required spec fields are empty: [taskType taskTemplate]"
    );
    assert_eq!(world.pods().await.len(), 0);
}

/// The job of an action that is deleted does not go on.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_connector_is_begun_once_and_ended_with_its_action() {
    let world = stories::OPERATORS_ABORTED.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(120), world.run(&process)).await;
    let jobs = world.connector.jobs();
    let jobs: Vec<_> = jobs.values().map(|job| (job.times, job.is_ended)).collect();
    assert_eq!(jobs, [(1, true)]);
}
