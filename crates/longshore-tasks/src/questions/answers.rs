//! The answers to the questions about one action, by question, as rounds read them.

use std::sync::Arc;

use bytes::Bytes;
use longshore_core::{Asked, Incarnation, Question as _, QuestionId};
use longshore_kit::{Answers, Failures, Turn};
use longshore_plugins::{Answer, CacheKey};
use longshore_proto::flyteidl2::core::LiteralMap;

use super::{
    CACHED, COPY, CREATE, DELETE, DIRECTORY, EXISTS, GET, Holder, INPUTS, KEY, LARGE_OUTPUTS,
    OUTCOME, OUTPUTS, PUT, RELEASE, REPORT, RESERVE, Report, STATUS, TaskAnswer, TaskQuestion,
    fingerprint,
};
use crate::{
    catalog::{CatalogCacheStatus, Hit},
    data::Outcome,
    facts::Facts,
    model::Unanswered,
};

/// The answer of one kind, out of any [`TaskAnswer`].
macro_rules! pick {
    ($kind:ident) => {
        |answer| {
            if let TaskAnswer::$kind(answer) = answer {
                Some(answer)
            } else {
                None
            }
        }
    };
}

/// The answers to the questions about one action, and what the process remembers of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionAnswers<'a> {
    pub(crate) answers: &'a Answers<TaskQuestion>,
    pub(crate) incarnation: &'a Incarnation,
    pub(crate) facts: &'a Facts,
}

