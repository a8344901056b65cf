//! Tasks that make no resource.

mod begun;
mod limits;
mod lists;
mod turns;

use longshore_core::{Asked, NoAnswer, QuestionId, UnknownCause};
use longshore_kit::Turn;
use longshore_plugins::{
    Call, Config, JobOutputs, PhaseInfo, RemotePlugin, Request, Round as PluginRound, StateError,
    Step, StoredState, TaskContext,
};
use longshore_proto::flyteidl2::core::TaskTemplate;

use super::{
    cached::{CacheFixture, held_by, uncached},
    *,
};
use crate::{
    catalog::{Cache, CatalogCacheStatus},
    model::{RemoteTask, Work},
};

/// A plugin whose steps are given.
#[derive(Debug)]
struct Given;

impl RemotePlugin for Given {
    fn id(&self) -> &'static str {
        "given"
    }
    fn task_types(&self) -> Vec<String> {
        Vec::new()
    }
    fn needs_inputs(&self, _: StoredState<'_>) -> bool {
        false
    }
    fn step(&self, _: &TaskContext, _: &PluginRound<'_>) -> Result<Step, StateError> {
        Err(StateError::Version(0))
    }
    fn abort(&self, _: &TaskContext, _: StoredState<'_>) -> Result<Option<Call>, StateError> {
        Ok(None)
    }
}

/// What a round about such a task is decided upon.
#[derive(Clone)]
struct Remote {
    world: World,
    unlisted: Option<&'static str>,
    step: Result<Step, StateError>,
    outcome: Seen<Outcome>,
    written: Seen<()>,
    inputs: Option<Seen<()>>,
    is_under_way: bool,
    turn: Option<Turn>,
    is_begun: bool,
    answered: Option<QuestionId>,
    abort: Option<Call>,
    aborted: Asked<()>,
    cache: Cache,
}

/// A task of which nothing was begun, and what its plugin says.
fn remote(phase: Phase) -> Remote {
    let mut step = Step::quiet(PhaseInfo::of(phase, ""), vec![1]);
    step.again = (!phase.is_terminal()).then_some(Duration::from_secs(30));
    Remote {
        world: action(),
        unlisted: None,
        step: Ok(step),
        outcome: Seen::Present(Outcome::Complete),
        written: Seen::Absent,
        inputs: None,
        is_under_way: false,
        turn: None,
        is_begun: false,
        answered: None,
        abort: None,
        aborted: Asked::NotAsked,
        cache: Cache::None,
    }
}

/// The same, and this was published and is remembered.
fn after(last: Phase, phase: Phase) -> Remote {
    remote(phase).with(|it| {
        let status = &mut it.world.action.status;
        status.attempts = 1;
        last.published().clone_into(&mut status.plugin_phase);
        status.plugin_state = vec![1];
        status.plugin_state_version = longshore_plugins::STATE_VERSION;
        status::enter(status, &PhaseInfo::of(last, ""), EPOCH);
    })
}

fn failing(info: PhaseInfo) -> Remote {
    after(Phase::Running, Phase::Running).with(|it| it.step = Ok(Step::quiet(info, vec![2])))
}

fn call() -> Call {
    Call {
        category: longshore_plugins::Category::default(),
        connector: None,
        request: Request::Get(Box::default()),
    }
}

impl Remote {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn step(self, change: impl FnOnce(&mut Step)) -> Self {
        self.with(|it| change(it.step.as_mut().unwrap()))
    }

    fn system_failures(self, n: u32) -> Self {
        self.with(|it| it.world.action.status.system_failures = n)
    }

    fn begun(self) -> Self {
        let call = Call {
            request: Request::Delete(Box::default()),
            ..call()
        };
        self.with(|it| it.abort = Some(call))
    }

    /// The connector has ended what was begun.
    fn aborted(self) -> Self {
        let ended = Asked::Answered {
            at: EPOCH,
            answer: (),
        };
        self.with(|it| it.aborted = ended)
    }

    /// The connector was asked to end it before so many seconds, and did not.
    fn not_aborted(self, seconds: u64, why: NoAnswer) -> Self {
        let failed = Asked::Failed {
            at: EPOCH - Duration::from_secs(seconds),
            why,
            message: "it did not".to_owned(),
        };
        self.with(|it| it.aborted = failed)
    }

