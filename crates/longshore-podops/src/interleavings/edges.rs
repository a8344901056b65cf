//! Every listed transition can be taken. (That no other one is taken, each write of these tests asserts.)

use longshore_api::podops::OperationLabel;

use super::{OPERATIONS, Step, World};
use crate::{
    model::Operations,
    standing::{Phase, Standing, transitions::taken},
};

/// The operation that most of these are about, and another one.
const ONE: usize = 0;
const OTHER: usize = 2;

impl World {
    /// The phase of an operation; `None` where it does not exist.
    fn phase(&self, n: usize) -> Option<Phase> {
        let pod = self.pod()?;
        let standing = Standing::of(&pod, &[]);
        let mut operations = standing.operations.iter();
        let operation = operations.find(|it| it.id == OPERATIONS[n].0);
        operation.map(|it| it.phase)
    }

    /// Each actor but the clients of operations does what it has to, until the operation has this phase.
    fn until(&mut self, n: usize, phase: Option<Phase>) {
        let steps = [
            Step::Look,
            Step::Act,
            Step::Node,
            Step::Traffic,
            Step::Slices,
        ];
        for step in steps.into_iter().cycle().take(200) {
            if self.phase(n) == phase {
                return;
            }
            self.step(step);
        }
        panic!("{:?} in place of {phase:?}: {:#?}", self.phase(n), self.pod);
    }

    /// Begins an operation and takes it to this phase.
    fn take(&mut self, n: usize, phase: Phase) {
        assert!(self.step(Step::Begin(n)), "{:#?}", self.pod);
        if matches!(phase, Phase::PostCheck | Phase::Completing) {
            self.until(n, Some(Phase::Operating));
            assert!(self.step(Step::Work(n)), "{:#?}", self.pod);
        }
        self.until(n, Some(phase));
    }

    /// Takes an operation back, whatever its phase is.
    fn undo(&mut self, n: usize) {
        let (id, of) = OPERATIONS[n];
        let is_written = self.label(|labels| {
            labels.insert(OperationLabel::UndoOperationType.of(id), of.into());
        });
        assert!(is_written, "{:#?}", self.pod);
    }
}

/// A pod that serves.
fn serving() -> World {
    let mut world = World::new();
    world.settle();
    let pod = world.pod().unwrap();
    assert!(pod.is_available() && Operations::of(&pod.labels).unwrap().is_empty());
    world
}

fn completed() -> World {
    let mut world = serving();
    world.take(ONE, Phase::Completing);
    world.until(ONE, None);
    world
}

fn beside_another_one() -> World {
    let mut world = serving();
    world.take(ONE, Phase::Operating);
    world.take(OTHER, Phase::Operating);
    world
}

fn given_up(phase: Phase) -> World {
    let mut world = serving();
    world.take(ONE, phase);
    assert!(world.step(Step::Finish(ONE)));
    world
}

fn undone(phase: Phase) -> World {
    let mut world = serving();
    world.take(ONE, phase);
    world.undo(ONE);
    world
}

fn released(phase: Phase) -> World {
    let mut world = serving();
    world.take(ONE, phase);
    assert!(world.step(Step::Free));
    world
}

fn removed() -> World {
    let mut world = serving();
    assert!(world.step(Step::Delete));
    world.settle();
    assert!(world.pod.is_none());
    world
}

/// An operation that is begun again in one phase, after these steps, and goes on in another one.
fn begun_again(from: Phase, steps: &[Step], to: Phase) -> World {
    let mut world = serving();
    world.take(ONE, from);
    for step in steps {
        assert!(world.step(*step), "{step:?}: {:#?}", world.pod);
    }
    assert!(world.step(Step::BeginAgain(ONE)), "{:#?}", world.pod);
    assert_eq!(world.phase(ONE), Some(from), "its rules have yet to pass");
    world.until(ONE, Some(to));
    world
}

#[test]
fn every_listed_transition_of_an_operation_is_taken() {
    let early = [Phase::PreCheck, Phase::Preparing];
    let late = [Phase::Operating, Phase::PostCheck, Phase::Completing];
    let mut worlds = vec![completed(), beside_another_one(), removed()];
    worlds.extend(early.map(given_up));
    worlds.extend(early.into_iter().chain(late).map(undone));
    worlds.extend(early.into_iter().chain(late).map(released));
    worlds.extend([
        begun_again(Phase::PostCheck, &[], Phase::Operating),
        begun_again(Phase::Completing, &[], Phase::Operating),
        // The controller opens the gate before the operation begins again.
        begun_again(
            Phase::Completing,
            &[Step::Look, Step::Act],
            Phase::Preparing,
        ),
    ]);
    let edges = worlds.into_iter().flat_map(|world| world.taken).collect();
    let untaken = taken::untaken(&edges);
    assert!(untaken.is_empty(), "never taken: {untaken:#?}");
}