impl ActionAnswers<'_> {
    pub(crate) fn inputs(&self) -> Asked<Result<Option<Arc<LiteralMap>>, String>> {
        self.get(INPUTS, "", pick!(Inputs))
    }

    pub(crate) fn directory(&self, url: &str) -> Asked<()> {
        self.get(DIRECTORY, url, done)
    }

    /// See [`TaskQuestion::Outcome`].
    pub(crate) fn outcome(&self, of: &str) -> Asked<Outcome> {
        self.get(OUTCOME, of, pick!(Outcome))
    }

    pub(crate) fn outputs(&self, prefix: &str) -> Asked<()> {
        let written = self.get(OUTPUTS, prefix, done);
        if matches!(written, Asked::NotAsked) {
            self.get(LARGE_OUTPUTS, prefix, done)
        } else {
            written
        }
    }

    pub(crate) fn key(&self) -> Asked<Option<CacheKey>> {
        self.get(KEY, "", pick!(Key))
    }

    pub(crate) fn found(&self) -> Asked<Option<Hit>> {
        self.get(GET, "", pick!(Found))
    }

    pub(crate) fn cached(&self, url: &str) -> Asked<Result<Bytes, String>> {
        self.get(CACHED, url, pick!(Cached))
    }

    pub(crate) fn copied(&self, prefix: &str) -> Asked<()> {
        self.get(COPY, prefix, done)
    }

    pub(crate) fn exists(&self, prefix: &str) -> Asked<bool> {
        self.get(EXISTS, prefix, pick!(Exists))
    }

    pub(crate) fn reserved(&self) -> Asked<Holder> {
        self.get(RESERVE, "", pick!(Reserved))
    }

    /// What came of the reservation before it was asked for again.
    pub(crate) fn reserved_before(&self) -> Asked<Holder> {
        let id = QuestionId::new(RESERVE, "");
        typed(self.answers.before(self.incarnation, &id), pick!(Reserved))
    }

    pub(crate) fn put(&self, prefix: &str) -> Asked<CatalogCacheStatus> {
        self.get(PUT, prefix, pick!(Put))
    }

    pub(crate) fn released(&self) -> Asked<()> {
        self.get(RELEASE, "", done)
    }

    /// What a connector was asked from this state, that its job be ended aside.
    pub(crate) fn connector(&self, state: &[u8]) -> (QuestionId, Asked<Answer>) {
        let of = fingerprint(state);
        let ask = |kind: &'static str| {
            let asked = self.get(kind, &of, pick!(Connector));
            (QuestionId::new(kind, of.as_str()), asked)
        };
        let create = ask(CREATE);
        if matches!(create.1, Asked::NotAsked) {
            ask(STATUS)
        } else {
            create
        }
    }

    /// The turn of a question that is not sent; `None` where it is not asked, or may have been sent.
    pub(crate) fn turn(&self, id: &QuestionId) -> Option<Turn> {
        self.answers.turn(self.incarnation, id)
    }

    /// How far the request is that a state announces, and whether it may have been sent and has no answer.
    pub(crate) fn announced(&self, state: &[u8]) -> (Option<Turn>, bool) {
        let id = QuestionId::new(CREATE, fingerprint(state));
        let (turn, asked) = (self.turn(&id), self.answers.get(self.incarnation, &id));
        let is_sent = turn.is_none() && matches!(asked, Asked::UnderWay { .. });
        (turn, is_sent)
    }

    /// Whether the job of this state is ended.
    pub(crate) fn aborted(&self, state: &[u8]) -> Asked<()> {
        self.get(DELETE, &fingerprint(state), done)
    }

    /// What the run service has acknowledged, and no status says yet.
    pub(crate) fn reported(&self) -> Asked<Arc<Report>> {
        self.get(REPORT, "", pick!(Reported))
    }

    /// The questions that are under way, or whose answers wait to be used up.
    pub(crate) fn ids(&self) -> Vec<QuestionId> {
        let all = self.answers.all(self.incarnation);
        all.map(|(question, _)| question.id()).collect()
    }

    /// The failures of the look-up since the catalog answered one last.
    pub(crate) fn found_failures(&self) -> Option<Failures> {
        self.failures(GET, "")
    }

    /// The failures to read the cached file at this URL since its store answered last.
    pub(crate) fn cached_failures(&self, url: &str) -> Option<Failures> {
        self.failures(CACHED, url)
    }

    /// The failures to take or extend the reservation since the catalog answered last who has it.
    pub(crate) fn reserved_failures(&self) -> Option<Failures> {
        self.failures(RESERVE, "")
    }

    /// The questions that have no answer.
    pub(crate) fn unanswered(&self) -> Vec<Unanswered> {
        let unanswered = self.answers.unanswered(self.incarnation);
        let unanswered = unanswered.map(|it| Unanswered {
            kind: it.question.kind(),
            whom: it.question.whom(),
            since: it.since,
            failure: it.failure.map(str::to_owned),
            waits_for: it.waits_for,
        });
        unanswered.collect()
    }

    fn failures(&self, kind: &'static str, about: &str) -> Option<Failures> {
        let id = QuestionId::new(kind, about);
        self.answers.failures(self.incarnation, &id)
    }

    fn get<T>(
        &self,
        kind: &'static str,
        about: &str,
        pick: impl FnOnce(TaskAnswer) -> Option<T>,
    ) -> Asked<T> {
        let id = QuestionId::new(kind, about);
        typed(self.answers.get(self.incarnation, &id), pick)
    }
}

fn done(answer: TaskAnswer) -> Option<()> {
    matches!(answer, TaskAnswer::Done).then_some(())
}

/// How far a question is, without its answer.
pub(crate) fn without_answer<T>(asked: Asked<T>) -> Asked<()> {
    typed(asked, |_| Some(()))
}

/// The answer to one kind of question. The transport answers no question with what belongs to another one.
fn typed<A, T>(asked: Asked<A>, pick: impl FnOnce(A) -> Option<T>) -> Asked<T> {
    match asked {
        Asked::NotAsked => Asked::NotAsked,
        Asked::AskedByAnother => Asked::AskedByAnother,
        Asked::UnderWay { since } => Asked::UnderWay { since },
        Asked::Failed { at, why, message } => Asked::Failed { at, why, message },
        Asked::Answered { at, answer } => {
            pick(answer).map_or(Asked::NotAsked, |answer| Asked::Answered { at, answer })
        }
    }
}
