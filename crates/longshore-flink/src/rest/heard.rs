//! What a JobManager has answered so far.

use std::collections::BTreeMap;

use longshore_core::{Asked, Incarnation, Question as _, QuestionId, Seen};
use longshore_kit::Answers;

use super::{RestAnswer, RestQuestion};

/// The questions that were asked about one incarnation of a resource, and how far each of them is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard(BTreeMap<QuestionId, Asked<RestAnswer>>);

impl Heard {
    /// What was asked about this incarnation; nothing where it is not known.
    pub fn of(answers: &Answers<RestQuestion>, incarnation: &Seen<Incarnation>) -> Self {
        let all = incarnation.present().map(|it| answers.all(it));
        let all = all.into_iter().flatten();
        all.map(|(question, asked)| (question.id(), asked))
            .collect()
    }

    /// How far a question is.
    pub fn get(&self, id: &QuestionId) -> &Asked<RestAnswer> {
        self.0.get(id).unwrap_or(&Asked::NotAsked)
    }

    /// The questions that have an answer or failed.
    pub fn over(&self) -> impl Iterator<Item = &QuestionId> {
        let over = self.0.iter().filter(|(_, asked)| asked.is_over());
        over.map(|(id, _)| id)
    }
}

impl FromIterator<(QuestionId, Asked<RestAnswer>)> for Heard {
    fn from_iter<I: IntoIterator<Item = (QuestionId, Asked<RestAnswer>)>>(asked: I) -> Self {
        Self(asked.into_iter().collect())
    }
}
