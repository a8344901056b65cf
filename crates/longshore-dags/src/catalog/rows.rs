//! Which rows change because of what the folder says and people ask for. Pure.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use longshore_store::{Dag as Row, StoredDocument};

use super::{
    Catalog, Entry, ReadFile,
    bundles::{News, ParsedDag},
    files, interval, next_run, parsed, restriction, stored_run,
};
use crate::{
    folder::FileState,
    model::Dag,
    timetable::{DataInterval, NextRun},
};

/// The rows that are not as they are to be, each as it is to be, with the version on record. An entry has its document
/// where that is another.
pub(crate) fn decide(catalog: &Catalog, now: Timestamp) -> Vec<Entry> {
    if catalog.is_settled() {
        return Vec::new();
    }
    let owners = files::owners(catalog);
    let claims = catalog.bundles.claims();
    let known = catalog.entries.keys().map(String::as_str);
    let told = owners.keys().chain(claims.keys()).copied();
    let ids: BTreeSet<&str> = known.chain(told).collect();
    let changed = ids.into_iter().filter_map(|dag_id| {
        let before = catalog.entry(dag_id);
        let claims = claims.get(dag_id).map_or(&[][..], Vec::as_slice);
        let mut after = told_by_files(catalog, dag_id, owners.get(dag_id).copied(), claims)?;
        if let Some(is_paused) = catalog.pauses.get(dag_id) {
            after.row.is_paused = *is_paused;
        }
        schedule(&mut after, before, now);
        (before != Some(&after)).then_some(after)
    });
    changed.collect()
}

/// A DAG as files have it. The file that holds it comes first, as long as it has the DAG; then a container DAG, and then
/// the first unit of a bundle.
fn told_by_files(
    catalog: &Catalog,
    dag_id: &str,
    owner: Option<(&str, &ReadFile)>,
    claims: &[(&News, &ParsedDag)],
) -> Option<Entry> {
    let mut after = catalog.entry(dag_id).cloned();
    if let Some(entry) = &mut after {
        parsed::review(entry, &catalog.bundles);
    }
    let is_held = |entry: &Entry| entry.bundle_file().is_some();
    if catalog.files.is_some() && !after.as_ref().is_some_and(is_held) {
        if let (None, Some((_, read))) = (&after, owner) {
            after = new(dag_id, read);
        }
        if let Some(entry) = &mut after {
            read_file(entry, owner);
        }
    }
    let has_file = after.as_ref().is_some_and(|entry| entry.row.file.is_some());
    if let Some((news, dag)) = claims.first().filter(|_| !has_file) {
        let entry = after.get_or_insert_with(|| parsed::new(news, dag));
        parsed::say(entry, news, dag);
    }
    after
}

/// The entry of a DAG that was not known before.
fn new(dag_id: &str, read: &ReadFile) -> Option<Entry> {
    let FileState::Dag(dag) = &read.state else {
        return None;
    };
    let document = StoredDocument::of(&dag.to_json());
    let row = Row {
        dag_id: dag_id.to_owned(),
        file: None,
        is_paused: dag.is_paused_upon_creation,
        next_run: None,
        last_interval: None,
        parsed_at: read.at,
        error: None,
        document_hash: document.hash().clone(),
        version: 0,
    };
    Some(Entry {
        row,
        document: Some(document),
        source: None,
        dag: Some(Arc::clone(dag)),
        version: None,
    })
}

/// Takes over what the DAG's file says.
fn read_file(entry: &mut Entry, owner: Option<(&str, &ReadFile)>) {
    let row = &mut entry.row;
    let Some((name, read)) = owner else {
        (row.file, row.error) = (None, None);
        return;
    };
    row.file = Some(name.to_owned());
    match &read.state {
        FileState::Dag(dag) => {
            row.error = None;
            if entry.dag.as_ref() != Some(dag) {
                let document = StoredDocument::of(&dag.to_json());
                row.document_hash = document.hash().clone();
                entry.document = Some(document);
                row.parsed_at = read.at;
                entry.dag = Some(Arc::clone(dag));
            }
        }
        FileState::Broken(why) => {
            if row.error.as_ref() != Some(why) {
                row.error = Some(why.clone());
                row.parsed_at = read.at;
            }
        }
        FileState::Removed | FileState::Pools(_) => {}
    }
}

/// Computes the next run where the schedule has changed. While the schedule is the same, a stored next run stays: it
/// was announced, and the clock may have been set since.
fn schedule(entry: &mut Entry, before: Option<&Entry>, now: Timestamp) {
    let Some(dag) = &entry.dag else { return };
    let is_same = before
        .and_then(|before| before.dag.as_ref())
        .is_some_and(|before| is_same_schedule(before, dag));
    let promised = entry.row.next_run.map(next_run);
    if is_same && promised.is_some_and(|next| !is_out_of_reach(dag, &next, now)) {
        return;
    }
    let last = entry.row.last_interval.map(interval);
    // A run of the future was made by a clock that was ahead; without catchup the schedule does not wait for it.
    let last = last.filter(|last| last.end <= now || !can_skip(dag));
    let next = dag
        .timetable
        .next_run(last.as_ref(), &restriction(dag), now);
    entry.row.next_run = next.map(stored_run);
}

/// Whether a run comes after the next one that the clock allows: then the clock was ahead when it was promised.
fn is_out_of_reach(dag: &Dag, promised: &NextRun, now: Timestamp) -> bool {
    if !can_skip(dag) {
        return false;
    }
    let bounds = restriction(dag);
    let next_run = |last: Option<&DataInterval>| dag.timetable.next_run(last, &bounds, now);
    let Some(latest) = next_run(None) else {
        return false;
    };
    let is_to_come = |run: &NextRun| run.run_after > now;
    let first_to_come = Some(latest)
        .filter(is_to_come)
        .or_else(|| next_run(Some(&latest.data_interval)));
    promised.run_after > first_to_come.unwrap_or(latest).run_after.max(now)
}

/// Whether the DAG leaves out what was missed.
fn can_skip(dag: &Dag) -> bool {
    !dag.catchup && dag.timetable.has_fixed_times()
}

fn is_same_schedule(a: &Dag, b: &Dag) -> bool {
    restriction(a) == restriction(b) && a.timetable == b.timetable
}
