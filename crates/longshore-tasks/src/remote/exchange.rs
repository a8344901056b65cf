//! What this process remembers of the questions that it asks, between the record of a question and that of its answer.
//! Kept in memory: that nothing is known here of a state says that another process wrote it, which may have asked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use longshore_plugins::{Answer, Request};
use longshore_proto::flyteidl2::core::task_execution::Phase as JobPhase;

use crate::model::ActionKey;

/// Questions and answers, by action.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    known: Mutex<BTreeMap<ActionKey, Exchange>>,
}

#[derive(Debug)]
struct Exchange {
    /// Uid of the action.
    uid: String,
    /// The state that was read last.
    state: Vec<u8>,
    stage: Stage,
    /// What we wrote since, or tried to: also where the answer to a write is lost, nobody else wrote it.
    written: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Stage {
    /// Another process wrote the state, and may have asked.
    Foreign,
    /// Nothing was asked from this state.
    Quiet,
    /// Something was asked, and the answer has not come yet.
    Asked,
    /// The answer, and whether it stays until another state is read.
    Answered { answer: Answer, stays: bool },
}

/// What is known of a state that was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Remembered {
    /// Another process wrote it, and may have asked.
    Foreign,
    /// It is ours, and nothing was asked from it.
    Quiet,
    /// Something was asked, and the answer has not come yet.
    Asked,
    /// It is ours, and this was answered.
    Answered(Answer),
}

impl Exchanges {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ActionKey, Exchange>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This state is about to be written.
    pub(crate) fn writes(&self, key: &ActionKey, state: &[u8]) {
        if let Some(exchange) = self.known().get_mut(key) {
            exchange.written.push(state.to_vec());
        }
    }

    /// Something is asked.
    pub(crate) fn asks(&self, key: &ActionKey) {
        if let Some(exchange) = self.known().get_mut(key) {
            exchange.stage = Stage::Asked;
        }
    }

    /// This was answered.
    pub(crate) fn answered(&self, key: &ActionKey, request: &Request, answer: Answer) {
        let mut known = self.known();
        // Meanwhile another state may have been read: whoever wrote that one asks himself.
        let asked = known.get_mut(key);
        if let Some(exchange) = asked.filter(|it| matches!(it.stage, Stage::Asked)) {
            let stays = is_for_once(request) || is_last(&answer);
            exchange.stage = Stage::Answered { answer, stays };
        }
    }

    /// What is known of this state, which was read. An answer that another question may follow is given once.
    pub(crate) fn recall(&self, key: &ActionKey, uid: &str, state: &[u8]) -> Remembered {
        let mut known = self.known();
        let exchange = known.entry(key.clone()).or_insert_with(|| Exchange {
            uid: uid.to_owned(),
            state: state.to_vec(),
            stage: Stage::Foreign,
            written: Vec::new(),
        });
        if exchange.uid != uid || exchange.state != state {
            let is_ours = exchange.uid == uid && exchange.written.iter().any(|it| it == state);
            *exchange = Exchange {
                uid: uid.to_owned(),
                state: state.to_vec(),
                stage: if is_ours {
                    Stage::Quiet
                } else {
                    Stage::Foreign
                },
                written: Vec::new(),
            };
        }
        match &exchange.stage {
            Stage::Foreign => Remembered::Foreign,
            Stage::Quiet => Remembered::Quiet,
            Stage::Asked => Remembered::Asked,
            Stage::Answered { answer, stays } => {
                let answer = answer.clone();
                if !stays {
                    exchange.stage = Stage::Quiet;
                }
                Remembered::Answered(answer)
            }
        }
    }

    /// There is no such action any more, or it ended.
    pub(crate) fn forget(&self, key: &ActionKey) {
        self.known().remove(key);
    }
}

/// Whether asking twice does twice.
fn is_for_once(request: &Request) -> bool {
    match request {
        Request::Create(_) => true,
        Request::Get(_) | Request::Delete(_) => false,
    }
}

/// Whether the job ended: there is no more to ask, and what was said is needed until all of it is done.
fn is_last(answer: &Answer) -> bool {
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
    use super::*;

    fn key() -> ActionKey {
        ActionKey {
            namespace: "flyte".to_owned(),
            name: "r-a".to_owned(),
        }
    }

    fn failed() -> Answer {
        Answer::Failed("no".to_owned())
    }

    fn told(phase: JobPhase) -> Answer {
        let resource = longshore_proto::flyteidl2::connector::Resource {
            phase: phase.into(),
            ..Default::default()
        };
        let response = longshore_proto::flyteidl2::connector::GetTaskResponse {
            resource: Some(resource),
        };
        Answer::Told {
            response: Box::new(response),
            by: longshore_plugins::Teller::default(),
        }
    }

    #[test]
    fn a_state_is_ours_if_this_process_wrote_it() {
        use Remembered::{Asked, Foreign, Quiet};
        let exchanges = Exchanges::default();
        let recall = |uid: &str, state: &[u8]| exchanges.recall(&key(), uid, state);
        assert_eq!(recall("u", b"s"), Foreign, "of the process before");
        exchanges.writes(&key(), b"lost");
        exchanges.writes(&key(), b"t");
        assert_eq!(
            recall("u", b"lost"),
            Quiet,
            "the answer to the write was lost"
        );
        assert_eq!(
            recall("u", b"t"),
            Foreign,
            "that came after it was somebody else's"
        );
        exchanges.writes(&key(), b"v");
        assert_eq!(recall("u", b"v"), Quiet);
        assert_eq!(recall("u", b"v"), Quiet);
        exchanges.asks(&key());
        assert_eq!(recall("u", b"v"), Asked);
        exchanges.writes(&key(), b"w");
        assert_eq!(recall("next", b"w"), Foreign, "of the action before");
        let get = Request::Get(Box::default());
        exchanges.answered(&key(), &get, failed());
        assert_eq!(recall("next", b"w"), Foreign, "it did not ask that");
    }

    #[test]
    fn an_answer_stays_until_the_next_state_where_it_is_the_last_one() {
        let exchanges = Exchanges::default();
        let answer = |state: &[u8]| match exchanges.recall(&key(), "u", state) {
            Remembered::Answered(answer) => Some(answer),
            Remembered::Foreign | Remembered::Quiet | Remembered::Asked => None,
        };
        let ask = |request: &Request, answer: Answer| {
            exchanges.asks(&key());
            exchanges.answered(&key(), request, answer);
        };
        assert_eq!(answer(b"s"), None);
        ask(&Request::Create(Box::default()), failed());
        assert_eq!(answer(b"s"), Some(failed()));
        exchanges.writes(&key(), b"t");
        assert_eq!(answer(b"s"), Some(failed()), "the write failed");
        assert_eq!(answer(b"t"), None);
        let get = Request::Get(Box::default());
        for passing in [failed(), told(JobPhase::Running)] {
            ask(&get, passing.clone());
            assert_eq!(answer(b"t"), Some(passing));
            assert_eq!(answer(b"t"), None, "it is asked again");
        }
        let last = told(JobPhase::Succeeded);
        ask(&get, last.clone());
        for _ in 0..2 {
            assert_eq!(answer(b"t"), Some(last.clone()), "there is more to be done");
        }
    }
}
