//! Table `run`.

use super::{
    Table, Unreadable, instant, json, opt_free_text, parse_json, parse_word, read_instant,
    read_int, read_interval, read_opt_instant, read_uuid, word,
};
use crate::{
    catalog::ListedRun,
    changes::StoreError,
    engine::{Cell, Row},
    model::{DocumentHash, Run, RunDetails, RunKey},
};

/// Table `run`.
pub(crate) const TABLE: Table = Table {
    name: "run",
    columns: &[
        "dag_id",
        "run_id",
        "run_type",
        "state",
        "logical_date",
        "queued_at",
        "start_date",
        "end_date",
        "conf",
        "dag_hash",
        "is_prepared",
        "reason",
        "run_after",
        "data_interval_start",
        "data_interval_end",
        "dag_version_id",
        "bundle_version",
        "clear_number",
        "triggered_by",
        "note",
        "version",
    ],
    key: &["dag_id", "run_id"],
    fixed: &[],
    addressable: "",
};

/// The cells of a row, in the order of the table's columns, with this version.
pub(crate) fn cells(run: &Run, version: i64) -> [Cell; 21] {
    let details = &run.details;
    let interval = details.data_interval;
    [
        run.key.dag_id.as_str().into(),
        run.key.run_id.as_str().into(),
        word(&run.run_type),
        word(&run.state),
        instant(run.logical_date),
        instant(Some(run.queued_at)),
        instant(run.start_date),
        instant(run.end_date),
        json(&run.conf),
        run.dag_hash.as_str().into(),
        i64::from(run.is_prepared).into(),
        run.reason.clone().into(),
        instant(details.run_after),
        instant(interval.map(|(start, _)| start)),
        instant(interval.map(|(_, end)| end)),
        Cell::Text(details.dag_version.map(|id| id.to_string())),
        details.bundle_version.clone().into(),
        i64::from(details.clear_number).into(),
        opt_free_text(details.triggered_by.as_deref()),
        opt_free_text(details.note.as_deref()),
        version.into(),
    ]
}

/// The cells of its address.
pub(crate) fn key_cells(key: &RunKey) -> [Cell; 2] {
    [key.dag_id.as_str().into(), key.run_id.as_str().into()]
}

/// A run from its row.
pub(crate) fn read(row: &Row) -> Result<Run, StoreError> {
    read_with(row, read_rest)
}

/// A run as lists show it, from their columns.
pub(crate) fn read_listed(row: &Row) -> Result<ListedRun, StoreError> {
    read_with(row, read_listed_rest)
}

fn read_with<T>(
    row: &Row,
    read_rest: impl Fn(&Row, RunKey) -> Result<T, Unreadable>,
) -> Result<T, StoreError> {
    let corrupt = |what: String| {
        move |why: Unreadable| StoreError::Corrupt {
            what,
            why: why.into(),
        }
    };
    let key = read_key(row).map_err(corrupt("a run".to_owned()))?;
    let what = format!("run {key}");
    read_rest(row, key).map_err(corrupt(what))
}

/// A run's address from its columns in any row.
pub(crate) fn read_key(row: &Row) -> Result<RunKey, Unreadable> {
    Ok(RunKey {
        dag_id: row.text("dag_id")?,
        run_id: row.text("run_id")?,
    })
}

fn read_rest(row: &Row, key: RunKey) -> Result<Run, Unreadable> {
    let ListedRun {
        key,
        run_type,
        state,
        logical_date,
        queued_at,
        start_date,
        end_date,
        conf,
        reason,
    } = read_listed_rest(row, key)?;
    Ok(Run {
        key,
        run_type,
        state,
        logical_date,
        queued_at,
        start_date,
        end_date,
        conf,
        dag_hash: DocumentHash::stored(row.text("dag_hash")?),
        is_prepared: row.int("is_prepared")? != 0,
        reason,
        details: read_details(row)?,
        version: row.int("version")?,
    })
}

fn read_details(row: &Row) -> Result<RunDetails, Unreadable> {
    let dag_version = row.opt_text("dag_version_id")?;
    let dag_version = dag_version.map(|text| read_uuid(&text, "dag_version_id"));
    Ok(RunDetails {
        run_after: read_opt_instant(row, "run_after")?,
        data_interval: read_interval(row, ["data_interval_start", "data_interval_end"])?,
        dag_version: dag_version.transpose()?,
        bundle_version: row.opt_text("bundle_version")?,
        clear_number: read_int(row, "clear_number")?,
        triggered_by: row.opt_text("triggered_by")?,
        note: row.opt_text("note")?,
    })
}

fn read_listed_rest(row: &Row, key: RunKey) -> Result<ListedRun, Unreadable> {
    Ok(ListedRun {
        key,
        run_type: parse_word(row.text("run_type")?, "run_type")?,
        state: parse_word(row.text("state")?, "state")?,
        logical_date: read_opt_instant(row, "logical_date")?,
        queued_at: read_instant(row, "queued_at")?,
        start_date: read_opt_instant(row, "start_date")?,
        end_date: read_opt_instant(row, "end_date")?,
        conf: parse_json(&row.text("conf")?, "conf")?,
        reason: row.opt_text("reason")?,
    })
}
