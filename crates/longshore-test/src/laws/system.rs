//! The laws of a whole controller: the same end, whatever goes wrong on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    future::Future,
    ops::Range,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    Law, Violation,
    cases::{self, Case, Kinds},
    judge::{difference, judge, writes},
    recoveries,
};
use crate::{
    faults::{FaultPlan, Faults, Point, Process, is_read},
    logs::CollectedLogs,
};

/// Worlds that run at the same time, each on a thread of its own.
const THREADS: usize = 2;

/// Slots for the worlds of all scenarios of this process: more at the same time only take each other's caches.
static SLOTS: Slots = Slots {
    n_free: Mutex::new(THREADS),
    freed: Condvar::new(),
};

struct Slots {
    n_free: Mutex<usize>,
    freed: Condvar,
}

/// Permission to run one world. Dropping it frees the place for another world.
struct Slot;

impl Slots {
    fn take(&self) -> Slot {
        let n_free = self.n_free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_while(n_free, |n_free| *n_free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Slot
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut n_free = SLOTS.n_free.lock().unwrap_or_else(PoisonError::into_inner);
        *n_free += 1;
        SLOTS.freed.notify_one();
    }
}

/// A world with a controller in it, and what is to come of it.
///
/// Each case runs in a fresh world, on a `current_thread` runtime of its own with paused time.
pub trait Scenario: Sync {
    /// Everything but the controller: cluster, node, the user's objects, databases.
    type World;
    /// The running controller. Dropping it must end its tasks.
    type Subject;

    /// Its name in reports.
    fn name(&self) -> String;

    /// Makes a world with the objects that the user creates in it.
    fn build(&self) -> impl Future<Output = Self::World>;

    /// Starts the controller: at the beginning and after each kill. All of its effects go through `process`.
    fn start(&self, world: &mut Self::World, process: &Process) -> Self::Subject;

    /// What there is at the end, as text; without what may differ between two good runs (uids, versions, times).
    fn digest(&self, world: &Self::World) -> impl Future<Output = String>;

    /// Laws of its own that this world broke: those on histories ("no try ran twice"), which no digest shows.
    fn broken(&self, world: &Self::World) -> impl Future<Output = Vec<Violation>> {
        let _ = world;
        std::future::ready(Vec::new())
    }

    /// Simulated time after which the world is at rest, whatever went wrong.
    fn time(&self) -> Duration {
        Duration::from_secs(300)
    }

    /// Within three times this, nothing is written at rest.
    fn resync(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Simulated time between a kill and the next start.
    fn downtime(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Whether this request may [land late](crate::Fault::LandLate) and lead to the same end all the same. No precondition
    /// keeps a late create from making an object once more after the first one was deleted: a story that deletes what it
    /// has created within half a second says no.
    fn may_land_late(&self, point: &Point) -> bool {
        let _ = point;
        true
    }

    /// Whether the specification lets the subsystem go on without what two such faults keep from it: after the first
    /// fault, a second one does not strike here.
    fn is_given_up(&self, first: &FaultPlan, second: &Point) -> bool {
        let _ = (first, second);
        false
    }

    /// Whether people act at fixed times, so that the end depends on what the controller has seen by then. A second fault
    /// does not make the outage of a watch longer there.
    fn has_appointments(&self) -> bool {
        false
    }

    /// Whether two good runs may differ in how often this happens: a commit that takes in what has come since the last
    /// one, a read on the way to a decision.
    fn is_uncounted(&self, point: &Point) -> bool {
        point.is_read()
    }

    /// The most often that an effect may happen in a world that had these troubles; no bound where it is `None`. What
    /// is not counted exactly needs one: else a loop that ends before the world is at rest would not be seen.
    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        let _ = (what, troubles);
        None
    }

    /// Whether a line of the log with the level WARN or ERROR is right. Warnings of worlds with faults are: they say what
    /// the faults cost.
    fn expects_log(&self, line: &str) -> bool {
        let _ = line;
        false
    }

    /// Whether a write at rest is allowed: a lease, a heartbeat.
    fn is_heartbeat(&self, point: &Point) -> bool {
        let _ = point;
        false
    }
}

/// A task of a test that ends with its owner: what most subjects are.
#[derive(Debug)]
pub struct Owned(tokio::task::JoinHandle<()>);

impl Owned {
    /// Runs this until it is dropped.
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What an effect's number is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Troubles {
    /// How often it happened in the undisturbed world.
    pub n_undisturbed: u32,
    /// How often the process was started.
    pub n_starts: u32,
    /// How many faults it met at its effects.
    pub n_faults: u32,
}

impl Troubles {
    /// Room for timing, and none for a loop.
    pub fn allowance(&self) -> u32 {
        3 * self.n_undisturbed + 10 * (self.n_starts + self.n_faults)
    }

