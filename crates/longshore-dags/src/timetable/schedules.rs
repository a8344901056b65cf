//! Which scheduled runs to create now, and what comes next for each DAG.
//!
//! A step creates at most one run of a DAG and advances the DAG's row past it, in one transaction. Where the run exists
//! already, the row only advances.

use jiff::Timestamp;

use super::{DataInterval, NextRun, Restriction, Timetable, scheduled_run_id};

/// Runs created in one round, Airflow's `max_dagruns_to_create_per_loop`.
pub const MAX_PER_ROUND: usize = 10;

/// What is known of a DAG that may be due.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledDag {
    /// Airflow's `dag_id`.
    pub dag_id: String,
    /// Nothing is created while it is paused.
    pub is_paused: bool,
    /// What its row says comes next; `None` is nothing.
    pub next: Option<NextRun>,
    /// Runs queued or running, backfills not counted.
    pub n_active_runs: u32,
    /// How many of them there may be.
    pub max_active_runs: u32,
    /// When it runs.
    pub timetable: Timetable,
    /// Within which bounds.
    pub restriction: Restriction,
}

/// A run to create in state `queued`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// `scheduled__<run_after>`.
    pub run_id: String,
    /// When, and over what.
    pub run: NextRun,
}

/// What to do for one DAG, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The DAG.
    pub dag_id: String,
    /// The run to create; `None` where it exists.
    pub create: Option<NewRun>,
    /// What that run is about, created or not: where the schedule goes on from.
    pub last: DataInterval,
    /// What the DAG's row says from then on.
    pub next: Option<NextRun>,
}

/// Whether a run of a DAG exists, by id or by logical date (any kind of run counts: neither may occur twice). `None`:
/// not looked up.
pub type Exists<'a> = dyn Fn(&str, &NewRun) -> Option<bool> + 'a;

/// The DAGs of one round with the runs that are due: longest due first, at most [`MAX_PER_ROUND`] of them.
///
/// A DAG that catches up has one in each round, so that it does not keep others from theirs.
pub fn due(dags: &[ScheduledDag], now: Timestamp) -> Vec<(&ScheduledDag, NewRun)> {
    let mut due: Vec<(&ScheduledDag, NextRun)> = dags
        .iter()
        .filter(|dag| !dag.is_paused && dag.has_room())
        .filter_map(|dag| Some((dag, dag.due(now)?)))
        .collect();
    due.sort_by(|(a, run_a), (b, run_b)| {
        (run_a.run_after, &a.dag_id).cmp(&(run_b.run_after, &b.dag_id))
    });
    due.truncate(MAX_PER_ROUND);
    let new = due.into_iter().map(|(dag, run)| {
        let run_id = scheduled_run_id(run.run_after);
        (dag, NewRun { run_id, run })
    });
    new.collect()
}

/// The steps of one round, for what is [`due`]. A run that was not looked up is left to another round.
pub fn decide(dags: &[ScheduledDag], exists: &Exists<'_>, now: Timestamp) -> Vec<Step> {
    let steps = due(dags, now).into_iter().filter_map(|(dag, new)| {
        let last = new.run.data_interval;
        let is_new = !exists(&dag.dag_id, &new)?;
        Some(Step {
            dag_id: dag.dag_id.clone(),
            next: dag.next_after(Some(&last), now),
            create: is_new.then_some(new),
            last,
        })
    });
    steps.collect()
}

impl ScheduledDag {
    /// What the DAG's row says after the run over `last`, its latest scheduled one.
    pub fn next_after(&self, last: Option<&DataInterval>, now: Timestamp) -> Option<NextRun> {
        self.timetable.next_run(last, &self.restriction, now)
    }

    /// Whether there may be another run.
    pub fn has_room(&self) -> bool {
        let limit = self.timetable.max_active_runs();
        let limit = limit.map_or(self.max_active_runs, |limit| {
            limit.min(self.max_active_runs)
        });
        self.n_active_runs < limit
    }

    /// The run that is due. What was missed meanwhile, by a pause or because nothing ran, is left out without catchup:
    /// then it is the latest one.
    fn due(&self, now: Timestamp) -> Option<NextRun> {
        let is_due = |run: &NextRun| run.run_after <= now;
        let next = self.next.filter(is_due)?;
        if self.restriction.catchup || !self.timetable.has_fixed_times() {
            return Some(next);
        }
        let later = self.next_after(Some(&next.data_interval), now);
        Some(later.filter(is_due).unwrap_or(next))
    }
}

#[cfg(test)]
mod tests;
