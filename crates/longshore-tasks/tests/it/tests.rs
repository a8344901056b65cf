//! How stories end when nothing goes wrong on the way, and what they cost.

use std::{collections::BTreeSet, time::Duration};

use longshore_kit::Rule;
use longshore_tasks::{RULES, events::ActionPhase};
use longshore_test::{
    FaultPlan, Faults, WatchFault,
    faults::Point,
    laws::{Run, replay},
};
use serde_json::{Value, json};

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

/// Whether the API server is asked, not another service.
fn is_request(point: &Point) -> bool {
    let is_of_others = point.what.ends_with(" cache") || point.what.starts_with("ask ");
    point.what != "report" && !is_of_others
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

fn n_cache(run: &Run, what: &str) -> usize {
    let points = run.points.iter();
    points.filter(|point| point.what == what).count()
}

/// A hit makes no pod and writes its end; no other request is made because of the cache.
#[test]
fn a_cache_costs_no_requests_and_a_hit_saves_some() {
    let run = replay(&stories::CACHE_HIT, FaultPlan::none());
    assert_eq!(run.broken, [], "{}", run.log);
    let requests = requests(&run);
    assert!(requests.len() <= 6 + 3, "{requests:?}\n{}", run.log);
    let asked =
        ["get", "put", "reserve", "release"].map(|verb| n_cache(&run, &format!("{verb} cache")));
    assert_eq!(asked, [2, 1, 0, 0], "{}", run.log);
}

/// A reservation is extended each ten seconds while a task waits, runs or fails, and given up once, with its end.
#[test]
fn a_reservation_is_held_from_the_launch_to_the_end() {
    for (story, n_reserved, n_released) in [
        (&stories::CACHE_ABORTED, 1..=3, 1),
        // The second one hits what it waited for, and cannot know that nobody has reserved it for it.
        (&stories::CACHE_SHARED, 5..=12, 2),
        (&stories::CACHE_NOT_FILLED, 5..=10, 2),
    ] {
        let run = replay(story, FaultPlan::none());
        assert_eq!(n_cache(&run, "release cache"), n_released, "{}", run.log);
        let n = n_cache(&run, "reserve cache");
        assert!(n_reserved.contains(&n), "{n}: {}", run.log);
    }
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

/// A receiver keeps one event of each attempt, phase and version: a second launch has others than the first one.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_drops_repeats_keeps_the_events_of_each_launch() {
    let world = stories::POD_DELETED.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(200), world.run(&process)).await;
    let kept = world.told.effective("gone");
    let count = |phase: ActionPhase| kept.iter().filter(|it| it.1 == phase).count();
    let counted = [ActionPhase::Queued, ActionPhase::Running].map(count);
    assert_eq!(counted, [2, 2], "{kept:?}");
}

/// A program that kills itself in every launch: 4 launches, 1 s, 2 s and 4 s apart, and no attempt more.
#[tokio::test(start_paused = true)]
async fn launches_of_a_program_that_kills_itself_are_counted_and_back_off_and_end() {
    let world = stories::KILLED.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(600), world.run(&process)).await;
    let history = world.node.history();
    let of = |name: &str| {
        let runs = history.runs().iter();
        let runs = runs.filter(|run| run.pod.ends_with(&format!("/{name}")));
        runs.collect::<Vec<_>>()
    };
    let runs = of("killed-0");
    let waits = runs.windows(2).map(|pair| {
        let wait = pair[1].started_at.duration_since(pair[0].ended_at.unwrap());
        wait.as_secs()
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1, 2, 4]);
    let n_others =
        ["killed-1", "raw-killed-0", "raw-killed-1", "raw-killed-2"].map(|it| of(it).len());
    assert_eq!(n_others, [0, 1, 1, 0]);
}

