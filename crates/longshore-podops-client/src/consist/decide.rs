//! The decision about an employer, its table and its pods.
//!
//! The order is what protects traffic: a pod expects the finalizer before it can serve, is in the table before it has the
//! finalizer, and loses the finalizer after it has left the table. A pod's finalizers follow a table that was seen, or that
//! was changed without an error in the same plan. The employer's own finalizer is there before anything else, and goes last.

use std::{collections::BTreeMap, time::Duration};

use longshore_api::podops::{
    FINALIZER_CLEAN, REASON_CLEAN_FINALIZER_CLEANED, REASON_CLEAN_FINALIZER_ENSURED,
    REASON_CURRENT_EMPLOYEES_FAILED, REASON_CURRENT_EMPLOYER_FAILED,
    REASON_EXPECTED_FINALIZER_FAILED, REASON_SYNC_EMPLOYEES_FAILED, REASON_SYNC_EMPLOYER_FAILED,
};
use longshore_core::{Action, Announcement, EventType, Never, Next, Patch, PatchKind, Plan, Seen};
use serde_json::json;

use super::{
    model::{Change, Changes, Employee, Employer, Failure, Observed, Readiness},
    table::{Entries, Part},
};
use crate::{
    changes_of,
    cooperation::{expect_finalizer, forget_finalizer},
};

/// The plan about an employer.
pub type ConsistPlan = Plan<Never, Change>;

type ConsistAction = Action<Never, Change>;

/// When to repeat a read that failed, and to read again what was to change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Pods that are written in one round before the table is, and as many after it.
const PODS_A_ROUND: usize = 16;