    fn cached(self, is_serializable: bool, change: impl FnOnce(&mut CacheFixture)) -> Self {
        let mut known = uncached(is_serializable);
        change(&mut known);
        self.with(|it| it.cache = known.cache())
    }

    fn written(self) -> Self {
        self.with(|it| it.written = Seen::Present(()))
    }

    fn words(&self) -> String {
        words(&world::plan_of(&self.world.config, self.observed()))
    }

    fn observed(&self) -> Observed {
        let mut action = self.world.action.clone();
        let (attempt, template) = (action.attempt(), TaskTemplate::default());
        let config = Config::default();
        let context = TaskContext::of(&action.object, &action.spec, template, attempt, &config);
        let last = longshore_plugins::K8sState {
            phase: Phase::parse(&action.status.plugin_phase).unwrap_or_default(),
            version: action.status.plugin_phase_version,
            reason: String::new(),
        };
        action.work = Work::Remote(Box::new(RemoteTask {
            plugin: std::sync::Arc::new(Given),
            context: TaskContext {
                max_attempts: self.world.max_attempts,
                last,
                ..context.unwrap()
            },
            unlisted: self.unlisted.map(str::to_owned),
            step: self.step.clone(),
            inputs: self.inputs.as_ref().map(|it| world::asked(it, EPOCH)),
            outcome: world::asked(&self.outcome, EPOCH),
            written: world::asked(&self.written, EPOCH),
            slot: None,
            is_under_way: self.is_under_way,
            turn: self.turn,
            is_begun: self.is_begun,
            answered: self.answered.clone(),
            abort: self.abort.clone(),
            aborted: self.aborted.clone(),
            cache: self.cache.clone(),
            connector: "connector:8000".to_owned(),
        }));
        Observed {
            now: EPOCH,
            action: Seen::Present(action),
        }
    }
}

fn check(table: Vec<(&str, Remote, &str)>) {
    for (name, remote, expected) in table {
        assert_eq!(remote.words(), expected, "{name}");
    }
}

const DONE: &str = "report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await";

#[test]
fn what_is_to_be_asked_is_remembered_first_and_the_answer_is_waited_for() {
    check(vec![
        (
            "new",
            remote(Phase::Queued).step(|it| it.again = Some(Duration::ZERO)),
            "report QUEUED.0 of 1; persist Queued.0 of 1; after 0ns",
        ),
        (
            "remembered",
            after(Phase::Queued, Phase::Queued).step(|it| it.call = Some(call())),
            "ask; await",
        ),
        (
            "not answered yet",
            after(Phase::Queued, Phase::Queued).with(|it| it.is_under_way = true),
            "await",
        ),
        (
            "not answered yet, and being deleted",
            after(Phase::Queued, Phase::Queued).with(|it| {
                it.is_under_way = true;
                it.world.action.is_deleting = true;
            }),
            "await",
        ),
        (
            "it is not known whether there is a slot",
            after(Phase::Queued, Phase::Queued).with(|it| {
                it.world.action.children.current =
                    Seen::unknown(UnknownCause::NotListedYet, "no list yet");
            }),
            "note that it is not seen; after 1s",
        ),
        (
            "answered: the next answer is another one",
            after(Phase::Queued, Phase::Running).with(|it| {
                it.answered = Some(QuestionId::new("connector_get", ""));
            }),
            "report RUNNING.0 of 1; persist Running.0 of 1; use connector_get; after 30s",
        ),
        (
            "answered, and asked again",
            after(Phase::Running, Phase::Running)
                .step(|it| it.call = Some(call()))
                .with(|it| it.answered = Some(QuestionId::new("connector_get", ""))),
            "ask; await",
        ),
        (
            "nothing new",
            after(Phase::Running, Phase::Running),
            "after 30s",
        ),
        (
            "progress after system failures, which count for the whole attempt",
            after(Phase::Queued, Phase::Running).system_failures(2),
            "report RUNNING.0+2 of 1; persist Running.0 of 1 +2; after 30s",
        ),
        (
            "nobody knows",
            after(Phase::Running, Phase::Undefined),
            "after 10s",
        ),
        (
            "a phase that the receiver does not know from the one before",
            after(Phase::WaitingForCache, Phase::WaitingForResources),
            "report WAITING_FOR_RESOURCES.1 of 1; persist WaitingForResources.1 of 1; after 30s",
        ),
    ]);
}

