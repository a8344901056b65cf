//! Table `dag`.

use crate::{
    changes::StoreError,
    engine::{Cell, Row},
    model::{Dag, DocumentHash, NextRun},
    rows::{Table, Unreadable, instant, read_instant, read_interval, read_opt_instant},
};

/// Table `dag`.
pub(crate) const TABLE: Table = Table {
    name: "dag",
    columns: &[
        "dag_id",
        "file",
        "is_paused",
        "next_run_after",
        "next_logical_date",
        "next_interval_start",
        "next_interval_end",
        "last_interval_start",
        "last_interval_end",
        "parsed_at",
        "error",
        "document_hash",
        "version",
    ],
    key: &["dag_id"],
    fixed: &[],
    addressable: "",
};

/// The cells of a row, in the order of the table's columns, with this version.
pub(crate) fn cells(dag: &Dag, version: i64) -> [Cell; 13] {
    let next = dag.next_run;
    let interval = next.and_then(|next| next.data_interval);
    [
        dag.dag_id.as_str().into(),
        dag.file.clone().into(),
        i64::from(dag.is_paused).into(),
        instant(next.map(|next| next.run_after)),
        instant(next.and_then(|next| next.logical_date)),
        instant(interval.map(|(start, _)| start)),
        instant(interval.map(|(_, end)| end)),
        instant(dag.last_interval.map(|(start, _)| start)),
        instant(dag.last_interval.map(|(_, end)| end)),
        instant(Some(dag.parsed_at)),
        dag.error.clone().into(),
        dag.document_hash.as_str().into(),
        version.into(),
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
        last_interval: read_interval(row, ["last_interval_start", "last_interval_end"])?,
        parsed_at: read_instant(row, "parsed_at")?,
        error: row.opt_text("error")?,
        document_hash: DocumentHash::stored(row.text("document_hash")?),
        version: row.int("version")?,
    })
}

fn read_next_run(row: &Row) -> Result<Option<NextRun>, Unreadable> {
    let Some(run_after) = read_opt_instant(row, "next_run_after")? else {
        return Ok(None);
    };
    Ok(Some(NextRun {
        run_after,
        logical_date: read_opt_instant(row, "next_logical_date")?,
        data_interval: read_interval(row, ["next_interval_start", "next_interval_end"])?,
    }))
}
