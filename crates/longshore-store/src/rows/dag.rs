//! Table `dag`.

use crate::changes::StoreError;
use crate::engine::{Cell, Row};
use crate::model::{Dag, NextRun};
use crate::rows::{Unreadable, instant, read_instant, read_opt_instant};

/// The cells of the next run: `next_run_after`, `next_logical_date`, `next_interval_start`, `next_interval_end`.
pub(crate) fn next_run_cells(next: Option<NextRun>) -> [Cell; 4] {
    let interval = next.and_then(|next| next.data_interval);
    [
        instant(next.map(|next| next.run_after)),
        instant(next.and_then(|next| next.logical_date)),
        instant(interval.map(|(start, _)| start)),
        instant(interval.map(|(_, end)| end)),
    ]
}

/// A DAG from its row.
pub(crate) fn read(row: &Row) -> Result<Dag, StoreError> {
    let corrupt = |what: String| {
        move |why: Unreadable| StoreError::Corrupt {
            what,
            why: why.into(),
        }
    };
    let dag_id = row.text("dag_id").map_err(corrupt("a DAG".to_owned()))?;
    let what = format!("DAG {dag_id}");
    read_rest(row, dag_id).map_err(corrupt(what))
}

fn read_rest(row: &Row, dag_id: String) -> Result<Dag, Unreadable> {
    Ok(Dag {
        dag_id,
        file: row.opt_text("file")?,
        is_paused: row.int("is_paused")? != 0,
        next_run: read_next_run(row)?,
        parsed_at: read_instant(row, "parsed_at")?,
        error: row.opt_text("error")?,
        document_hash: row.opt_text("document_hash")?,
    })
}

/// The next run from its four columns.
pub(crate) fn read_next_run(row: &Row) -> Result<Option<NextRun>, Unreadable> {
    let Some(run_after) = read_opt_instant(row, "next_run_after")? else {
        return Ok(None);
    };
    let start = read_opt_instant(row, "next_interval_start")?;
    let end = read_opt_instant(row, "next_interval_end")?;
    Ok(Some(NextRun {
        run_after,
        logical_date: read_opt_instant(row, "next_logical_date")?,
        data_interval: start.zip(end),
    }))
}
