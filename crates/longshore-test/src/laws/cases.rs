//! Everything that can go wrong in a scenario.

use std::time::Duration;

use super::{Law, Run, Scenario};
use crate::faults::{Fault, FaultPlan, Point, Refusal, WatchFault, faults_for};

/// How late watches are in the cases that make them late.
const LATE: Duration = Duration::from_secs(2);
/// When a create lands that the process gave up: within the life of most pods.
const LATE_CREATE: Duration = Duration::from_millis(500);
/// When another request lands that the process gave up: after most steps of a story.
const LATE_WRITE: Duration = Duration::from_secs(10);
/// How long watches get no answer in the cases with an outage: longer than most steps of a scenario take.
const OUTAGE: Duration = Duration::from_secs(5);

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

    /// Whether every test run has it, and not the campaign alone. 429 and 500 both say "later", and a controller has one
    /// answer to them: in a test run, a scenario has one of the two at each of its points.
    pub(super) fn is_in_every_run<S: Scenario>(&self, scenario: &S) -> bool {
        let parity = |text: &str| text.bytes().filter(|byte| byte & 1 == 1).count();
        self.plan.at.iter().all(|(point, fault)| {
            let n = usize::try_from(point.n).unwrap_or(0);
            let is_even = (parity(&scenario.name()) + parity(&point.what) + n).is_multiple_of(2);
            match fault {
                Fault::Refuse(Refusal::TooManyRequests(_)) => is_even,
                Fault::Refuse(Refusal::InternalError) => !is_even,
                Fault::Refuse(
                    Refusal::Conflict
                    | Refusal::QuotaExceeded
                    | Refusal::Unavailable
                    | Refusal::GatewayTimeout
                    | Refusal::NoConnection,
                )
                | Fault::KillBefore
                | Fault::KillAfter
                | Fault::LoseAnswer
                | Fault::Delay(_)
                | Fault::LandLate(_) => true,
            }
        })
    }
}

/// Every fault of the undisturbed world's watches, then every fault at every point of it.
pub(super) fn cases<S: Scenario>(scenario: &S, reference: &Run) -> Vec<Case> {
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
    for point in &reference.points {
        for fault in faults_at(scenario, reference, point) {
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

/// What can go wrong at a point of this run. A kill before a point right behind another one is the kill after that one
/// or, where that is a read, before it: between the two, the process has only learned what it forgets.
pub(super) fn faults_at<S: Scenario>(scenario: &S, run: &Run, point: &Point) -> Vec<Fault> {
    let is_request = run.requests.contains(&point.what) && !point.is_read();
    let is_late = is_request && scenario.may_land_late(point);
    let is_kill_again =
        |fault: &Fault| *fault == Fault::KillBefore && run.further_points.contains(point);
    let faults = faults_for(point).iter().copied();
    let faults = faults.filter(|fault| !is_kill_again(fault));
    faults.chain(is_late.then(|| lands_late(point))).collect()
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
