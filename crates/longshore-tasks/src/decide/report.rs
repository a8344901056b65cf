//! The run service gets each event before the status is written (task action spec §5.2).
//!
//! A plan that publishes is cut before its first event: the kit sends the report, and the acknowledgement leads to the
//! next round. That round writes the status that the events belong to, whatever has changed meanwhile. Then it goes on
//! with what follows from that status, or leaves this to another round.
//!
//! A crash in between loses nothing: the next process decides anew, and reports again. The run service keeps the first event
//! of each phase and version.

use std::{sync::Arc, time::Duration};

use longshore_core::{Action as Do, Asked, Next, Plan, Question as _};

use super::{ActionPlan, Round, Step};
use crate::{
    events::ActionEvent,
    questions::{Report, TaskQuestion},
};

/// The step that reports an event to the run service. [`first`] makes one report of those of a plan.
pub(super) fn step(round: &Round<'_>, event: ActionEvent) -> Step {
    Do::Ask(TaskQuestion::Report(Arc::new(Report {
        events: vec![event],
        upon: round.action.status.clone(),
        status: None,
    })))
}

/// The same plan, of which nothing happens that follows from its events before the run service has acknowledged them.
/// Where nobody receives events, the plan is carried out at once, without them.
pub(super) fn first(round: &Round<'_>, plan: ActionPlan) -> ActionPlan {
    if !round.action.has_event_receiver {
        return without_reports(plan);
    }
    let cut = Cut::of(round, &plan);
    match &round.action.reported {
        Asked::UnderWay { .. } if round.action.is_deleting => {
            // What runs is ended meanwhile.
            let mut plan = plan;
            if let Some(cut) = cut {
                plan.actions.truncate(cut.at);
                plan.next = Next::AwaitChange;
            }
            plan
        }
        Asked::UnderWay { .. } => wait(plan),
        Asked::Answered { answer, .. } => acknowledged(round, plan, cut, answer),
        Asked::NotAsked | Asked::AskedByAnother | Asked::Failed { .. } => {
            let Some(cut) = cut else {
                return plan;
            };
            let waits = wait(Plan {
                actions: plan.actions.get(cut.at..).unwrap_or_default().to_vec(),
                next: plan.next,
            });
            let mut actions = plan.actions;
            actions.truncate(cut.at);
            if let Asked::Failed { message, .. } = &round.action.reported {
                let reason = longshore_api::flyte::REASON_EVENT_PUBLISH_FAILED;
                actions.push(round.warn(reason, message.clone()));
            }
            actions.push(Do::Ask(TaskQuestion::Report(Arc::new(cut.report))));
            actions.extend(waits.actions);
            Plan {
                actions,
                next: waits.next,
            }
        }
    }
}

/// Where a plan reports to the run service.
struct Cut {
    /// The place of the first event.
    at: usize,
    /// All events of the plan.
    report: Report,
}

impl Cut {
    fn of(round: &Round<'_>, plan: &ActionPlan) -> Option<Self> {
        let at = plan.actions.iter().position(is_report)?;
        let reports = plan.actions.iter().filter_map(report_of);
        let events = reports.flat_map(|report| report.events.iter().cloned());
        let mut records = plan.actions.iter().filter_map(|step| {
            if let Do::Persist(record) = step {
                Some(record.status.clone())
            } else {
                None
            }
        });
        Some(Self {
            at,
            report: Report {
                events: events.collect(),
                upon: round.action.status.clone(),
                status: records.next(),
            },
        })
    }
}

/// The run service knows of the events of this report.
fn acknowledged(
    round: &Round<'_>,
    plan: ActionPlan,
    cut: Option<Cut>,
    reported: &Arc<Report>,
) -> ActionPlan {
    let used = Do::Used(TaskQuestion::Report(Arc::clone(reported)).id());
    let Some(status) = &reported.status else {
        let is_reported = cut.is_some_and(|cut| cut.report.status.is_none());
        return if is_reported {
            without_reports(plan)
        } else {
            plan
        };
    };
    if reported.upon != round.action.status {
        // Another writer has changed the status: the events of this plan are reported instead.
        let Some(cut) = cut else {
            let mut plan = plan;
            plan.actions.push(used);
            return plan;
        };
        let mut actions = plan.actions;
        actions.truncate(cut.at);
        actions.push(Do::Ask(TaskQuestion::Report(Arc::new(cut.report))));
        return Plan::of(actions);
    }
    if !cut.is_some_and(|cut| says_the_same(&cut.report, reported)) {
        return Plan {
            actions: vec![round.record(status.clone()), used],
            next: Next::After(Duration::ZERO),
        };
    }
    let mut plan = without_reports(plan);
    for step in &mut plan.actions {
        if let Do::Persist(record) = step {
            record.status = status.clone();
        }
    }
    plan.actions.push(used);
    plan
}

/// Whether two reports differ by nothing but the time.
fn says_the_same(new: &Report, before: &Report) -> bool {
    let events = |report: &Report| -> Vec<_> {
        let events = report.events.iter();
        events
            .map(|event| (event.attempt, event.phase, event.version))
            .collect()
    };
    let (Some(status), Some(old)) = (&new.status, &before.status) else {
        return false;
    };
    events(new) == events(before)
        && status.attempts == old.attempts
        && status.system_failures == old.system_failures
        && status.cache_status == old.cache_status
        && status.plugin_state == old.plugin_state
        && status.is_terminal() == old.is_terminal()
}

/// Nothing is done until the run service has answered, but the reservation of the task stays held.
fn wait(plan: ActionPlan) -> ActionPlan {
    let is_reservation = |step: &Step| matches!(step, Do::Ask(TaskQuestion::Reserve { .. }));
    let next = match plan.next {
        Next::After(Duration::ZERO) => Next::AwaitChange,
        next @ (Next::AwaitChange | Next::After(_)) => next,
    };
    Plan {
        actions: plan.actions.into_iter().filter(is_reservation).collect(),
        next,
    }
}

fn without_reports(mut plan: ActionPlan) -> ActionPlan {
    plan.actions.retain(|step| !is_report(step));
    plan
}

fn is_report(step: &Step) -> bool {
    report_of(step).is_some()
}

fn report_of(step: &Step) -> Option<&Report> {
    if let Do::Ask(TaskQuestion::Report(report)) = step {
        Some(report)
    } else {
        None
    }
}
