//! Everything that can go wrong in a scenario.

use std::time::Duration;

use super::{Law, Run, Scenario};
use crate::faults::{Fault, FaultPlan, Point, WatchFault, faults_for};

/// In every test run, one in this many of the cases that are not the first of their kind.
const SHARE: u64 = 16;
/// How late watches are in the cases that make them late.
const LATE: Duration = Duration::from_secs(2);
/// When a create lands that the process gave up: within the life of most pods.
const LATE_CREATE: Duration = Duration::from_millis(500);
/// When another request lands that the process gave up: after most steps of a story.
const LATE_WRITE: Duration = Duration::from_secs(10);
/// How long watches get no answer in the cases with an outage: longer than most steps of a scenario take.
const OUTAGE: Duration = Duration::from_secs(5);

/// The kinds of faults that a scenario meets, as first ones and during the recovery from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    /// All of them.
    All,
    /// Those that lose an effect's answer, with the process or alone.
    LostAnswers,
}

impl Kinds {
    fn include(self, point: &Point, fault: Fault) -> bool {
        let loses_answer = matches!(fault, Fault::KillAfter | Fault::LoseAnswer);
        self == Self::All || loses_answer && !point.is_read()
    }
}

/// One world to be run, and the law that its end is about.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) law: Law,
    pub(super) plan: FaultPlan,
}

impl Case {
    fn watches(law: Law, watches: impl Into<Vec<WatchFault>>) -> Self {
        let plan = FaultPlan {
            watches: watches.into(),
            ..FaultPlan::none()
        };
        Self { law, plan }
    }

    /// Whether it is the first of its kind: at the first occurrence of an effect, at the first event of a resource.
    fn is_first_of_its_kind(&self) -> bool {
        let mut points = self.plan.at.iter().map(|(point, _)| point.n);
        let mut events = self.plan.watches.iter().filter_map(WatchFault::occurrence);
        points.all(|n| n <= 1) && events.all(|n| n <= 1)
    }
}

/// The cases of every test run: the first of each kind, and a fixed share of the others.
pub(super) fn of_test_run<S: Scenario>(scenario: &S, mut cases: Vec<Case>) -> Vec<Case> {
    let mut n = 0;
    cases.retain(|case| {
        n += 1;
        case.is_first_of_its_kind() || is_in_share(scenario, n, SHARE)
    });
    cases
}

/// Whether the n-th case of a scenario is in a share of one in so many. Mixed, because neighbours are the faults of one
/// point: a stride would meet the same fault at many of them.
pub(super) fn is_in_share<S: Scenario>(scenario: &S, n: u64, one_in: u64) -> bool {
    let name = scenario.name().bytes().map(u64::from).sum::<u64>();
    (mixed(n.wrapping_add(name)) >> 32).is_multiple_of(one_in)
}

pub(super) fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Every fault of the undisturbed world's watches, then every fault at every point of it, of these kinds.
pub(super) fn cases<S: Scenario>(scenario: &S, reference: &Run, kinds: Kinds) -> Vec<Case> {
    let mut cases = match kinds {
        Kinds::All => all_watch_cases(reference),
        Kinds::LostAnswers => Vec::new(),
    };
    for point in &reference.points {
        for fault in faults_at(scenario, reference, point, kinds) {
            let law = match fault {
                Fault::KillBefore | Fault::KillAfter => Law::Restartable,
                Fault::LoseAnswer => Law::Repeatable,
                Fault::Refuse(_) | Fault::Delay(_) => Law::NothingDropped,
                Fault::LandLate(_) => Law::StaleSafe,
            };
            let plan = FaultPlan::at(point.clone(), fault);
            cases.push(Case { law, plan });
        }
    }
    cases
}

/// What can go wrong with all watches of this run, and with those of each resource.
fn all_watch_cases(reference: &Run) -> Vec<Case> {
    let mut cases = vec![
        Case::watches(Law::StaleSafe, [WatchFault::late(LATE)]),
        Case::watches(Law::LevelTriggered, [WatchFault::NoBookmarks]),
        Case::watches(Law::LevelTriggered, [WatchFault::CutAfter(1)]),
        Case::watches(
            Law::LevelTriggered,
            [WatchFault::CutAfter(1), WatchFault::Repeat],
        ),
    ];
    for (resource, n_events) in &reference.watch_events {
        cases.extend(watch_cases(resource, *n_events));
    }
    cases
}

/// What of these kinds can go wrong at a point of this run. A kill before a point right behind another one is the kill
/// after that one or, where that is a read, before it: between the two, the process has only learned what it forgets.
pub(super) fn faults_at<S: Scenario>(
    scenario: &S,
    run: &Run,
    point: &Point,
    kinds: Kinds,
) -> Vec<Fault> {
    let is_request = run.requests.contains(&point.what) && !point.is_read();
    let is_late = is_request && scenario.may_land_late(point);
    let is_kill_again =
        |fault: &Fault| *fault == Fault::KillBefore && run.further_points.contains(point);
    let faults = faults_for(point).iter().copied();
    let faults = faults.filter(|fault| !is_kill_again(fault));
    let faults = faults.chain(is_late.then(|| lands_late(point)));
    faults
        .filter(|fault| kinds.include(point, *fault))
        .collect()
}

fn lands_late(point: &Point) -> Fault {
    Fault::LandLate(if point.what.starts_with("create ") {
        LATE_CREATE
    } else {
        LATE_WRITE
    })
}

/// What can go wrong with the watches of one resource alone.
fn watch_cases(resource: &str, n_events: u32) -> Vec<Case> {
    let resource = || resource.to_owned();
    let late = WatchFault::Late {
        resource: Some(resource()),
        by: LATE,
    };
    let mut cases = vec![Case::watches(Law::StaleSafe, [late])];
    for n in 1..=n_events {
        let expire = WatchFault::Expire {
            resource: resource(),
            n,
        };
        let outage = WatchFault::Outage {
            resource: resource(),
            n,
            time: OUTAGE,
        };
        cases.push(Case::watches(Law::LevelTriggered, [expire]));
        cases.push(Case::watches(Law::LevelTriggered, [outage]));
    }
    for n in 1..=2 {
        let expire = WatchFault::ExpireOnConnect {
            resource: resource(),
            n,
        };
        let faults = [WatchFault::CutAfter(1), expire];
        cases.push(Case::watches(Law::LevelTriggered, faults));
    }
    cases
}
