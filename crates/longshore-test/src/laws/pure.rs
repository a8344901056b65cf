//! The laws of `decide` alone, over generated observations.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
};

use longshore_core::{Action, Next, ObjectRef, Plan, Question};
use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

use super::{Law, Violation, reads::Read};

/// The plans of a decider.
pub type PlanOf<D> = Plan<<D as Decider>::Status, <D as Decider>::Effect, <D as Decider>::Question>;
/// The actions of its plans.
pub type ActionOf<D> =
    Action<<D as Decider>::Status, <D as Decider>::Effect, <D as Decider>::Question>;

/// A pure controller, with what the laws must know about its plans.
pub trait Decider {
    /// The snapshot that the controller decides upon.
    type Observed: Debug + Clone;
    /// The status that the controller persists.
    type Status: Debug + PartialEq;
    /// The controller's own effects.
    type Effect: Debug + PartialEq;
    /// The controller's questions to foreign systems.
    type Question: Question;

    /// The function under test.
    fn decide(&self, observed: &Self::Observed) -> PlanOf<Self>;

    /// No plan has more actions than this.
    fn max_actions(&self) -> usize;

    /// Every read of the observation: [`all_reads`](super::all_reads), where the observation has
    /// [`Reads`](super::Reads). A read that this observation is not decided upon may fail without a trace.
    ///
    /// # Errors
    /// A read that was not found, in words.
    fn reads(&self, observed: &Self::Observed) -> Result<Vec<Read<Self::Observed>>, String> {
        let _ = observed;
        Ok(Vec::new())
    }

    /// The observation with one read after the other `Unknown`, by hand: for observations without
    /// [`Reads`](super::Reads). Unlike with [`Self::reads`], each of them has to be decided upon.
    fn blinded(&self, observed: &Self::Observed) -> Vec<Self::Observed> {
        let _ = observed;
        Vec::new()
    }

    /// Whether an action is allowed although a read is `Unknown`: a condition that says so, as a rule.
    fn is_allowed_blind(&self, action: &ActionOf<Self>) -> bool {
        let _ = action;
        false
    }

    /// Whether persisting `status` leaves a terminal state that was observed.
    fn leaves_terminal(&self, observed: &Self::Observed, status: &Self::Status) -> bool {
        let _ = (observed, status);
        false
    }

    /// The intent that an irreversible action needs on record, a question that creates something included; `None` for
    /// actions that need none.
    fn intent_of(&self, action: &ActionOf<Self>) -> Option<String> {
        let _ = action;
        None
    }

    /// Whether this intent is on record already.
    fn is_intended(&self, observed: &Self::Observed, intent: &str) -> bool {
        let _ = (observed, intent);
        false
    }

    /// Whether persisting `status` puts this intent on record.
    fn records_intent(&self, status: &Self::Status, intent: &str) -> bool {
        let _ = (status, intent);
        false
    }
}

/// Checks every pure law over `n_cases` observations and answers the laws that were broken, each with the smallest
/// observation found. The cases are the same in every run.
pub fn check_decider<D: Decider>(
    decider: &D,
    observations: &impl Strategy<Value = D::Observed>,
    n_cases: u32,
) -> Vec<Violation> {
    type Check<D> = fn(&D, &<D as Decider>::Observed) -> Result<(), String>;
    let laws: [(Law, Check<D>); 7] = [
        (Law::Deterministic, deterministic),
        (Law::Bounded, bounded),
        (Law::StaleSafe, stale_safe),
        (Law::WrittenAhead, written_ahead),
        (Law::AnswersAreKept, answers_are_kept),
        (Law::TerminalIsFinal, terminal_is_final),
        (Law::UnknownIsNotAbsent, unknown_is_not_absent),
    ];
    let mut violations = Vec::new();
    for (law, check) in laws {
        let config = Config {
            cases: n_cases,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let result = runner.run(observations, |observed| {
            check(decider, &observed).map_err(TestCaseError::fail)
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(reason, observed)) => violations.push(Violation {
                law,
                case: format!("{observed:#?}"),
                detail: reason.message().to_owned(),
            }),
            Err(TestError::Abort(reason)) => violations.push(Violation {
                law,
                case: "no observation could be generated".to_owned(),
                detail: reason.message().to_owned(),
            }),
        }
    }
    violations
}

/// The plan, or nothing where `decide` panics: that breaks one law only.
fn plan<D: Decider>(decider: &D, observed: &D::Observed) -> Option<PlanOf<D>> {
    catch_unwind(AssertUnwindSafe(|| decider.decide(observed))).ok()
}

fn deterministic<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let first = plan(decider, observed).ok_or("decide panicked")?;
    let second = plan(decider, &observed.clone()).ok_or("decide panicked")?;
    if first == second {
        return Ok(());
    }
    Err(format!(
        "two plans for one observation:\n{first:?}\n{second:?}"
    ))
}

