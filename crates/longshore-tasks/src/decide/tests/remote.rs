//! Tasks that make no resource.

use longshore_core::UnknownCause;
use longshore_plugins::{
    Config, PhaseInfo, RemotePlugin, Request, Round as PluginRound, StateError, Step, StoredState,
    TaskContext,
};
use longshore_proto::flyteidl2::core::{LiteralMap, TaskTemplate};

use super::{cached::uncached, *};
use crate::{
    catalog::{Cached, CatalogCacheStatus, Held, decide::Claim},
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
    step: Result<Step, StateError>,
    outcome: Seen<Outcome>,
    abort: Option<Call>,
    cached: Seen<Cached>,
}

/// A task of which nothing was begun, and what its plugin says.
fn remote(phase: Phase) -> Remote {
    let mut step = Step::quiet(PhaseInfo::of(phase, ""), vec![1]);
    step.again = (!phase.is_terminal()).then_some(Duration::from_secs(30));
    Remote {
        world: action(),
        step: Ok(step),
        outcome: Seen::Present(Outcome::Complete),
        abort: None,
        cached: Seen::Absent,
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
        self.with(|it| it.abort = Some(call()))
    }

    fn cached(self, is_serializable: bool, change: impl FnOnce(&mut Cached)) -> Self {
        let mut cached = uncached(is_serializable);
        change(&mut cached);
        self.with(|it| it.cached = Seen::Present(cached))
    }

    fn words(&self) -> String {
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
            step: self.step.clone(),
            outcome: self.outcome.clone(),
            abort: self.abort.clone(),
            cached: self.cached.clone(),
        }));
        let observed = Observed {
            now: EPOCH,
            action: Seen::Present(action),
        };
        words(&decide(&Policy::default(), &self.world.config, &observed))
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
            after(Phase::Queued, Phase::Queued).with(|it| {
                it.world.action.children.current =
                    Seen::unknown(UnknownCause::Unreachable, "no answer");
            }),
            "after 1s",
        ),
        (
            "nothing new",
            after(Phase::Running, Phase::Running),
            "after 30s",
        ),
        (
            "progress, after which system failures are forgotten",
            after(Phase::Queued, Phase::Running).system_failures(2),
            "report RUNNING.0 of 1; persist Running.0 of 1; after 30s",
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
    let returned = |it: &mut Step| it.outputs = Some(LiteralMap::default());
    check(vec![
        ("left behind", done(), DONE),
        (
            "returned",
            done().step(returned),
            "write outputs; report SUCCEEDED.0 of 1; persist Success.0 of 1 completed; label; await",
        ),
        (
            "not to be seen",
            done().with(|it| it.outcome = Seen::unknown(UnknownCause::Unreachable, "down")),
            "after 1s",
        ),
        (
            "not there",
            done().with(|it| it.outcome = Seen::Present(Outcome::Incomplete("none".to_owned()))),
            "persist Running.0 of 1 +1; warn FailedPluginHandle; after 10s",
        ),
        (
            "not there for the fourth time",
            done()
                .system_failures(3)
                .with(|it| it.outcome = Seen::Present(Outcome::Incomplete("none".to_owned()))),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 +4 failed PermanentFailure: \
             plugin \"given\" failed with system error 4 times: none; label; await",
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
            "the last attempt",
            failing(user("Error")),
            "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: it broke; label; await",
        ),
        (
            "the system's, with nothing to be ended",
            lost(),
            "persist Running.0 of 1 +1 (nothing started); warn FailedPluginHandle; after 10s",
        ),
        (
            "the system's",
            lost().begun(),
            "end; persist Running.0 of 1 +1 (nothing started); warn FailedPluginHandle; after 10s",
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
            "end; report ABORTED.0 of 1; release r-a; await",
        ),
        (
            "begun with a reservation",
            deleted(
                after(Phase::Running, Phase::Running)
                    .begun()
                    .cached(true, |_| {}),
            ),
            "end; give up; report ABORTED.0 of 1; release r-a; await",
        ),
    ]);
}

fn held_by(owner: &str, ago: i64) -> Option<Held> {
    let claim = Claim::HeldBy {
        owner: owner.to_owned(),
        heartbeat: Duration::from_secs(10),
    };
    let at = EPOCH - jiff::SignedDuration::from_secs(ago);
    Some(Held { at, claim })
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
            "copy; report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 2 (nothing started) completed; label; await",
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
            "reserve for 10s; after 0ns",
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
    let returned = |it: &mut Step| it.outputs = Some(LiteralMap::default());
    let populated = Some(CatalogCacheStatus::CachePopulated);
    let kept = "report SUCCEEDED.0 of 1; persist Success.0 of 1 cache 3 completed; label; await";
    check(vec![
        (
            "left behind",
            done().cached(false, |_| {}),
            "keep; after 0ns",
        ),
        (
            "returned",
            done().cached(false, |_| {}).step(returned),
            "write outputs; keep; after 0ns",
        ),
        (
            "kept",
            done()
                .cached(false, |it| it.kept = populated)
                .step(returned),
            kept,
        ),
        (
            "kept, and one at a time",
            done().cached(true, |it| it.kept = populated),
            &format!("give up; {kept}"),
        ),
        (
            "failed, and one at a time",
            failing(user("Error")).cached(true, |_| {}),
            "give up; report FAILED.0 of 1; \
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
