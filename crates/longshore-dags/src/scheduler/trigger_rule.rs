//! When a task may start, by the states of the tasks before it (section 6.4 of the DAG scheduler spec).

use longshore_store::TaskState;

use crate::model::TriggerRule;

/// How many of the direct upstream tasks are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub total: u32,
    /// Finished in any way.
    pub done: u32,
    /// Succeeded.
    pub success: u32,
    /// Skipped.
    pub skipped: u32,
    /// Failed themselves.
    pub failed: u32,
    /// Did not run because something before them failed.
    pub upstream_failed: u32,
    /// Gone from the DAG.
    pub removed: u32,
    /// Setup tasks among them.
    pub setups: u32,
    /// Setup tasks that succeeded.
    pub setups_success: u32,
    /// Setup tasks that were skipped.
    pub setups_skipped: u32,
}

impl Counts {
    /// Counts one more upstream task.
    pub fn add(&mut self, state: Option<TaskState>, is_setup: bool) {
        self.total += 1;
        self.setups += u32::from(is_setup);
        let Some(state) = state else { return };
        self.done += u32::from(state.is_finished());
        match state {
            TaskState::Success => {
                self.success += 1;
                self.setups_success += u32::from(is_setup);
            }
            TaskState::Skipped => {
                self.skipped += 1;
                self.setups_skipped += u32::from(is_setup);
            }
            TaskState::Failed => self.failed += 1,
            TaskState::UpstreamFailed => self.upstream_failed += 1,
            TaskState::Removed => self.removed += 1,
            TaskState::Scheduled
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Restarting
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput => {}
        }
    }

    fn is_all_done(&self) -> bool {
        self.done >= self.total
    }
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet.
    Wait,
    /// The task may start.
    Run,
    /// The task ends in this state without having run.
    End(TaskState),
}

/// What `rule` says about a task whose direct upstream tasks are in these states.
///
/// A rule first looks for a state that ends the task and then for a reason to start it. Once all upstream tasks are
/// finished, and none was removed, no rule waits.
pub fn evaluate(rule: TriggerRule, upstream: &Counts) -> Verdict {
    if upstream.total == 0 {
        return Verdict::Run;
    }
    match end_state(rule, upstream) {
        Some(state) => Verdict::End(state),
        None if may_run(rule, upstream) => Verdict::Run,
        None => Verdict::Wait,
    }
}

/// What the setup tasks that are before a task, but not directly, say about it: all of them must have succeeded.
pub fn evaluate_indirect_setups(setups: &Counts) -> Verdict {
    if setups.failed + setups.upstream_failed > 0 {
        Verdict::End(TaskState::UpstreamFailed)
    } else if setups.skipped > 0 {
        Verdict::End(TaskState::Skipped)
    } else if setups.success == setups.total {
        Verdict::Run
    } else {
        Verdict::Wait
    }
}

/// The "set state" column of 6.4.
fn end_state(rule: TriggerRule, n: &Counts) -> Option<TaskState> {
    let failed = n.failed + n.upstream_failed;
    let is_done = n.is_all_done();
    let skipped_if = |holds: bool| holds.then_some(TaskState::Skipped);
    let upstream_failed_if = |holds: bool| holds.then_some(TaskState::UpstreamFailed);
    match rule {
        TriggerRule::AllSuccess => {
            upstream_failed_if(failed > 0).or_else(|| skipped_if(n.skipped > 0))
        }
        TriggerRule::AllFailed => skipped_if(n.success + n.skipped > 0),
        TriggerRule::AllDoneMinOneSuccess => {
            skipped_if(n.skipped > 0).or_else(|| upstream_failed_if(is_done && n.success == 0))
        }
        TriggerRule::AllDoneSetupSuccess if is_done && n.setups > 0 => {
            skipped_if(n.setups_skipped >= n.setups)
                .or_else(|| upstream_failed_if(n.setups_success == 0))
        }
        TriggerRule::OneSuccess => skipped_if(is_done && n.done == n.skipped)
            .or_else(|| upstream_failed_if(is_done && n.success == 0)),
        TriggerRule::OneFailed => skipped_if(is_done && failed == 0),
        TriggerRule::OneDone => skipped_if(is_done && n.failed + n.success == 0),
        TriggerRule::NoneFailed => upstream_failed_if(failed > 0),
        TriggerRule::NoneFailedMinOneSuccess => upstream_failed_if(failed > 0)
            .or_else(|| skipped_if(n.skipped == n.total))
            .or_else(|| upstream_failed_if(is_done && n.success == 0)),
        TriggerRule::NoneSkipped => skipped_if(n.skipped > 0),
        TriggerRule::AllSkipped => skipped_if(n.success + failed > 0),
        TriggerRule::AllDone | TriggerRule::AllDoneSetupSuccess | TriggerRule::Always => None,
    }
}

