//! What this process remembers of the questions that it asks, between the record of a question and that of its answer.
//! Kept in memory: that nothing is known here of a state says that another process wrote it, which may have asked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use longshore_plugins::{Answer, Request};

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
    /// A question that must not be repeated was asked, and nobody knows the answer.
    Asked,
    /// The answer, and whether it stays until another state is read.
    Answered { answer: Answer, stays: bool },
}

/// What is known of a state that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Remembered {
    /// It is ours, and nothing was asked from it, or there is an answer.
    pub(crate) is_ours: bool,
    /// What was answered.
    pub(crate) answer: Option<Answer>,
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

    /// This is about to be asked.
    pub(crate) fn asks(&self, key: &ActionKey, request: &Request) {
        if let Some(exchange) = self.known().get_mut(key)
            && is_for_once(request)
        {
            exchange.stage = Stage::Asked;
        }
    }

    /// This was answered.
    pub(crate) fn answered(&self, key: &ActionKey, request: &Request, answer: Answer) {
        if let Some(exchange) = self.known().get_mut(key) {
            let stays = is_for_once(request);
            exchange.stage = Stage::Answered { answer, stays };
        }
    }

    /// What is known of this state, which was read. An answer to a question that can be repeated is given once.
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
        let (is_ours, answer) = match &exchange.stage {
            Stage::Foreign | Stage::Asked => (false, None),
            Stage::Quiet => (true, None),
            Stage::Answered { answer, stays } => {
                let answer = answer.clone();
                if !stays {
                    exchange.stage = Stage::Quiet;
                }
                (true, Some(answer))
            }
        };
        Remembered { is_ours, answer }
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

    #[test]
    fn a_state_is_ours_until_something_was_asked_for_once() {
        let exchanges = Exchanges::default();
        let is_ours = |uid: &str, state: &[u8]| exchanges.recall(&key(), uid, state).is_ours;
        assert!(!is_ours("u", b"s"), "of the process before");
        exchanges.writes(&key(), b"lost");
        exchanges.writes(&key(), b"t");
        assert!(is_ours("u", b"lost"), "the answer to the write was lost");
        assert!(
            !is_ours("u", b"t"),
            "that came after it was somebody else's"
        );
        exchanges.writes(&key(), b"v");
        assert!(is_ours("u", b"v"));
        assert!(is_ours("u", b"v"));
        exchanges.asks(&key(), &Request::Create(Box::default()));
        assert!(!is_ours("u", b"v"), "nobody knows whether it was done");
        exchanges.writes(&key(), b"w");
        assert!(!is_ours("next", b"w"), "of the action before");
    }

    #[test]
    fn the_answer_to_what_is_asked_once_stays_until_the_next_state() {
        let exchanges = Exchanges::default();
        let answer = |state: &[u8]| exchanges.recall(&key(), "u", state).answer;
        let create = Request::Create(Box::default());
        assert_eq!(answer(b"s"), None);
        exchanges.asks(&key(), &create);
        exchanges.answered(&key(), &create, failed());
        assert_eq!(answer(b"s"), Some(failed()));
        exchanges.writes(&key(), b"t");
        assert_eq!(answer(b"s"), Some(failed()), "the write failed");
        assert_eq!(answer(b"t"), None);
        let get = Request::Get(Box::default());
        exchanges.asks(&key(), &get);
        exchanges.answered(&key(), &get, failed());
        assert_eq!(answer(b"t"), Some(failed()));
        assert_eq!(answer(b"t"), None, "it is asked again");
    }
}
