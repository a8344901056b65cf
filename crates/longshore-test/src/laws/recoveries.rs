//! A second fault during the recovery from a first one.
//!
//! Each case of a scenario is a first fault. What the controller does within 20 s after it is the recovery, and each
//! fault at each point of the recovery is a second fault. A scenario has thousands of such pairs: seeds number all of
//! them, and a run without seeds has a fixed share.

use std::{
    fmt::Write,
    ops::Range,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;

use super::{
    Law, Report, Run, Scenario, Violation,
    cases::{Case, Kinds, cases, faults_at, is_in_share, mixed},
    judge::judge,
    system::{in_parallel, replay},
};
use crate::faults::{Fault, FaultPlan, Point};

/// Outside a campaign, one case in this many has a second fault.
const SHARE: u64 = 16;
/// Violations of one scenario that a campaign reports in full, and how long each may be.
const REPORTED: usize = 3;
const REPORTED_CHARS: usize = 8_000;

/// Where a second fault strikes, and which one.
type Second = (Point, Fault);

/// The second fault that a case has in every test run; most have none.
pub(super) fn of_test_run<S: Scenario>(
    scenario: &S,
    n: usize,
    case: &Case,
    run: &Run,
    kinds: Kinds,
) -> Option<Case> {
    let case_number = u64::try_from(n).ok()?;
    if !is_in_share(scenario, case_number, SHARE) {
        return None;
    }
    let seconds = second_faults(scenario, case, run, kinds);
    let n = spread(case_number, 0, seconds.len())?;
    Some(with_second(case, seconds.get(n)?))
}

/// All second faults of these kinds of a case that went like this.
fn second_faults<S: Scenario>(scenario: &S, case: &Case, run: &Run, kinds: Kinds) -> Vec<Second> {
    let prolongs_outage =
        |point: &&Point| point.what.starts_with("watch ") || point.what.starts_with("list ");
    let points = run.recovery.iter();
    let points = points.filter(|point| !scenario.is_given_up(&case.plan, point));
    let points = points.filter(|point| !(scenario.has_appointments() && prolongs_outage(point)));
    let mut seconds = Vec::new();
    for point in points {
        let faults = faults_at(scenario, run, point, kinds).into_iter();
        seconds.extend(faults.map(|fault| (point.clone(), fault)));
    }
    seconds
}

fn with_second(case: &Case, second: &Second) -> Case {
    let mut plan = case.plan.clone();
    plan.at.push(second.clone());
    let law = Law::Recovers;
    Case { law, plan }
}

/// The place among `n` of the second fault that a case has in this turn. Within `n` turns each place comes once, and
/// turns that follow each other are at places far from each other.
fn spread(case: u64, turn: u64, n: usize) -> Option<usize> {
    let n = u64::try_from(n).ok().filter(|n| *n > 0)?;
    let stride = (n * 5 / 8 + 1..).find(|stride| gcd(*stride, n) == 1)?;
    let first = mixed(case) % n;
    usize::try_from((first + turn % n * stride) % n).ok()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A scenario with all of its first faults.
struct Recoveries<'s, S> {
    scenario: &'s S,
    kinds: Kinds,
    reference: Run,
    cases: Vec<Case>,
    firsts: Vec<OnceLock<First>>,
}

/// The result of a world with the first fault alone.
struct First {
    broken: Vec<Violation>,
    seconds: Vec<Second>,
}

impl<'s, S: Scenario> Recoveries<'s, S> {
    fn of(scenario: &'s S, kinds: Kinds) -> Self {
        let reference = replay(scenario, FaultPlan::none());
        let cases = cases(scenario, &reference, kinds);
        Self {
            scenario,
            kinds,
            reference,
            firsts: cases.iter().map(|_| OnceLock::new()).collect(),
            cases,
        }
    }

    /// The first fault of a seed, and which of its second faults the seed means.
    fn case_of(&self, seed: u64) -> Option<(usize, u64)> {
        let n_cases = u64::try_from(self.cases.len()).ok().filter(|n| *n > 0)?;
        let case = usize::try_from(seed % n_cases).ok()?;
        Some((case, seed / n_cases))
    }

    /// What is wrong with the first fault of a case alone is wrong with a second one: there are none then. Runs a world
    /// where the case has none yet.
    fn first(&self, n: usize) -> Option<&First> {
        let (case, first) = (self.cases.get(n)?, self.firsts.get(n)?);
        Some(first.get_or_init(|| {
            let run = replay(self.scenario, case.plan.clone());
            let broken = judge(self.scenario, case, &run, &self.reference);
            let seconds = if broken.is_empty() {
                second_faults(self.scenario, case, &run, self.kinds)
            } else {
                Vec::new()
            };
            First { broken, seconds }
        }))
    }

    fn pair_of(&self, seed: u64) -> Option<Case> {
        let (n, turn) = self.case_of(seed)?;
        let seconds = &self.first(n)?.seconds;
        let place = spread(u64::try_from(n).ok()?, turn, seconds.len())?;
        Some(with_second(self.cases.get(n)?, seconds.get(place)?))
    }

    /// Whether a lower seed, from `start` on, means the same pair.
    fn is_repeated(&self, seed: u64, start: u64) -> bool {
        let first = self.case_of(seed).and_then(|(n, _)| self.first(n));
        let n_seconds = first.map_or(0, |first| first.seconds.len());
        let period = u64::try_from(self.cases.len().saturating_mul(n_seconds));
        let same = period.ok().and_then(|period| seed.checked_sub(period));
        same.is_some_and(|same| same >= start)
    }
}

/// The plan of a seed of [`check_recoveries`]: a first fault, and a second one during the recovery. `None` where the
/// scenario has no fault, or breaks a law with the first one alone.
///
/// # Panics
/// Where a world panics.
pub fn recovery_plan<S: Scenario>(scenario: &S, seed: u64) -> Option<FaultPlan> {
    let pair = Recoveries::of(scenario, Kinds::All).pair_of(seed)?;
    Some(pair.plan)
}

/// Runs the scenario undisturbed, then for each seed with a first fault, and with a second one during the recovery from
/// it. As many seeds as the scenario has cases have each first fault once.
///
/// # Panics
/// Where a world panics.
pub fn check_recoveries<S: Scenario>(scenario: &S, seeds: Range<u64>) -> Report {
    check_pairs(scenario, Kinds::All, seeds)
}

/// Like [`check_recoveries`], of these kinds of faults. Each pair is played once, however many of the seeds mean it.
pub(super) fn check_pairs<S: Scenario>(scenario: &S, kinds: Kinds, seeds: Range<u64>) -> Report {
    let recoveries = Recoveries::of(scenario, kinds);
    let violations = Mutex::new(Vec::new());
    let n_pairs = AtomicUsize::new(0);
    let n_seeds = usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX);
    in_parallel(n_seeds, |n| {
        let seed = seeds.start + u64::try_from(n).unwrap_or(u64::MAX);
        if let Some(pair) = recoveries.pair_of(seed)
            && !recoveries.is_repeated(seed, seeds.start)
        {
            n_pairs.fetch_add(1, Ordering::Relaxed);
            let run = replay(scenario, pair.plan.clone());
            let mut found = judge(scenario, &pair, &run, &recoveries.reference);
            for violation in &mut found {
                let _ = write!(violation.case, "\nseed {seed}");
            }
            let mut all = violations.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(found);
        }
        false
    });
    let mut n_firsts = 0;
    let mut all = violations
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for first in recoveries.firsts.iter().filter_map(OnceLock::get) {
        n_firsts += 1;
        all.extend(first.broken.iter().cloned());
    }
    Report {
        scenario: scenario.name(),
        n_worlds: 1 + n_firsts + n_pairs.into_inner(),
        violations: all,
    }
}

/// Prints the result of a scenario for the campaign, in a line of its own.
#[expect(clippy::print_stdout, reason = "a campaign reads what its tests print")]
pub(super) fn tell_campaign(report: &Report) {
    let violations = report.violations.iter().take(REPORTED);
    let violations = violations.map(|violation| {
        let text = violation.to_string();
        text.chars().take(REPORTED_CHARS).collect::<String>()
    });
    let told = json!({
        "scenario": report.scenario,
        "worlds": report.n_worlds,
        "broken": report.violations.len(),
        "violations": violations.collect::<Vec<_>>(),
    });
    println!("\nlaws {told}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_second_fault_has_its_turn_once_before_one_comes_again() {
        for n in [1, 2, 7, 8, 240, 241] {
            for case in [0, 1, 17] {
                let turns = 0..u64::try_from(n).unwrap();
                let places: BTreeSet<_> = turns.map(|turn| spread(case, turn, n)).collect();
                assert_eq!(places.len(), n, "case {case} of {n}");
                assert_eq!(
                    spread(case, 0, n),
                    spread(case, u64::try_from(n).unwrap(), n)
                );
            }
        }
        assert_eq!(spread(1, 1, 0), None);
    }
}