/// The "run if" column of 6.4.
fn may_run(rule: TriggerRule, n: &Counts) -> bool {
    let failed = n.failed + n.upstream_failed;
    match rule {
        TriggerRule::AllSuccess => n.total == n.success + n.removed,
        TriggerRule::AllFailed => n.total == failed + n.removed,
        TriggerRule::AllDone => n.is_all_done(),
        TriggerRule::AllDoneMinOneSuccess => n.is_all_done() && n.skipped == 0 && n.success > 0,
        TriggerRule::AllDoneSetupSuccess => {
            n.is_all_done() && (n.setups == 0 || n.setups_success > 0)
        }
        TriggerRule::OneSuccess => n.success > 0,
        TriggerRule::OneFailed => failed > 0,
        TriggerRule::OneDone => n.success + n.failed > 0,
        TriggerRule::NoneFailed => n.total == n.success + n.skipped + n.removed,
        TriggerRule::NoneFailedMinOneSuccess => {
            n.total == n.success + n.skipped + n.removed && n.success > 0
        }
        TriggerRule::NoneSkipped => n.is_all_done() && n.skipped == 0,
        TriggerRule::AllSkipped => n.total == n.skipped,
        TriggerRule::Always => true,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Vector {
        rule: TriggerRule,
        upstream: Vec<Option<TaskState>>,
        setup_upstreams: Vec<usize>,
        set_state: Option<TaskState>,
        runnable: bool,
    }

    #[test]
    fn every_rule_answers_as_upstream_does() {
        let vectors: Vec<Vector> =
            serde_json::from_str(include_str!("../../testdata/scheduler/trigger-rules.json"))
                .unwrap();
        assert_eq!(vectors.len(), 1162);
        for vector in vectors {
            let mut counts = Counts::default();
            for (number, state) in vector.upstream.iter().enumerate() {
                counts.add(*state, vector.setup_upstreams.contains(&number));
            }
            let expected = match (vector.set_state, vector.runnable) {
                (Some(state), _) => Verdict::End(state),
                (None, true) => Verdict::Run,
                (None, false) => Verdict::Wait,
            };
            assert_eq!(evaluate(vector.rule, &counts), expected, "{vector:?}");
        }
    }

    #[test]
    fn setups_further_up_must_all_have_succeeded() {
        use TaskState::{Failed, Queued, Skipped, Success, UpstreamFailed};
        for (states, expected) in [
            (&[][..], Verdict::Run),
            (&[Some(Success)], Verdict::Run),
            (&[Some(Success), None], Verdict::Wait),
            (&[Some(Queued)], Verdict::Wait),
            (&[None, Some(Skipped)], Verdict::End(Skipped)),
            (&[Some(Skipped), Some(Failed)], Verdict::End(UpstreamFailed)),
            (&[Some(UpstreamFailed)], Verdict::End(UpstreamFailed)),
        ] {
            let mut counts = Counts::default();
            for state in states {
                counts.add(*state, true);
            }
            assert_eq!(evaluate_indirect_setups(&counts), expected, "{states:?}");
        }
    }
}