fn bounded<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let n = plan(decider, observed).map_or(0, |plan| plan.actions.len());
    let most = decider.max_actions();
    if n <= most {
        return Ok(());
    }
    Err(format!(
        "{n} actions in one plan, at most {most} are stated"
    ))
}

fn stale_safe<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let actions = plan(decider, observed).map(|plan| plan.actions);
    for action in actions.iter().flatten() {
        if target_of(action).is_some_and(|target| target.uid.is_none()) {
            return Err(format!("an action that names no incarnation: {action:?}"));
        }
    }
    Ok(())
}

/// The existing object that an action changes.
fn target_of<S, E, Q>(action: &Action<S, E, Q>) -> Option<&ObjectRef> {
    match action {
        Action::Patch(patch) => Some(&patch.target),
        Action::Delete(delete) => Some(&delete.target),
        Action::EnsureFinalizer { target, .. } | Action::RemoveFinalizer { target, .. } => {
            Some(target)
        }
        Action::Persist(_)
        | Action::Create(_)
        | Action::Call(_)
        | Action::Ask(_)
        | Action::Used(_)
        | Action::Announce(_) => None,
    }
}

fn written_ahead<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let actions = plan(decider, observed).map(|plan| plan.actions);
    let actions = actions.unwrap_or_default();
    for (index, action) in actions.iter().enumerate() {
        let Some(intent) = decider.intent_of(action) else {
            continue;
        };
        let is_persisted = actions.iter().take(index).any(|earlier| match earlier {
            Action::Persist(status) => decider.records_intent(status, &intent),
            Action::EnsureFinalizer { .. }
            | Action::Create(_)
            | Action::Patch(_)
            | Action::Delete(_)
            | Action::Call(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::Announce(_)
            | Action::RemoveFinalizer { .. } => false,
        });
        if !is_persisted && !decider.is_intended(observed, &intent) {
            return Err(format!(
                "{intent:?} is on record neither before nor in the plan: {actions:?}"
            ));
        }
    }
    Ok(())
}

/// A plan that fails half-way is decided again, upon the same answers: they are used up after the records that they lead
/// to.
fn answers_are_kept<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let actions = plan(decider, observed).map(|plan| plan.actions);
    let actions = actions.unwrap_or_default();
    let is_used = |action: &ActionOf<D>| matches!(action, Action::Used(_));
    let mut after = actions.iter().skip_while(|action| !is_used(action));
    match after.find(|action| matches!(action, Action::Persist(_))) {
        None => Ok(()),
        Some(record) => Err(format!(
            "an answer is used up before {record:?}, which may fail: {actions:?}"
        )),
    }
}

fn terminal_is_final<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    let actions = plan(decider, observed).map(|plan| plan.actions);
    for action in actions.iter().flatten() {
        if let Action::Persist(status) = action
            && decider.leaves_terminal(observed, status)
        {
            return Err(format!("leaves a terminal state: {status:?}"));
        }
    }
    Ok(())
}

fn unknown_is_not_absent<D: Decider>(decider: &D, observed: &D::Observed) -> Result<(), String> {
    for blinded in decider.blinded(observed) {
        if let Some(plan) = plan(decider, &blinded) {
            looks_again(decider, &plan, &blinded)?;
        }
    }
    let seen = plan(decider, observed);
    for read in decider.reads(observed)? {
        let Some(blind) = plan(decider, &read.unknown) else {
            continue;
        };
        let Err(why) = looks_again(decider, &blind, &read.unknown) else {
            continue;
        };
        // Whatever the read would have found, the plan is the same: it is not decided upon.
        let is_of_no_interest =
            seen.as_ref() == Some(&blind) && plan(decider, &read.absent).as_ref() == Some(&blind);
        if !is_of_no_interest {
            return Err(format!("{} is unknown: {why}", read.path));
        }
    }
    Ok(())
}

/// Whether a plan upon an observation with a failed read does nothing, and reads again.
fn looks_again<D: Decider>(
    decider: &D,
    plan: &PlanOf<D>,
    blinded: &D::Observed,
) -> Result<(), String> {
    let mut actions = plan.actions.iter();
    if let Some(action) = actions.find(|action| !decider.is_allowed_blind(action)) {
        return Err(format!(
            "decided without looking: {action:?}\nupon {blinded:#?}"
        ));
    }
    if plan.next == Next::AwaitChange {
        return Err(format!(
            "no event tells that it can be seen again: {blinded:#?}"
        ));
    }
    Ok(())
}
