//! All ways of an operation from one phase to another. Operations take no other one: a test fails on an edge that is not
//! listed here, and on a listed one that is never taken.
//!
//! Every client can write the labels of operations. What is listed is what follows from the labels that clients are to
//! write: those that begin an operation, end it, and take it back.

use super::Phase;

/// Why an operation changes its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A client, a delete or an eviction begins it.
    Begun,
    /// A client begins it again after its work is done and before it is over, and every PodTransitionRule lets it go on.
    BegunAgain,
    /// Every PodTransitionRule lets the pod go on.
    RulesPassed,
    /// The gate is closed, and no finalizer protects the traffic of the pod any more.
    TrafficDrained,
    /// The clients of all operations at work are done.
    WorkDone,
    /// All operations of the pod complete, and every controller that has to routes traffic to it.
    ServesAgain,
    /// A client takes it back.
    Undone,
    /// A client gives it up before it was permitted.
    GivenUp,
    /// The pod takes part no more.
    Released,
    /// The pod is deleted or evicted.
    PodRemoved,
}

/// From, to and why; `None` is an operation that does not exist.
pub type Transition = (Option<Phase>, Option<Phase>, Cause);

/// The edges between the phases of an operation.
pub const TRANSITIONS: &[Transition] = {
    use Phase::{Completing, Operating, PostCheck, PreCheck, Preparing};
    &[
        (None, Some(PreCheck), Cause::Begun),
        (Some(PreCheck), Some(Preparing), Cause::RulesPassed),
        // Where another operation has drained the traffic already.
        (Some(PreCheck), Some(Operating), Cause::RulesPassed),
        (Some(Preparing), Some(Operating), Cause::TrafficDrained),
        (Some(Operating), Some(PostCheck), Cause::WorkDone),
        (Some(PostCheck), Some(Completing), Cause::RulesPassed),
        // The gate is still closed: the traffic has not come back.
        (Some(PostCheck), Some(Operating), Cause::BegunAgain),
        (Some(Completing), Some(Operating), Cause::BegunAgain),
        (Some(Completing), Some(Preparing), Cause::BegunAgain),
        (Some(Completing), None, Cause::ServesAgain),
        (Some(PreCheck), None, Cause::GivenUp),
        (Some(Preparing), None, Cause::GivenUp),
        (Some(PreCheck), None, Cause::Undone),
        (Some(Preparing), None, Cause::Undone),
        (Some(Operating), None, Cause::Undone),
        (Some(PostCheck), None, Cause::Undone),
        (Some(Completing), None, Cause::Undone),
        (Some(PreCheck), None, Cause::Released),
        (Some(Preparing), None, Cause::Released),
        (Some(Operating), None, Cause::Released),
        (Some(PostCheck), None, Cause::Released),
        (Some(Completing), None, Cause::Released),
        (Some(Operating), None, Cause::PodRemoved),
    ]
};

/// Which edges operations take, by the labels of their pod.
#[cfg(test)]
pub(crate) mod taken {
    use std::collections::BTreeSet;

    use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, OperationLabel};

    use super::{Cause, TRANSITIONS, Transition};
    use crate::{
        model::{Labels, Operation, Operations},
        standing::phase_of,
    };

    /// What a write does to the operations of a pod: `asked` are the labels as the client sends them, and `new` those that
    /// they become.
    ///
    /// # Panics
    /// On an edge that is not listed.
    pub(crate) fn by(old: &Labels, asked: &Labels, new: &Labels) -> BTreeSet<Transition> {
        let (before, after) = (Operations::of(old).unwrap(), Operations::of(new).unwrap());
        let ids: BTreeSet<&str> = before
            .iter()
            .chain(after.iter())
            .map(|(id, _)| id)
            .collect();
        let mut taken = BTreeSet::new();
        for id in ids {
            let phase = |operations: &Operations| operations.get(id).map(|it| phase_of(it).0);
            let (from, to) = (phase(&before), phase(&after));
            if from != to {
                let cause = cause(id, asked, from, to);
                let transition = (from, to, cause);
                assert!(
                    TRANSITIONS.contains(&transition),
                    "{id}: {transition:?} is not listed\nbefore: {old:#?}\nasked: {asked:#?}\nafter: {new:#?}"
                );
                taken.insert(transition);
            }
        }
        taken
    }

    /// A pod with these labels is removed. Its other operations go with it, wherever they are.
    pub(crate) fn by_removal(old: &Labels, id: &str) -> Transition {
        let operation = Operation::of(old, id);
        let transition = (Some(phase_of(&operation).0), None, Cause::PodRemoved);
        assert!(TRANSITIONS.contains(&transition), "{transition:?}");
        transition
    }

    fn cause(
        id: &str,
        asked: &Labels,
        from: Option<super::Phase>,
        to: Option<super::Phase>,
    ) -> Cause {
        use super::Phase::{Completing, Operating, PostCheck, PreCheck, Preparing};
        let has = |label: OperationLabel| asked.contains_key(&label.of(id));
        let takes_part = asked.get(LABEL_CONTROL).map(String::as_str) == Some(CONTROLLED);
        match (from, to) {
            (Some(_), None) if !takes_part => Cause::Released,
            (Some(_), None) if has(OperationLabel::UndoOperationType) => Cause::Undone,
            (Some(PreCheck | Preparing), None) => Cause::GivenUp,
            (None, _) => Cause::Begun,
            (Some(PostCheck | Completing), Some(Preparing | Operating)) => Cause::BegunAgain,
            (Some(PreCheck), _) | (_, Some(Completing)) => Cause::RulesPassed,
            (_, Some(Operating)) => Cause::TrafficDrained,
            (_, Some(PostCheck)) => Cause::WorkDone,
            (_, None) => Cause::ServesAgain,
            (from, to) => panic!("{id}: no known cause, from {from:?} to {to:?}"),
        }
    }

    /// The listed edges that are not among these.
    pub(crate) fn untaken(taken: &BTreeSet<Transition>) -> Vec<Transition> {
        let edges = TRANSITIONS.iter();
        edges
            .filter(|edge| !taken.contains(edge))
            .copied()
            .collect()
    }
}
