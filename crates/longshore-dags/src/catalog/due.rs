//! Which runs the schedules make in a round. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use longshore_core::Next;
use longshore_store::{RunKey, RunType};
use serde_json::json;

use super::{Catalog, Entry, next_run, restriction, stored_interval, stored_run};
use crate::{
    model::Dag,
    scheduler::{
        board::Board,
        facts::{Fact, NewRun},
    },
    timetable::{
        self,
        schedules::{self, ScheduledDag},
    },
};

/// The longest wait for a schedule. Timers do not notice that the wall clock was set, or that the machine slept.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// Whether each run that a schedule wants exists in the database, read before the round is decided.
pub(crate) type ExistingRuns = BTreeMap<RunKey, bool>;

/// What the schedules do in a round.
#[derive(Debug)]
pub(crate) struct Due {
    /// The DAGs whose schedules go on.
    pub(crate) entries: Vec<Entry>,
    /// The runs to create in the same transaction.
    pub(crate) runs: Vec<NewRun>,
    /// DAGs that are due, and have as many runs as they may.
    pub(crate) held: BTreeSet<String>,
    /// When to look again.
    pub(crate) next: Next,
}

/// The runs that are due now: what must be looked up in the database before [`decide`].
pub(crate) fn candidates(
    catalog: &Catalog,
    board: &Board,
    now: Timestamp,
) -> Vec<(RunKey, Timestamp)> {
    let dags = scheduled(catalog, board, now);
    let due = schedules::due(&dags, now).into_iter();
    due.map(|(dag, new)| (key(&dag.dag_id, &new), new.run.logical_date))
        .collect()
}

/// One round of the schedules. A run that is not in `existing_runs` is left to the next round.
pub(crate) fn decide(
    catalog: &Catalog,
    board: &Board,
    facts: &[Fact],
    existing_runs: &ExistingRuns,
    now: Timestamp,
) -> Due {
    let dags = scheduled(catalog, board, now);
    let exists = |dag_id: &str, new: &schedules::NewRun| {
        let found = *existing_runs.get(&key(dag_id, new))?;
        Some(found || facts.iter().any(|fact| is_about(fact, dag_id, new)))
    };
    let mut due = Due {
        entries: Vec::new(),
        runs: Vec::new(),
        held: held(&dags),
        next: wait(catalog, now),
    };
    for step in schedules::decide(&dags, &exists, now) {
        let Some((entry, dag)) = active(catalog, &step.dag_id) else {
            continue;
        };
        let mut entry = entry.clone();
        entry.row.next_run = step.next.map(stored_run);
        entry.row.last_interval = Some(stored_interval(step.last));
        let new = step.create.map(|new| run_of(&entry, dag, new));
        due.runs.extend(new);
        due.entries.push(entry);
        due.next = Next::After(Duration::ZERO);
    }
    due
}

/// A DAG whose schedule makes runs, with its document.
fn active<'a>(catalog: &'a Catalog, dag_id: &str) -> Option<(&'a Entry, &'a Arc<Dag>)> {
    let entry = catalog.entry(dag_id)?;
    let is_active = is_followed(catalog) && is_active(entry);
    Some((entry, entry.dag.as_ref().filter(|_| is_active)?))
}

/// Without a folder, or before its rows are as the folder says, nothing is known of what is to run.
fn is_followed(catalog: &Catalog) -> bool {
    catalog.files.is_some() && catalog.is_settled()
}

/// A DAG whose file is gone or broken makes no runs.
pub(super) fn is_active(entry: &Entry) -> bool {
    let row = &entry.row;
    !row.is_paused && row.file.is_some() && row.error.is_none()
}

/// The DAGs that are due.
fn scheduled(catalog: &Catalog, board: &Board, now: Timestamp) -> Vec<ScheduledDag> {
    let is_due = |entry: &&Entry| {
        let next = entry.row.next_run;
        next.is_some_and(|next| next.run_after <= now)
    };
    let due = catalog.entries.values().filter(is_due);
    let scheduled = due.filter_map(|entry| {
        let row = &entry.row;
        let (_, dag) = active(catalog, &row.dag_id)?;
        Some(ScheduledDag {
            dag_id: row.dag_id.clone(),
            is_paused: row.is_paused,
            next: row.next_run.map(next_run),
            n_active_runs: n_active_runs(board, &row.dag_id),
            max_active_runs: dag.max_active_runs,
            timetable: dag.timetable.clone(),
            restriction: restriction(dag),
        })
    });
    scheduled.collect()
}

fn n_active_runs(board: &Board, dag_id: &str) -> u32 {
    let of_dag = board.runs_of(dag_id);
    let counted = of_dag.filter(|active| active.run.run_type != RunType::Backfill);
    u32::try_from(counted.count()).unwrap_or(u32::MAX)
}

fn held(dags: &[ScheduledDag]) -> BTreeSet<String> {
    let held = dags.iter().filter(|dag| !dag.has_room());
    held.map(|dag| dag.dag_id.clone()).collect()
}

/// How long nothing is due that is not due yet.
fn wait(catalog: &Catalog, now: Timestamp) -> Next {
    if !is_followed(catalog) {
        return Next::AwaitChange;
    }
    let active = catalog.entries.values().filter(|entry| is_active(entry));
    let times = active.filter_map(|entry| Some(entry.row.next_run?.run_after));
    let first = times.filter(|run_after| *run_after > now).min();
    first.map_or(Next::AwaitChange, |first| {
        let left = Duration::try_from(first.duration_since(now)).unwrap_or_default();
        Next::After(left.min(CLOCK_CHECK))
    })
}

/// Whether the fact requests this run, or one with the same logical date.
fn is_about(fact: &Fact, dag_id: &str, new: &schedules::NewRun) -> bool {
    let Fact::RunRequested(requested) = fact else {
        return false;
    };
    requested.dag.dag_id == dag_id
        && (requested.run_id == new.run_id || requested.logical_date == Some(new.run.logical_date))
}

fn key(dag_id: &str, new: &schedules::NewRun) -> RunKey {
    RunKey {
        dag_id: dag_id.to_owned(),
        run_id: new.run_id.clone(),
    }
}

fn run_of(entry: &Entry, dag: &Arc<Dag>, new: schedules::NewRun) -> NewRun {
    let timetable::NextRun {
        logical_date,
        data_interval,
        run_after,
    } = new.run;
    NewRun {
        dag: Arc::clone(dag),
        dag_hash: entry.row.document_hash.clone(),
        details: entry.run_details(run_after, data_interval),
        document: None,
        run_id: new.run_id,
        run_type: RunType::Scheduled,
        logical_date: Some(logical_date),
        conf: json!({}),
    }
}