#[test]
fn a_success_is_told_once_its_outputs_are_there() {
    let done = || after(Phase::Running, Phase::Success);
    let returned = |it: &mut Step| it.outputs = Some(JobOutputs::Here(bytes::Bytes::new()));
    check(vec![
        ("left behind", done(), DONE),
        ("returned", done().step(returned), "write outputs; await"),
        (
            "returned and written",
            done().step(returned).written(),
            DONE,
        ),
        (
            "not asked for",
            done().with(|it| it.outcome = Seen::Absent),
            "look; await",
        ),
        (
            "not to be seen",
            done().with(|it| it.outcome = Seen::unknown(UnknownCause::Unreachable, "down")),
            "after 1s",
        ),
        (
            "not there",
            done().with(|it| it.outcome = Seen::Present(Outcome::Incomplete("none".to_owned()))),
            "persist Running.0 of 1 +1; warn FailedPluginHandle; use store_outcome; after 10s",
        ),
        (
            "not there for the fourth time",
            done()
                .system_failures(3)
                .with(|it| it.outcome = Seen::Present(Outcome::Incomplete("none".to_owned()))),
            "report FAILED.0+4 of 1; persist PermanentFailure.0 of 1 +4 failed PermanentFailure: \
             plugin \"given\" failed with system error 4 times: none; label; use store_outcome; await",
        ),
    ]);
}