/// Decides about one employer.
pub fn decide(observed: &Observed) -> ConsistPlan {
    let employer = match &observed.employer {
        Seen::Present(employer) => employer,
        Seen::Absent => return Plan::await_change(),
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    if let Some(plan) = hold(employer) {
        return plan;
    }
    let employees = match &observed.employees {
        Seen::Present(employees) => employees.as_slice(),
        Seen::Absent => &[],
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    let of_employer = match read(&observed.current_employer) {
        Ok(entries) => entries,
        Err(why) => return unreadable(employer, Part::Employer, why),
    };
    let of_employees = match read(&observed.current_employees) {
        Ok(entries) => entries,
        Err(why) => return unreadable(employer, Part::Employees, why),
    };
    let round = Round {
        employer,
        employees,
        of_employer: Changes::between(of_employer, &observed.expected),
        of_employees: Changes::between(of_employees, &expected(employees)),
        current: of_employees,
    };
    let mut plan = round.plan(observed.resync);
    let failed = observed.failure.as_ref();
    let failed = failed.map(|failure| failed_to_write(employer, failure));
    plan.actions = failed.into_iter().chain(plan.actions).collect();
    plan
}

/// What comes before everything else: its finalizer. Also the end of one that has nothing to clean.
fn hold(employer: &Employer) -> Option<ConsistPlan> {
    if let Some(finalizers) = employer.migrated() {
        let patch = json!({"metadata": {
            "resourceVersion": employer.resource_version, "finalizers": finalizers,
        }});
        return Some(Plan::of(vec![Action::Patch(Patch {
            target: employer.target.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch,
        })]));
    }
    if employer.is_held() {
        return None;
    }
    if !employer.is_wanted {
        return Some(Plan::await_change());
    }
    let ensure = Action::EnsureFinalizer {
        target: employer.target.clone(),
        finalizer: FINALIZER_CLEAN,
    };
    let note = "add employer clean finalizer succeed".to_owned();
    let say = announce(
        employer,
        EventType::Normal,
        REASON_CLEAN_FINALIZER_ENSURED,
        note,
    );
    Some(Plan::of(vec![ensure, say]))
}

fn read(current: &Seen<Entries>) -> Result<&Entries, &str> {
    const NOTHING: &Entries = &BTreeMap::new();
    match current {
        Seen::Present(entries) => Ok(entries),
        Seen::Absent => Ok(NOTHING),
        Seen::Unknown(why) => Err(&why.message),
    }
}

/// What the table is to have of all pods.
fn expected(employees: &[Employee]) -> Entries {
    let entries = employees
        .iter()
        .filter_map(|employee| Some((employee.id.clone()?, employee.entry.clone()?)));
    entries.collect()
}

/// An employer whose table and pods were seen.
struct Round<'a> {
    employer: &'a Employer,
    employees: &'a [Employee],
    of_employer: Changes,
    of_employees: Changes,
    current: &'a Entries,
}

/// The result of the decision about one pod.
struct Written {
    patch: Option<ConsistAction>,
    /// Why the annotation of the pod cannot be followed, for people.
    complaint: Option<String>,
}

impl Round<'_> {
    fn plan(self, resync: Duration) -> ConsistPlan {
        let (mut before, mut after, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
        for employee in self.employees {
            let is_settled = self.is_settled(employee);
            let written = self.write(employee, is_settled);
            complaints.extend(written.complaint);
            match written.patch {
                Some(patch) => before.push(patch),
                None if is_settled => {}
                // As soon as the table is changed.
                None => after.extend(self.write(employee, true).patch),
            }
        }
        let is_clean = before.is_empty()
            && after.is_empty()
            && complaints.is_empty()
            && self.current.is_empty()
            && self.of_employer.is_empty();
        if !self.employer.is_wanted && is_clean {
            return self.let_go();
        }
        before.truncate(PODS_A_ROUND);
        after.truncate(PODS_A_ROUND);
        let changes = [
            (Part::Employer, self.of_employer),
            (Part::Employees, self.of_employees),
        ];
        let changes = changes.into_iter().filter(|(_, it)| !it.is_empty());
        let changes: Vec<ConsistAction> = changes
            .map(|(part, changes)| Action::Call(Change { part, changes }))
            .collect();
        let next = if changes.is_empty() {
            resync
        } else {
            LOOK_AGAIN.min(resync)
        };
        let complaints = complaints.into_iter().take(1);
        let mut actions: Vec<ConsistAction> = complaints
            .map(|note| {
                let reason = REASON_EXPECTED_FINALIZER_FAILED;
                announce(self.employer, EventType::Warning, reason, note)
            })
            .collect();
        actions.extend(before);
        actions.extend(changes);
        actions.extend(after);
        Plan {
            actions,
            next: Next::After(next),
        }
    }

    /// Whether the table has of a pod what it is to have.
    fn is_settled(&self, employee: &Employee) -> bool {
        match &employee.id {
            Some(id) => self.current.get(id) == employee.entry.as_ref(),
            // Whatever is too much may be this pod's.
            None => self.of_employees.delete.is_empty(),
        }
    }

    /// What is written on a pod whose entry in the table is settled, or is not.
    fn write(&self, employee: &Employee, is_settled: bool) -> Written {
        let mut pod = employee.pod.clone();
        let is_employed = self.employer.is_wanted && employee.is_selected;
        let holder = self.employer.holder();
        let finalizer = self.employer.finalizer();
        let expects = if !is_employed {
            // What makes no sense is not waited for.
            let _ = forget_finalizer(&mut pod, &holder);
            Ok(())
        } else if pod.metadata.deletion_timestamp.is_none() {
            expect_finalizer(&mut pod, &holder, &finalizer).map(drop)
        } else {
            Ok(())
        };
        let has_traffic = employee.id.is_some() && employee.entry.is_some();
        let is_protected = is_employed && has_traffic && employee.readiness == Readiness::Ready;
        if is_settled {
            let finalizers = pod.metadata.finalizers.get_or_insert_default();
            let is_there = finalizers.contains(&finalizer);
            if is_protected && !is_there {
                finalizers.push(finalizer);
            } else if !is_protected && is_there {
                finalizers.retain(|held| *held != finalizer);
            }
        }
        let patch = changes_of(&employee.pod.metadata, &pod.metadata);
        let name = &employee.target.name;
        Written {
            patch: patch.map(|patch| {
                Action::Patch(Patch {
                    target: employee.target.clone(),
                    subresource: None,
                    kind: PatchKind::Merge,
                    patch,
                })
            }),
            complaint: expects.err().map(|why| {
                format!("ensure employees expected finalizer failed: pod {name}: {why}")
            }),
        }
    }

    fn let_go(&self) -> ConsistPlan {
        let remove = Action::RemoveFinalizer {
            target: self.employer.target.clone(),
            finalizer: FINALIZER_CLEAN,
        };
        let note = "clean employer clean finalizer succeed".to_owned();
        let reason = REASON_CLEAN_FINALIZER_CLEANED;
        let say = announce(self.employer, EventType::Normal, reason, note);
        Plan::of(vec![say, remove])
    }
}

fn unreadable(employer: &Employer, part: Part, why: &str) -> ConsistPlan {
    let (reason, note) = match part {
        Part::Employer => (
            REASON_CURRENT_EMPLOYER_FAILED,
            format!("get current employer failed: {why}"),
        ),
        Part::Employees => (
            REASON_CURRENT_EMPLOYEES_FAILED,
            format!("get current employees failed: {why}"),
        ),
    };
    Plan {
        actions: vec![announce(employer, EventType::Warning, reason, note)],
        next: Next::After(LOOK_AGAIN),
    }
}

fn failed_to_write(employer: &Employer, failure: &Failure) -> ConsistAction {
    let why = &failure.why;
    let (reason, note) = match failure.part {
        Part::Employer => (
            REASON_SYNC_EMPLOYER_FAILED,
            format!("sync employer failed: {why}"),
        ),
        Part::Employees => (
            REASON_SYNC_EMPLOYEES_FAILED,
            format!("sync employees failed: {why}"),
        ),
    };
    announce(employer, EventType::Warning, reason, note)
}

fn announce(
    employer: &Employer,
    event_type: EventType,
    reason: &'static str,
    note: String,
) -> ConsistAction {
    Action::Announce(Announcement {
        regarding: employer.target.clone(),
        event_type,
        reason,
        note,
    })
}