    /// That allowance for every effect but reads, which have no bound.
    pub fn allowance_of_writes(&self, what: &str) -> Option<u32> {
        (!is_read(what)).then(|| self.allowance())
    }
}

/// The result of one world.
#[derive(Clone, Debug)]
pub struct Run {
    /// See [`Scenario::digest`].
    pub digest: String,
    /// Every effect of the controller, in order.
    pub points: Vec<Point>,
    /// The effects that are requests, which can land late.
    pub requests: BTreeSet<String>,
    /// The points right [behind another one](Faults::further_points).
    pub further_points: BTreeSet<Point>,
    /// What the controller did [to recover](Faults::recovery) from the first fault.
    pub recovery: Vec<Point>,
    /// The writes after the world should have been at rest; none where a fault struck then.
    pub late_writes: Vec<Point>,
    /// Laws of the scenario's own that were broken.
    pub broken: Vec<Violation>,
    /// Watch events by plural name.
    pub watch_events: BTreeMap<String, u32>,
    /// The log of what happened, for people.
    pub log: String,
    /// The lines of the log with the level WARN or ERROR.
    pub warnings: Vec<String>,
    /// How often the controller was started, and how many faults it met at its effects.
    pub n_starts_and_faults: (u32, u32),
    /// The controller did so much in no time that it was stopped.
    pub is_runaway: bool,
}

/// The result of all worlds of a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The number of worlds.
    pub n_worlds: usize,
    /// Broken laws.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether this law was broken.
    pub fn breaks(&self, law: Law) -> bool {
        self.violations.iter().any(|violation| violation.law == law)
    }

    /// Passes if no law was broken.
    ///
    /// # Panics
    /// With the first few violations.
    pub fn assert_kept(&self) {
        let mut text = String::new();
        for violation in self.violations.iter().take(3) {
            let _ = writeln!(text, "{violation}\n");
        }
        assert!(
            self.violations.is_empty(),
            "{}: {} laws broken in {} worlds\n{text}",
            self.scenario,
            self.violations.len(),
            self.n_worlds
        );
    }
}

/// How many of a scenario's cases are played.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extent {
    /// The first case of each kind, and a share of the others: as long as nothing else is said.
    Share,
    /// Every case.
    All,
    /// These pairs of faults.
    Seeds(Range<u64>),
}

/// What [`Extent`] to play: `all`, or the seeds of a campaign, as `1..2001`.
const EXTENT: &str = "LONGSHORE_TEST_LAWS";

impl Extent {
    #[expect(
        clippy::disallowed_methods,
        reason = "CI and campaigns tell the tests what to run"
    )]
    fn wanted() -> Self {
        std::env::var(EXTENT).map_or(Self::Share, |text| Self::parse(&text))
    }

    /// # Panics
    /// Where the text is none: else a mistyped one would look like a run that found nothing.
    fn parse(text: &str) -> Self {
        let seeds = || {
            let (start, end) = text.split_once("..")?;
            Some(Self::Seeds(start.parse().ok()?..end.parse().ok()?))
        };
        let extent = (text == "all").then_some(Self::All).or_else(seeds);
        assert!(
            extent.is_some(),
            "{EXTENT}: expected `all` or seeds as `1..2001`, found {text:?}"
        );
        extent.unwrap_or(Self::Share)
    }
}

/// Runs the scenario undisturbed, then once for every fault that can happen to it – of those that are not the first of
/// their kind a fixed share, or all with `LONGSHORE_TEST_LAWS=all` – and for a fixed share of these with a second fault
/// during the recovery. In a campaign, which names seeds, it [checks these](recoveries::check_recoveries).
///
/// # Panics
/// Where a world panics.
pub fn check_scenario<S: Scenario>(scenario: &S) -> Report {
    check_wanted(scenario, Kinds::All)
}

