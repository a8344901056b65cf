//! Which states of plugins this process has written. Kept in memory: a state that is not known here was written by another
//! process, which may have asked what the state announces.

use longshore_plugins::Answer;
use longshore_proto::flyteidl2::core::task_execution::Phase as JobPhase;

/// So many are kept: the one on record is among the last, also where the answer to a write was lost.
const KEPT: usize = 4;

/// The states of an action that this process has written, or has tried to, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnStates(Vec<Vec<u8>>);

impl OwnStates {
    /// This state is about to be written.
    pub(crate) fn writes(&mut self, state: &[u8]) {
        self.0.retain(|written| written != state);
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(state.to_vec());
    }

    /// Whether this process has written a state.
    pub(crate) fn has(&self, state: &[u8]) -> bool {
        self.0.iter().any(|written| written == state)
    }
}

/// Whether an answer says that the job has ended: there is no more to ask, and what was said is needed until all of it
/// is done.
pub(super) fn is_last(answer: &Answer) -> bool {
    let Answer::Told { response, .. } = answer else {
        return false;
    };
    let resource = response.resource.as_ref();
    resource.is_some_and(|resource| match resource.phase() {
        JobPhase::Succeeded | JobPhase::Aborted | JobPhase::Failed | JobPhase::RetryableFailed => {
            true
        }
        JobPhase::Undefined
        | JobPhase::Queued
        | JobPhase::Running
        | JobPhase::WaitingForResources
        | JobPhase::Initializing => false,
    })
}

#[cfg(test)]
mod tests {
    use longshore_proto::flyteidl2::connector::{GetTaskResponse, Resource};

    use super::*;

    #[test]
    fn a_state_is_ours_if_this_process_has_written_it_lately() {
        let mut own = OwnStates::default();
        assert!(!own.has(b"of the process before"));
        own.writes(b"lost");
        own.writes(b"t");
        assert!(
            own.has(b"lost") && own.has(b"t"),
            "the answer to a write was lost"
        );
        own.writes(b"lost");
        for state in [b"u", b"v", b"w"] {
            own.writes(state);
        }
        assert!(own.has(b"lost") && !own.has(b"t"));
        own.writes(b"x");
        assert!(!own.has(b"lost"));
    }

    #[test]
    fn the_answer_that_a_job_has_ended_is_the_last_one() {
        let told = |phase: JobPhase| Answer::Told {
            response: Box::new(GetTaskResponse {
                resource: Some(Resource {
                    phase: phase.into(),
                    ..Resource::default()
                }),
            }),
            is_cut: false,
            by: longshore_plugins::Teller::default(),
        };
        for (phase, expected) in [
            (JobPhase::Queued, false),
            (JobPhase::Running, false),
            (JobPhase::Succeeded, true),
            (JobPhase::RetryableFailed, true),
        ] {
            assert_eq!(is_last(&told(phase)), expected, "{phase:?}");
        }
        assert!(!is_last(&Answer::Failed("no".to_owned())));
    }
}
