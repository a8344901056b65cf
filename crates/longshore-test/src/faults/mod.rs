//! The fault layer: between the process under test and everything that it has effects on.
//!
//! A [`Faults`] carries a [`FaultPlan`] through one run and notes what happened. Each start of the process under test
//! is a [`Process`]: its requests go through [`Process::layer`] or [`Process::request`], its other effects (commits,
//! uploads) through [`Process::effect`]. A killed process hangs from then on, in every effect, until the harness drops its tasks and
//! starts the next one.
//!
//! A decorator of a trait of the caller's own is a line per method:
//!
//! ```
//! # use longshore_test::{Process, held};
//! # struct Store; impl Store { async fn commit(&self) -> Result<(), String> { Ok(()) } }
//! struct FaultyStore {
//!     inner: Store,
//!     process: Process,
//! }
//!
//! impl FaultyStore {
//!     async fn commit(&self) -> Result<(), String> {
//!         let committed = self.process.effect("commit", held(self.inner.commit())).await;
//!         committed.map_err(|injected| injected.to_string())?
//!     }
//! }
//! ```

mod admission;
mod layer;
mod plan;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    future::{Future, pending},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch as channel, time::Instant};

pub use admission::{Admission, Admitting, DENIED, Rule};
pub use layer::{FaultBody, FaultLayer, FaultService};
pub(crate) use plan::is_read;
pub use plan::{Fault, FaultPlan, Lot, Point, Refusal, WatchFault, faults_for};

/// A run with more effects and watch events than this is stopped: it would never end, because a loop without waiting
/// keeps paused time from moving on.
const RUNAWAY: usize = 20_000;
/// So long after a fault the process is taken to recover from it.
const RECOVERY: Duration = Duration::from_secs(20);
/// Log lines kept for failure messages.
const LOG_LINES: usize = 400;

/// One run's faults, shared by every start of the process under test.
#[derive(Clone, Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    plan: FaultPlan,
    /// How many effects and watch events there may be.
    bound: usize,
    state: Mutex<State>,
    /// How many starts of the process are dead.
    n_dead: channel::Sender<u32>,
}

#[derive(Debug, Default)]
struct State {
    n_started: u32,
    n_injected: u32,
    counts: BTreeMap<String, u32>,
    points: Vec<Point>,
    /// When each point was reached.
    reached_at: Vec<Instant>,
    /// How many points had been reached when the first fault struck, and when that was.
    struck: Option<(usize, Instant)>,
    n_drawn: u32,
    /// Until when the watches of a resource get no answer.
    outages: BTreeMap<String, Instant>,
    watch_events: BTreeMap<String, u32>,
    /// The last event delivered, by plural name.
    last_events: BTreeMap<String, bytes::Bytes>,
    /// The effects that are requests.
    requests: BTreeSet<String>,
    log: Vec<String>,
}

impl State {
    fn strike(&mut self) {
        let now = (self.points.len(), Instant::now());
        self.struck.get_or_insert(now);
    }
}

/// What a process gets instead of the result of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Injected {
    /// The effect did not happen.
    #[error("{0}")]
    Refused(Refusal),
    /// The effect happened, but its result is lost.
    #[error("injected loss of the answer")]
    Lost,
}

impl Faults {
    /// A run with this plan.
    pub fn new(plan: FaultPlan) -> Self {
        Self::bounded(plan, RUNAWAY)
    }

    /// The same in real time, where a loop lets time pass and may be as long as it takes.
    pub fn unbounded(plan: FaultPlan) -> Self {
        Self::bounded(plan, usize::MAX)
    }