/// Like [`check_scenario`] with `LONGSHORE_TEST_LAWS=all`, whatever that says: for the laws themselves, which a share of the
/// cases would prove less of.
///
/// # Panics
/// Where a world panics.
pub fn check_every_case<S: Scenario>(scenario: &S) -> Report {
    check_until(scenario, Kinds::All, |_, cases| cases, |_| false)
}

/// Like [`check_scenario`], of the faults only those that lose an effect's answer, with the process or alone; of the
/// second faults, too. For stories whose other faults play the same part in the stories of [`check_scenario`].
///
/// # Panics
/// Where a world panics.
pub fn check_crashes<S: Scenario>(scenario: &S) -> Report {
    check_wanted(scenario, Kinds::LostAnswers)
}

/// Plays the scenario with these kinds of faults, as far as the environment says.
fn check_wanted<S: Scenario>(scenario: &S, kinds: Kinds) -> Report {
    match Extent::wanted() {
        Extent::Share => check_until(scenario, kinds, cases::of_test_run, |_| false),
        Extent::All => check_until(scenario, kinds, |_, cases| cases, |_| false),
        Extent::Seeds(seeds) => {
            let report = recoveries::check_pairs(scenario, kinds, seeds);
            recoveries::tell_campaign(&report);
            report
        }
    }
}

/// Plays every case, up to the first violation of `law`.
///
/// # Panics
/// Where a world panics.
pub fn breaks<S: Scenario>(scenario: &S, law: Law) -> bool {
    let is_enough = |violation: &Violation| violation.law == law;
    check_until(scenario, Kinds::All, |_, cases| cases, is_enough).breaks(law)
}

/// Runs the scenario undisturbed, then once for each seed, which draws many faults at once.
///
/// # Panics
/// Where a world panics.
pub fn check_seeds<S: Scenario>(scenario: &S, seeds: Range<u64>) -> Report {
    check_plans(scenario, seeds.map(FaultPlan::seeded))
}

/// Runs the scenario undisturbed, then once under each of these plans, as those that a campaign has found.
///
/// # Panics
/// Where a world panics.
pub fn check_plans<S: Scenario>(
    scenario: &S,
    plans: impl IntoIterator<Item = FaultPlan>,
) -> Report {
    let reference = replay(scenario, FaultPlan::none());
    let case = |plan| Case {
        law: Law::Restartable,
        plan,
    };
    let cases: Vec<Case> = plans.into_iter().map(case).collect();
    let (n_worlds, violations) = run_all(scenario, &cases, &reference, Seconds::None, |_| false);
    Report {
        scenario: scenario.name(),
        n_worlds: n_worlds + 1,
        violations,
    }
}

fn check_until<S: Scenario>(
    scenario: &S,
    kinds: Kinds,
    chosen: impl FnOnce(&S, Vec<Case>) -> Vec<Case>,
    is_enough: impl Fn(&Violation) -> bool + Sync,
) -> Report {
    let reference = replay(scenario, FaultPlan::none());
    let again = replay(scenario, FaultPlan::none());
    let undisturbed = Case {
        law: Law::OwnInvariant,
        plan: FaultPlan::none(),
    };
    let mut violations = judge(scenario, &undisturbed, &reference, &reference);
    if reference.digest != again.digest || writes(scenario, &reference) != writes(scenario, &again)
    {
        violations.push(Violation {
            law: Law::Deterministic,
            case: format!("two undisturbed worlds of {}", scenario.name()),
            detail: difference(&reference, &again),
        });
    }
    let cases = chosen(scenario, cases::cases(scenario, &reference, kinds));
    let mut n_worlds = 2;
    // What is wrong without any fault is wrong with each of them.
    if violations.is_empty() {
        let seconds = Seconds::Share(kinds);
        let (n_more, found) = run_all(scenario, &cases, &reference, seconds, is_enough);
        n_worlds += n_more;
        violations = found;
    }
    Report {
        scenario: scenario.name(),
        n_worlds,
        violations,
    }
}

/// One world under this plan.
///
/// # Panics
/// Where the world panics.
#[expect(clippy::expect_used, reason = "a test without a runtime cannot go on")]
pub fn replay<S: Scenario>(scenario: &S, plan: FaultPlan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let logs = CollectedLogs::start();
    let mut run = runtime.block_on(run(scenario, Faults::new(plan)));
    run.warnings = logs.lines();
    run
}

