//! What must hold of each action once all have ended.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::flyte::TaskActionSpec;
use longshore_plugins::Paths;
use longshore_proto::flyteidl2::{
    common::ActionPhase, core::CatalogCacheStatus, workflow::ActionEvent,
};
use longshore_test::flyte::outputs;
use serde_json::Value;

use super::work::{Kind, Work};
use crate::{controller::actions::ending, task_actions::PodRecord};

/// The events of each action, each once, in the order in which they first arrived; and the number of repetitions.
pub(super) fn told(events: Vec<ActionEvent>) -> (BTreeMap<String, Vec<ActionEvent>>, usize) {
    let mut seen = BTreeSet::new();
    let mut by_action = BTreeMap::<String, Vec<ActionEvent>>::new();
    let mut n_repeated = 0;
    for event in events {
        let name = event.id.as_ref().map(|id| id.name.clone()).unwrap();
        // The receiver keeps one of each.
        if seen.insert((name.clone(), event.attempt, event.phase, event.version)) {
            by_action.entry(name).or_default().push(event);
        } else {
            n_repeated += 1;
        }
    }
    (by_action, n_repeated)
}

/// Whether an action ended as it is meant to, after as many launches; `None`: it is gone.
pub(super) fn check(work: Work, action: Option<&Value>, pods: &PodRecord, events: &[ActionEvent]) {
    let Some(action) = action else {
        assert_eq!(work.kind(), Kind::Aborted, "{work:?} is gone");
        return check_events(work, &[], events);
    };
    let Some(expected) = work.kind().ending() else {
        panic!("{work:?} is still there: {action}");
    };
    let status = &action["status"];
    assert_eq!(ending(action).as_deref(), Some(expected.reason), "{action}");
    assert_eq!(status["attempts"], expected.attempts, "{action}");
    let n_failures = status["systemFailures"].as_u64().unwrap_or(0);
    assert_eq!(n_failures, u64::from(expected.n_failures), "{action}");
    match expected.error {
        Some((code, kind)) => {
            assert_eq!(status["errorState"]["code"], code, "{action}");
            assert_eq!(status["errorState"]["kind"], kind, "{action}");
        }
        None => check_outputs(work, action, expected.attempts),
    }
    // Of those that share their outputs only one has a pod.
    if work.kind() != Kind::Shared {
        let n_launches = work.kind().n_launches();
        assert_eq!(pods.n_launches(action), n_launches, "{action}");
    }
    let history: Vec<&str> = status["phaseHistory"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["phase"].as_str().unwrap())
        .collect();
    check_events(work, &history, events);
}

fn check_outputs(work: Work, action: &Value, attempts: u32) {
    let spec = TaskActionSpec::of(action).unwrap();
    let metadata = &action["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap();
    let paths = Paths::of_action(namespace, &work.name(), &spec, attempts);
    let own = format!("{}-{}", work.name(), attempts - 1);
    let made_by = outputs::made_by(&paths.output_prefix).unwrap();
    let cached = cache_status(action);
    if cached == CatalogCacheStatus::CacheHit {
        assert_eq!(work.kind(), Kind::Shared, "{action}");
        assert_ne!(made_by, own, "{action}");
    } else {
        assert_eq!(cached, CatalogCacheStatus::CachePopulated, "{action}");
        assert_eq!(made_by, own, "{action}");
    }
}

pub(super) fn cache_status(action: &Value) -> CatalogCacheStatus {
    let number = action["status"]["cacheStatus"].as_i64().unwrap_or(0);
    let number = i32::try_from(number).unwrap();
    CatalogCacheStatus::try_from(number).unwrap()
}

/// How far an attempt is with a phase.
fn step(phase: ActionPhase) -> u32 {
    match phase {
        ActionPhase::Queued | ActionPhase::WaitingForResources => 0,
        ActionPhase::Initializing => 1,
        ActionPhase::Running => 2,
        ActionPhase::Succeeded | ActionPhase::Failed | ActionPhase::Aborted => 3,
        ActionPhase::Unspecified
        | ActionPhase::TimedOut
        | ActionPhase::Paused
        | ActionPhase::Recovered => panic!("{phase:?} is told of no pod"),
    }
}

/// Whether an entry of the history stands for this phase.
fn is_history_of(phase: ActionPhase, entry: &str) -> bool {
    match entry {
        "Queued" => step(phase) == 0,
        "Initializing" => phase == ActionPhase::Initializing,
        "Executing" => phase == ActionPhase::Running,
        "Completed" => phase == ActionPhase::Succeeded,
        "RetryableFailure" | "PermanentFailure" => phase == ActionPhase::Failed,
        other => panic!("unknown entry of a history: {other}"),
    }
}

/// Phases of each launch come in order, one of them is the end, and every entry of the history was reported.
fn check_events(work: Work, history: &[&str], events: &[ActionEvent]) {
    let told: Vec<(u32, ActionPhase)> = events
        .iter()
        .map(|event| (event.attempt, event.phase()))
        .collect();
    // Each launch of an attempt has versions of its own, later ones higher ones.
    let launches = events.iter().map(|event| event.version >> 16);
    let steps: Vec<(u32, u32, u32)> = told
        .iter()
        .zip(launches)
        .map(|((attempt, phase), launch)| (*attempt, launch, step(*phase)))
        .collect();
    assert!(steps.is_sorted(), "{work:?}: {told:?}");
    let end = match work.kind().ending() {
        Some(ending) if ending.error.is_none() => ActionPhase::Succeeded,
        Some(_) => ActionPhase::Failed,
        None => ActionPhase::Aborted,
    };
    assert_eq!(told.last().map(|(_, phase)| *phase), Some(end), "{told:?}");
    let n_ends = steps.iter().filter(|(.., step)| *step == 3).count();
    assert_eq!(n_ends, 1, "{work:?}: {told:?}");
    let mut rest = told.iter();
    for entry in history {
        let is_told = rest.any(|(_, phase)| is_history_of(*phase, entry));
        assert!(
            is_told,
            "{work:?}: {entry} of {history:?} is not in {told:?}"
        );
    }
}
