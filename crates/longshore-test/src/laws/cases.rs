//! Everything that can go wrong in a scenario.

use std::time::Duration;

use super::{Law, Run};
use crate::faults::{Fault, FaultPlan, WatchFault, faults_for};

/// How late watches are in the cases that make them late.
const LATE: Duration = Duration::from_secs(2);
/// How long nobody answers watches in the cases with an outage: longer than most steps of a scenario take.
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
}

/// Every fault of the undisturbed world's watches, then every fault at every point of it.
pub(super) fn cases(reference: &Run) -> Vec<Case> {
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
        for fault in faults_for(point) {
            let law = match fault {
                Fault::KillBefore | Fault::KillAfter => Law::Restartable,
                Fault::LoseAnswer => Law::Repeatable,
                Fault::Refuse(_) | Fault::Delay(_) => Law::NothingDropped,
            };
            let plan = FaultPlan::at(point.clone(), *fault);
            cases.push(Case { law, plan });
        }
    }
    cases
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