/// Its operator says that it runs, and nobody touches the pod any more.
#[tokio::test(start_paused = true)]
async fn a_head_pod_that_does_not_start_ends_its_task_after_its_grace_period() {
    const LATE: [(&str, u32, &str); 5] = [
        ("spark-head-late", 0, ""),
        ("ray-head-late", 0, ""),
        ("dask-head-late", 0, ""),
        ("torch-head-late", 0, ""),
        ("set-head-late", 0, ""),
    ];
    let world = Story::of("late heads", &LATE)
        .with_operators()
        .world()
        .await;
    let process = Faults::none().start();
    for (seconds, n_ended) in [(150, 0), (150, LATE.len())] {
        let time = Duration::from_secs(seconds);
        let _ = tokio::time::timeout(time, Box::pin(world.run(&process))).await;
        let ends: Vec<_> = world.actions().await.iter().filter_map(ending).collect();
        assert_eq!(ends.len(), n_ended, "{ends:?}");
        let is_late = |end: &String| end.contains("Grace period [3m0s] exceeded");
        assert!(ends.iter().all(is_late), "{ends:?}");
    }
}

/// However a head pod is pending, it is so for no longer than pods may be, and then it is the system's failure.
#[tokio::test(start_paused = true)]
async fn a_head_pod_that_is_pending_for_too_long_costs_a_launch_and_no_attempt() {
    const LATE: [(&str, u32, &str); 4] = [
        ("spark-head-late", 0, ""),
        ("ray-head-late", 0, ""),
        ("torch-head-late", 0, ""),
        ("set-head-late", 0, ""),
    ];
    let story = Story::of("pending heads", &LATE).with_operators();
    let story = story.configured(|config| {
        config.plugins.k8s.grace.pod_pending_timeout = Duration::from_secs(60);
    });
    let world = story.world().await;
    let process = Faults::none().start();
    // The operators make the pods after 10 s, and of the next launch none is pending for too long at the end.
    for (seconds, n_failures) in [(65, 0), (45, 1)] {
        let time = Duration::from_secs(seconds);
        let _ = tokio::time::timeout(time, Box::pin(world.run(&process))).await;
        for action in world.actions().await {
            let (name, status) = (&action["metadata"]["name"], &action["status"]);
            let told = status["systemFailures"].as_u64().unwrap_or(0);
            assert_eq!(
                (told, &status["attempts"], ending(&action)),
                (n_failures, &json!(1), None),
                "{name}: {status:#}"
            );
        }
    }
}

/// The job of an attempt that ran for too long does not go on, neither beside the next one nor after the last one.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_connector_is_ended_when_its_timeout_is_over() {
    let story = Story::of("limited job", &[("job-long-limited", 1, "")]).with_operators();
    let world = story.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(200), world.run(&process)).await;
    let ends: Vec<_> = world.actions().await.iter().filter_map(ending).collect();
    let too_long = "PermanentFailure: the attempt ran for longer than its timeout of 5s";
    assert_eq!(ends, [too_long]);
    let jobs = world.connector.jobs();
    let jobs: Vec<_> = jobs.values().map(|job| (job.times, job.is_ended)).collect();
    assert_eq!(jobs, [(1, true); 2]);
}

/// Whoever asks for a cached task again, or waits for one that runs, needs no job.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_connector_is_begun_once_for_all_that_share_its_cache_key() {
    let world = stories::REMOTE_CACHED.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(300), world.run(&process)).await;
    let ends: Vec<_> = world.actions().await.iter().filter_map(ending).collect();
    assert_eq!(ends, ["Completed: TaskAction completed successfully"; 2]);
    assert_eq!(world.connector.jobs().len(), 1);
    assert_eq!(world.cache.owners(), [""; 0]);
}

/// A job that waits for a slot gets one when another job ends, and not before.
#[tokio::test(start_paused = true)]
async fn no_more_jobs_go_on_than_their_quota_has_room_for() {
    let world = stories::REMOTE_WAITING.world().await;
    let process = Faults::none().start();
    let _ = tokio::time::timeout(Duration::from_secs(600), world.run(&process)).await;
    let ends: Vec<_> = world.actions().await.iter().filter_map(ending).collect();
    assert_eq!(ends, ["Completed: TaskAction completed successfully"; 2]);
    let jobs = world.connector.jobs();
    let beside: Vec<_> = jobs.values().map(|job| job.n_beside).collect();
    assert_eq!(beside, [0, 0]);
    assert_eq!(world.connector.repeated(), [""; 0]);
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