async fn run<S: Scenario>(scenario: &S, faults: Faults) -> Run {
    let mut world = scenario.build().await;
    let mut n_points = 0;
    let time = async {
        tokio::time::sleep(scenario.time()).await;
        n_points = faults.points().len();
        tokio::time::sleep(scenario.resync() * 3).await;
    };
    let (subject, ()) = play_until(scenario, &mut world, &faults, time).await;
    let points = faults.points();
    let at_rest = points.get(n_points..).unwrap_or_default();
    // A process that a fault meets at rest recovers then.
    let recovers = at_rest.iter().any(|point| faults.strikes_at(point));
    let late = at_rest.iter().filter(|point| {
        let is_write = !point.is_read() && !scenario.is_heartbeat(point);
        is_write && !recovers
    });
    let run = Run {
        digest: scenario.digest(&world).await,
        late_writes: late.cloned().collect(),
        broken: scenario.broken(&world).await,
        watch_events: faults.watch_events(),
        log: faults.log(),
        requests: faults.requests(),
        further_points: faults.further_points(),
        recovery: faults.recovery(),
        warnings: Vec::new(),
        is_runaway: faults.is_runaway(),
        n_starts_and_faults: faults.n_starts_and_faults(),
        points,
    };
    drop(subject);
    run
}

/// Plays the scenario in this world, in whatever time its runtime has, until `end` is there: starts the controller, and
/// again after each kill. Returns it, still running, and what `end` gave.
pub async fn play_until<S: Scenario, T>(
    scenario: &S,
    world: &mut S::World,
    faults: &Faults,
    end: impl Future<Output = T>,
) -> (S::Subject, T) {
    let mut subject = scenario.start(world, &faults.start());
    let mut end = std::pin::pin!(end);
    loop {
        tokio::select! {
            ended = &mut end => return (subject, ended),
            () = faults.killed() => {
                drop(subject);
                tokio::time::sleep(scenario.downtime()).await;
                subject = scenario.start(world, &faults.start());
            }
        }
    }
}

/// Which cases get a second fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seconds {
    /// None of them.
    None,
    /// The share of every test run, with second faults of these kinds.
    Share(Kinds),
}

/// Runs a world for each case. Returns how many worlds there were, and which laws they broke.
fn run_all<S: Scenario>(
    scenario: &S,
    cases: &[Case],
    reference: &Run,
    seconds: Seconds,
    is_enough: impl Fn(&Violation) -> bool + Sync,
) -> (usize, Vec<Violation>) {
    let n_worlds = AtomicUsize::new(0);
    let violations = Mutex::new(Vec::new());
    let play = |case: &Case| {
        n_worlds.fetch_add(1, Ordering::Relaxed);
        let run = replay(scenario, case.plan.clone());
        let found = judge(scenario, case, &run, reference);
        (run, found)
    };
    in_parallel(cases.len(), |n| {
        let Some(case) = cases.get(n) else {
            return false;
        };
        let (run, mut found) = play(case);
        // What is wrong with one fault is wrong with two.
        if let Seconds::Share(kinds) = seconds
            && found.is_empty()
            && let Some(second) = recoveries::of_test_run(scenario, n, case, &run, kinds)
        {
            found = play(&second).1;
        }
        let is_enough = found.iter().any(&is_enough);
        let mut all = violations.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(found);
        is_enough
    });
    let violations = violations
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    (n_worlds.into_inner(), violations)
}

/// Works on each number below `n`, on all threads, until the work on one of them says that it is enough.
pub(super) fn in_parallel(n: usize, work: impl Fn(usize) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                loop {
                    let this = next.fetch_add(1, Ordering::Relaxed);
                    if this >= n {
                        break;
                    }
                    let _slot = SLOTS.take();
                    if work(this) {
                        next.store(n, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_all_or_seeds() {
        assert_eq!(Extent::parse("all"), Extent::All);
        assert_eq!(Extent::parse("1..2001"), Extent::Seeds(1..2001));
        for text in ["", "every", "1", "1..", "1..x"] {
            assert!(
                std::panic::catch_unwind(|| Extent::parse(text)).is_err(),
                "{text:?}"
            );
        }
    }
}
