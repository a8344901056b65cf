//! What queued runs wait for. Pure.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use longshore_store::{RunKey, RunState};

use super::{
    board::Board,
    run_state::{is_interrupted, until_logical_date},
};

/// What a queued run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunWait {
    /// The instant that it is about.
    LogicalDate(Timestamp),
    /// The end of one of the runs of its DAG, of which so many may be under way.
    ActiveRuns(u32),
}

impl RunWait {
    /// When the run begins, at the earliest; `None` where no clock says so.
    pub fn not_before(self) -> Option<Timestamp> {
        match self {
            Self::LogicalDate(date) => Some(date),
            Self::ActiveRuns(_) => None,
        }
    }
}

impl fmt::Display for RunWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogicalDate(date) => write!(f, "it begins at its logical date, {date}"),
            Self::ActiveRuns(most) => write!(
                f,
                "runs of its DAG are under way, and `max_active_runs` allows {most}"
            ),
        }
    }
}

/// The queued runs of a board, and what they wait for.
#[derive(Debug)]
pub struct RunWaits {
    board: Board,
    n_running: BTreeMap<String, u32>,
}

impl RunWaits {
    /// Of the runs of this board.
    pub fn of(board: Board) -> Self {
        let mut n_running: BTreeMap<String, u32> = BTreeMap::new();
        for active in board.runs.values() {
            if active.run.state == RunState::Running {
                *n_running.entry(active.run.key.dag_id.clone()).or_default() += 1;
            }
        }
        Self { board, n_running }
    }

    /// What a run waits for; `None` where it is not queued, was interrupted, or begins in the next round.
    pub fn of_run(&self, key: &RunKey, now: Timestamp) -> Option<RunWait> {
        let active = self.board.runs.get(key)?;
        let run = &active.run;
        if run.state != RunState::Queued || is_interrupted(run) {
            return None;
        }
        if until_logical_date(run, now).is_some() {
            return run.logical_date.map(RunWait::LogicalDate);
        }
        let most = active.dag.max_active_runs;
        let n_running = self.n_running.get(&key.dag_id).copied().unwrap_or(0);
        (n_running >= most).then_some(RunWait::ActiveRuns(most))
    }
}
