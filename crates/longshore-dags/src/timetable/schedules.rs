//! Which scheduled runs to create now, and what comes next for each DAG.
//!
//! A step creates at most one run of a DAG and advances the DAG's row past it. Whoever applies it may fail between the
//! two, or repeat it: a run that exists is not created again, the row only advances.

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
    /// What its row says from then on.
    pub next: Option<NextRun>,
}

/// Whether a run of a DAG exists, by id or by logical date (any kind of run counts: neither may occur twice).
pub type Exists<'a> = dyn Fn(&str, &NewRun) -> bool + 'a;

/// The steps of one round: the DAGs that are due, longest due first, at most [`MAX_PER_ROUND`] of them.
///
/// A DAG that catches up has one step in each round, so that it does not keep others from theirs.
pub fn decide(dags: &[ScheduledDag], exists: &Exists<'_>, now: Timestamp) -> Vec<Step> {
    let mut due: Vec<(&ScheduledDag, NextRun)> = dags
        .iter()
        .filter(|dag| !dag.is_paused && dag.n_active_runs < dag.max_active_runs())
        .filter_map(|dag| Some((dag, dag.next?)))
        .filter(|(_, next)| next.run_after <= now)
        .collect();
    due.sort_by(|(a, next_a), (b, next_b)| {
        (next_a.run_after, &a.dag_id).cmp(&(next_b.run_after, &b.dag_id))
    });
    due.truncate(MAX_PER_ROUND);
    let steps = due.into_iter().map(|(dag, run)| {
        let new = NewRun {
            run_id: scheduled_run_id(run.run_after),
            run,
        };
        Step {
            dag_id: dag.dag_id.clone(),
            next: dag.next_after(Some(&run.data_interval), now),
            create: (!exists(&dag.dag_id, &new)).then_some(new),
        }
    });
    steps.collect()
}

impl ScheduledDag {
    /// What the DAG's row says after the run over `last`, its latest scheduled one: at a step, and whenever the DAG's
    /// file has changed.
    pub fn next_after(&self, last: Option<&DataInterval>, now: Timestamp) -> Option<NextRun> {
        self.timetable.next_run(last, &self.restriction, now)
    }

    fn max_active_runs(&self) -> u32 {
        let limit = self.timetable.max_active_runs();
        limit.map_or(self.max_active_runs, |limit| {
            limit.min(self.max_active_runs)
        })
    }
}

#[cfg(test)]
mod tests;
