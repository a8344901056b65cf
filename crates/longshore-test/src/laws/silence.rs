//! No silent foreign system delays another key.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    Law, Report, Scenario, Violation,
    system::{in_parallel, play_until},
};
use crate::faults::{FaultPlan, Faults};

/// How many times longer a key may take while a foreign system that it does not need is silent.
const TIMES: u32 = 2;
/// Delays below this are not counted.
const SLACK: Duration = Duration::from_secs(1);

/// A foreign system of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The keys that need it.
    pub keys: Vec<String>,
}

/// A scenario whose controller calls foreign systems.
pub trait Asking: Scenario {
    /// The foreign systems that the controller calls.
    fn hosts(&self) -> Vec<Host>;

    /// Makes a foreign system silent for good: it takes each question in, and answers none.
    fn silence(&self, world: &Self::World, host: &str);

    /// How long after the begin of the world each key had its end.
    fn ends(&self, world: &Self::World) -> BTreeMap<String, Duration>;
}

/// Runs the scenario undisturbed, then with each of its foreign systems silent from the beginning on: each key that does
/// not need that one has its end within twice its time.
///
/// # Panics
/// Where a world panics.
pub fn check_silence<S: Asking>(scenario: &S) -> Report {
    let hosts = scenario.hosts();
    let undisturbed = play(scenario, None);
    let violations = Mutex::new(Vec::new());
    in_parallel(hosts.len(), |n| {
        if let Some(host) = hosts.get(n) {
            let silent = play(scenario, Some(host));
            let found = delayed(scenario, host, &undisturbed, &silent);
            let all = violations.lock();
            all.unwrap_or_else(PoisonError::into_inner).extend(found);
        }
        false
    });
    Report {
        scenario: scenario.name(),
        n_worlds: 1 + hosts.len(),
        violations: violations
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    }
}

/// The ends of the keys in one world, and its log.
struct Ends {
    ends: BTreeMap<String, Duration>,
    log: String,
}

#[expect(clippy::expect_used, reason = "a test without a runtime cannot go on")]
fn play<S: Asking>(scenario: &S, silent: Option<&Host>) -> Ends {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let faults = Faults::new(FaultPlan::none());
        let mut world = scenario.build().await;
        if let Some(host) = silent {
            scenario.silence(&world, &host.name);
        }
        let time = tokio::time::sleep(scenario.time());
        let (subject, ()) = play_until(scenario, &mut world, &faults, time).await;
        let ends = scenario.ends(&world);
        drop(subject);
        let log = faults.log();
        Ends { ends, log }
    })
}

/// The keys that took too long, in one violation.
fn delayed<S: Asking>(
    scenario: &S,
    host: &Host,
    undisturbed: &Ends,
    silent: &Ends,
) -> Option<Violation> {
    let mut late = String::new();
    for (key, alone) in &undisturbed.ends {
        let allowed = *alone * TIMES + SLACK;
        let found = silent.ends.get(key);
        if !host.keys.contains(key) && found.is_none_or(|found| *found > allowed) {
            let _ = writeln!(late, "{key}: {alone:?} undisturbed, {found:?} here");
        }
    }
    if late.is_empty() {
        return None;
    }
    Some(Violation {
        law: Law::DelaysNobodyElse,
        case: format!("{} while {} is silent", scenario.name(), host.name),
        detail: format!("{late}what happened:\n{}", silent.log),
    })
}