#[test]
fn a_failure_costs_an_attempt_unless_it_is_the_systems() {
    let lost = || {
        let info = PhaseInfo::retryable(ErrorKind::System, "Lost", "it is lost");
        failing(info)
    };
    check(vec![
        (
            "another attempt",
            failing(user("Error")).with(|it| it.world.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "another attempt, whose job may run beside",
            failing(user("Error"))
                .begun()
                .with(|it| it.world.max_attempts = 2),
            "end; await",
        ),
        (
            "another attempt, after a job that is ended",
            failing(user("Error"))
                .begun()
                .aborted()
                .with(|it| it.world.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "another attempt, after a job that its connector knows no more",
            failing(user("Error"))
                .begun()
                .not_aborted(0, NoAnswer::Refused)
                .with(|it| it.world.max_attempts = 2),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
        (
            "the last attempt",
            failing(user("Error")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
        (
            "the system's, with nothing to be ended",
            lost(),
            "persist Running.0 of 1 +1 (nothing started); warn FailedPluginHandle; after 10s",
        ),
        ("the system's", lost().begun(), "end; await"),
        (
            "the system's, with a job that is ended",
            lost().begun().aborted(),
            "persist Running.0 of 1 +1 (nothing started); warn FailedPluginHandle; after 10s",
        ),
        (
            "a state that nobody can read",
            after(Phase::Running, Phase::Running).with(|it| it.step = Err(StateError::Version(7))),
            "persist Running.0 of 1 +1 (nothing started); warn FailedPluginHandle; after 10s",
        ),
    ]);
}

#[test]
fn what_was_begun_is_ended_before_its_action_goes() {
    let deleted = |remote: Remote| remote.with(|it| it.world.action.is_deleting = true);
    check(vec![
        (
            "nothing begun",
            deleted(remote(Phase::Queued)),
            "report ABORTED.0 of 1; release r-a; await",
        ),
        (
            "begun",
            deleted(after(Phase::Running, Phase::Running).begun()),
            "end; await",
        ),
        (
            "ended",
            deleted(after(Phase::Running, Phase::Running).begun().aborted()),
            "report ABORTED.0 of 1; release r-a; await",
        ),
        (
            "begun with a reservation",
            deleted(
                after(Phase::Running, Phase::Running)
                    .begun()
                    .cached(true, |_| {}),
            ),
            "end; await",
        ),
        (
            "ended with a reservation",
            deleted(
                after(Phase::Running, Phase::Running)
                    .begun()
                    .aborted()
                    .cached(true, |_| {}),
            ),
            "give up; await",
        ),
        (
            "ended, and the reservation is given up",
            deleted(
                after(Phase::Running, Phase::Running)
                    .begun()
                    .aborted()
                    .cached(true, |it| it.is_released = true),
            ),
            "report ABORTED.0 of 1; release r-a; await",
        ),
    ]);
}

#[test]
fn a_step_that_needs_the_inputs_waits_for_them() {
    let unread = |seen: Seen<()>| remote(Phase::Queued).with(|it| it.inputs = Some(seen));
    check(vec![
        ("not asked for", unread(Seen::Absent), "read inputs; await"),
        (
            "not to be read",
            unread(Seen::unknown(UnknownCause::Unreachable, "down")),
            "after 1s",
        ),
        (
            "read",
            unread(Seen::Present(())),
            "report QUEUED.0 of 1; persist Queued.0 of 1; after 30s",
        ),
    ]);
}

#[test]
fn the_cache_is_asked_before_anything_is_begun() {
    let us = "flyte/r-a";
    let there = || Seen::Present(bytes::Bytes::from_static(b"o"));
    let new = || remote(Phase::Queued);
    let begin = "report QUEUED.0 of 1; persist Queued.0 of 1; after ";
    check(vec![
        (
            "cached",
            new().cached(false, |it| it.outputs = there()),
            "copy; await",
        ),
        (
            "cached and copied",
            new().cached(false, |it| {
                it.outputs = there();
                it.is_copied = true;
            }),
            "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 2 (nothing started) completed; label; await",
        ),
        (
            "cached, and begun before that was known",
            after(Phase::Running, Phase::Running).cached(false, |it| it.outputs = there()),
            "after 30s",
        ),
        (
            "not cached",
            new().cached(false, |_| {}),
            &format!("{begin}30s"),
        ),
        (
            "not reserved",
            new().cached(true, |_| {}),
            "use catalog_get; reserve for 10s; await",
        ),
        (
            "reserved",
            new().cached(true, |it| it.held = held_by(us, 1)),
            &format!("{begin}9s"),
        ),
        (
            "somebody else's",
            new().cached(true, |it| it.held = held_by("flyte/r-b", 3)),
            "report WAITING_FOR_RESOURCES.0 of 1; \
             persist WaitingForCache.0 of 1 cache 1 (nothing started); after 7s",
        ),
        (
            "begun, and reserved long ago",
            after(Phase::Running, Phase::Running).cached(true, |it| it.held = held_by(us, 11)),
            "reserve for 10s; after 10s",
        ),
    ]);
}

#[test]
fn outputs_are_cached_before_the_end_is_told() {
    let done = || after(Phase::Running, Phase::Success);
    let returned = |it: &mut Step| it.outputs = Some(JobOutputs::Here(bytes::Bytes::new()));
    let populated = Some(CatalogCacheStatus::CachePopulated);
    let kept = "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 3 completed; label; await";
    check(vec![
        (
            "left behind",
            done().cached(false, |_| {}),
            "check outputs; await",
        ),
        (
            "returned",
            done().cached(false, |_| {}).step(returned),
            "write outputs; await",
        ),
        (
            "returned and written",
            done()
                .cached(false, |it| it.exists = Seen::Present(true))
                .step(returned)
                .written(),
            "keep; await",
        ),
        (
            "kept",
            done()
                .cached(false, |it| it.kept = populated)
                .step(returned)
                .written(),
            kept,
        ),
        (
            "kept, and one at a time",
            done().cached(true, |it| it.kept = populated),
            "give up; await",
        ),
        (
            "kept, and given up",
            done().cached(true, |it| {
                it.kept = populated;
                it.is_released = true;
            }),
            kept,
        ),
        (
            "failed, and one at a time",
            failing(user("Error")).cached(true, |_| {}),
            "give up; await",
        ),
        (
            "failed, and given up",
            failing(user("Error")).cached(true, |it| it.is_released = true),
            "report FAILED.0 of 1; \
             persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
        (
            "failed, and to be tried again",
            failing(user("Error"))
                .with(|it| it.world.max_attempts = 2)
                .cached(true, |it| it.held = held_by("flyte/r-a", 4)),
            "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns",
        ),
    ]);
}