    fn bounded(plan: FaultPlan, bound: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                plan,
                bound,
                state: Mutex::default(),
                n_dead: channel::Sender::new(0),
            }),
        }
    }

    /// A run in which nothing goes wrong.
    pub fn none() -> Self {
        Self::new(FaultPlan::none())
    }

    /// The next start of the process under test. Whatever was started before hangs from now on.
    pub fn start(&self) -> Process {
        let mut state = self.state();
        let number = state.n_started;
        state.n_started += 1;
        drop(state);
        self.shared.n_dead.send_replace(number);
        Process {
            faults: self.clone(),
            number,
        }
    }

    /// Resolves once the process started last was killed.
    pub async fn killed(&self) {
        let mut n_dead = self.shared.n_dead.subscribe();
        let n_started = self.state().n_started;
        let _ = n_dead.wait_for(|n_dead| *n_dead >= n_started).await;
    }

    /// Every point that was reached, in order.
    pub fn points(&self) -> Vec<Point> {
        self.state().points.clone()
    }

    /// The points right behind another one, in the same instant.
    pub fn further_points(&self) -> BTreeSet<Point> {
        let state = self.state();
        let reached: Vec<_> = state.points.iter().zip(&state.reached_at).collect();
        let pairs = reached.windows(2).filter_map(|pair| {
            let [(_, was), (point, is)] = pair else {
                return None;
            };
            (was == is).then(|| (*point).clone())
        });
        pairs.collect()
    }

    /// Whether the plan has a fault at this point.
    pub fn strikes_at(&self, point: &Point) -> bool {
        self.shared.plan.at.iter().any(|(at, _)| at == point)
    }

    /// The points that were reached within 20 s after the first fault: all of them where none struck at a point or an
    /// event, as with watches that are late all the time.
    pub fn recovery(&self) -> Vec<Point> {
        let state = self.state();
        let Some((n_before, struck_at)) = state.struck else {
            return state.points.clone();
        };
        let points = state.points.iter().zip(&state.reached_at).skip(n_before);
        points
            .take_while(|(_, at)| **at <= struck_at + RECOVERY)
            .map(|(point, _)| point.clone())
            .collect()
    }

    /// How often the process was started, and how many faults it met.
    pub fn n_starts_and_faults(&self) -> (u32, u32) {
        let state = self.state();
        (state.n_started, state.n_injected)
    }

    /// How often this effect happened or was tried.
    pub fn count(&self, what: &str) -> u32 {
        self.state().counts.get(what).copied().unwrap_or(0)
    }

    /// How many watch events were delivered, by plural name.
    pub fn watch_events(&self) -> BTreeMap<String, u32> {
        self.state().watch_events.clone()
    }

    /// The effects that [can land late](Fault::LandLate).
    pub fn requests(&self) -> BTreeSet<String> {
        self.state().requests.clone()
    }

    /// Whether the run was stopped because it would never have ended.
    pub fn is_runaway(&self) -> bool {
        self.state().log.len() >= self.shared.bound
    }

    /// The last few hundred points and what happened there, one a line.
    pub fn log(&self) -> String {
        let state = self.state();
        let skipped = state.log.len().saturating_sub(LOG_LINES);
        let mut text = String::new();
        for line in state.log.iter().skip(skipped) {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    fn note(&self, line: String) {
        self.state().log.push(line);
    }

    /// A fault strikes beside the points: it ends or breaks a watch.
    fn strike(&self) {
        self.state().strike();
    }

    /// Counts an occurrence and answers what goes wrong there.
    fn reach(&self, what: &str) -> (Point, Option<Fault>) {
        let mut state = self.state();
        let n = state.counts.entry(what.to_owned()).or_insert(0);
        *n += 1;
        let point = Point::new(what, *n);
        state.points.push(point.clone());
        state.reached_at.push(Instant::now());
        let fault = self.shared.plan.fault_at(&point, &mut state.n_drawn);
        if fault.is_some() {
            state.n_injected += 1;
            state.strike();
        }
        state.log.push(match fault {
            Some(fault) => format!("{point}: {fault:?}"),
            None => point.to_string(),
        });
        (point, fault)
    }

    fn kill(&self) {
        let n_started = self.state().n_started;
        self.shared.n_dead.send_replace(n_started);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

/// One start of the process under test.
#[derive(Clone, Debug)]
pub struct Process {
    faults: Faults,
    number: u32,
}

impl Process {
    /// The layer for this start's API client.
    pub fn layer(&self) -> FaultLayer {
        FaultLayer::new(self.clone())
    }

    /// An API client of this start: `service` behind the layer.
    pub fn client<S, B>(&self, service: S) -> kube::Client
    where
        S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>>
            + Clone
            + Send
            + 'static,
        S::Error: Into<tower::BoxError>,
        S::Future: Send + 'static,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        kube::Client::new(tower::Layer::layer(&self.layer(), service), "default")
    }

    /// Whether this start was killed, or another one came after it.
    pub fn is_dead(&self) -> bool {
        *self.faults.shared.n_dead.borrow() > self.number
    }

    /// Hangs if this start is dead.
    pub async fn live(&self) {
        if self.is_dead() || self.faults.is_runaway() {
            pending::<()>().await;
        }
    }

    /// Does one effect under the plan.
    ///
    /// # Errors
    /// The injected ones; the caller turns them into the error that its own trait speaks.
    pub async fn effect<T>(
        &self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Injected> {
        let pass = self.before(what).await?;
        let result = work.await;
        pass.after().await?;
        Ok(result)
    }

    /// Sends a request under the plan. Unlike other effects, it can land after the process gave it up.
    ///
    /// # Errors
    /// The injected ones; the caller turns them into the error that its own trait speaks.
    pub async fn request<T>(
        &self,
        what: &str,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Injected>
    where
        T: Send + 'static,
    {
        self.faults.state().requests.insert(what.to_owned());
        let pass = self.before(what).await?;
        if let Some(Fault::LandLate(time)) = pass.fault {
            let (faults, point) = (self.faults.clone(), pass.point.clone());
            // It is on its way: it belongs to the world, and not to the process.
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                faults.note(format!("{point} lands"));
                drop(request.await);
            });
            return Err(Injected::Lost);
        }
        let answer = request.await;
        pass.after().await?;
        Ok(answer)
    }

    /// The first half of [`effect`](Self::effect), for work that is no future.
    pub async fn before(&self, what: &str) -> Result<Pass, Injected> {
        self.live().await;
        let (point, fault) = self.faults.reach(what);
        match fault {
            Some(Fault::KillBefore) => self.faults.kill(),
            Some(Fault::Refuse(refusal)) => return Err(Injected::Refused(refusal)),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::KillAfter | Fault::LoseAnswer | Fault::LandLate(_)) | None => {}
        }
        self.live().await;
        Ok(Pass {
            process: self.clone(),
            point,
            fault,
        })
    }
}

/// Between the two halves of an effect.
#[derive(Debug)]
#[must_use]
pub struct Pass {
    process: Process,
    point: Point,
    fault: Option<Fault>,
}

impl Pass {
    /// Which occurrence this is.
    pub fn point(&self) -> &Point {
        &self.point
    }

    /// The effect has happened.
    pub async fn after(self) -> Result<(), Injected> {
        if self.fault == Some(Fault::KillAfter) {
            self.process.faults.kill();
        }
        self.process.live().await;
        match self.fault {
            Some(Fault::LoseAnswer | Fault::LandLate(_)) => Err(Injected::Lost),
            Some(Fault::KillBefore | Fault::KillAfter | Fault::Refuse(_) | Fault::Delay(_))
            | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_points_of_an_instant_but_the_first_one_are_further_ones() {
        let faults = Faults::new(FaultPlan::none());
        let process = faults.start();
        for what in ["list pods", "create pods", "", "get pods", "commit"] {
            match what {
                "" => tokio::time::sleep(Duration::from_secs(1)).await,
                what => process.effect(what, async {}).await.unwrap(),
            }
        }
        let further = [Point::new("create pods", 1), Point::new("commit", 1)];
        assert_eq!(faults.further_points(), BTreeSet::from(further));
    }
}
