//! Which pods a Job that goes on makes and takes away. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{
    backoff, build,
    model::{Desired, Mode},
    pod,
    tally::Tally,
};
use crate::controllers::replica_set::in_order_of_deletion;

/// The most pods that one round makes or takes away.
const BURST: usize = 500;

/// What to do with the pods.
#[derive(Default)]
pub(super) struct Work<'a> {
    /// Pods that are too many; their end is not counted.
    pub(super) retire: Vec<&'a Pod>,
    pub(super) create: Vec<Value>,
    /// How long until failed pods may be replaced.
    pub(super) wait: Option<Duration>,
}

pub(super) fn manage<'a>(desired: &Desired, tally: &Tally<'a>, now: Timestamp) -> Work<'a> {
    let n_active = tally.active.len();
    let n_wanted = if desired.is_suspended() {
        0
    } else {
        wanted(desired, tally)
    };
    let mut retire = surplus(desired, tally, n_active.saturating_sub(n_wanted), now);
    if !desired.is_suspended() {
        retire.truncate(BURST);
    }
    if desired.is_suspended() || !retire.is_empty() {
        return Work {
            retire,
            ..Work::default()
        };
    }
    let n_going = if desired.awaits_ends() {
        tally.n_terminating
    } else {
        0
    };
    let n_missing = n_wanted.saturating_sub(n_active + n_going).min(BURST);
    if n_missing == 0 {
        return Work::default();
    }
    fill(desired, tally, n_missing, now)
}

/// How many pods there should be.
fn wanted(desired: &Desired, tally: &Tally<'_>) -> usize {
    let completions = match desired.mode {
        Mode::Plain { completions } => completions,
        Mode::Indexed { completions, .. } => Some(completions),
    };
    match completions {
        Some(n) => n
            .saturating_sub(tally.n_succeeded)
            .min(desired.parallelism()),
        // After the first success of a work queue, the others finish.
        None if tally.n_succeeded > 0 => tally.active.len(),
        None => desired.parallelism(),
    }
}

fn fill<'a>(desired: &Desired, tally: &Tally<'a>, n: usize, now: Timestamp) -> Work<'a> {
    let waiting = |wait: Duration| Work {
        wait: Some(wait),
        ..Work::default()
    };
    let is_each_for_itself = matches!(desired.mode, Mode::Indexed { limit: Some(_), .. });
    let wait = backoff::of_job(desired, &tally.pods, now);
    if !is_each_for_itself && !wait.is_zero() {
        return waiting(wait);
    }
    let Mode::Indexed { completions, .. } = desired.mode else {
        let create = (0..n).map(|_| build::pod(desired, None, None)).collect();
        return Work {
            create,
            ..Work::default()
        };
    };
    let mut taken = tally.succeeded.with(&tally.active_indexes());
    if desired.awaits_ends() {
        let going = tally.pods.iter().filter(|it| pod::is_terminating(it));
        taken = taken.with(&going.filter_map(|it| pod::index(it)).collect());
    }
    if let Some(failed) = &tally.failed {
        taken = taken.with(failed);
    }
    let mut waits: Vec<Duration> = Vec::new();
    let mut create = Vec::new();
    for index in taken.missing(n, completions) {
        let failed = tally.awaiting.get(&index).copied();
        let wait = backoff::of_index(failed, now);
        if wait.is_zero() {
            create.push(build::pod(desired, Some(index), failed));
        } else {
            waits.push(wait);
        }
    }
    Work {
        create,
        wait: waits.into_iter().min(),
        retire: Vec::new(),
    }
}

/// The pods that go, at least `n`: of an indexed Job also those without an index, and all but one of each index.
fn surplus<'a>(desired: &Desired, tally: &Tally<'a>, n: usize, now: Timestamp) -> Vec<&'a Pod> {
    let (mut surplus, mut rest) = (Vec::new(), tally.active.clone());
    if let Mode::Indexed { completions, .. } = desired.mode {
        let mut of_index: BTreeMap<usize, Vec<&Pod>> = BTreeMap::new();
        for pod in std::mem::take(&mut rest) {
            match pod::index(pod).filter(|it| *it < completions) {
                Some(index) => of_index.entry(index).or_default().push(pod),
                None => surplus.push(pod),
            }
        }
        for pods in of_index.into_values() {
            let mut ordered = in_order_of_deletion(pods, now);
            rest.extend(ordered.pop());
            surplus.extend(ordered);
        }
    }
    let n_more = n.saturating_sub(surplus.len());
    if n_more > 0 {
        surplus.extend(in_order_of_deletion(rest, now).into_iter().take(n_more));
    }
    surplus
}
