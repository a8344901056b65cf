//! Which rows change because of what the parser made of the files of bundles. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use longshore_store::{Bundle, BundleVersion, Dag as Row, FileKey, ImportError};

use super::{
    Catalog, Entry,
    bundles::{Bundles, News, ParsedDag, Standing},
};
use crate::versions::{self, Parsed, SeenVersion};

/// Rows about files of bundles that are to change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FileRows {
    /// Bundles.
    pub(crate) bundles: Vec<Bundle>,
    /// Import errors that are new, or say something else.
    pub(crate) import_errors: Vec<ImportError>,
    /// Files that have none any more.
    pub(crate) mended: Vec<FileKey>,
}

/// Takes over what there is to say about a DAG on record that a file of a bundle holds. Afterwards it has no file where
/// none does.
pub(super) fn review(entry: &mut Entry, bundles: &Bundles) {
    let Some((bundle, file)) = entry.bundle_file() else {
        return;
    };
    match bundles.standing(&entry.row.dag_id, bundle, file) {
        Standing::Said(news, dag) => say(entry, news, dag),
        Standing::Broken(news, error) => {
            if entry.row.error.as_deref() != Some(error) {
                entry.row.error = Some(error.to_owned());
                entry.row.parsed_at = news.parsed.at;
            }
        }
        Standing::Gone => (entry.row.file, entry.row.error) = (None, None),
        Standing::Kept => {
            let seen = bundles.seen.get(bundle).filter(|seen| seen.is_parsed);
            let version = seen.map(|seen| &seen.bundle);
            if let Some(version) = version {
                stand_at(entry, version);
            }
        }
    }
}

/// A DAG whose unit did not change is the same in the new version of its bundle.
fn stand_at(entry: &mut Entry, bundle: &BundleVersion) {
    if let Some(version) = &mut entry.version
        && version.bundle.as_ref() != Some(bundle)
    {
        Arc::make_mut(version).bundle = Some(bundle.clone());
    }
}

/// The entry of a DAG that was not known before.
pub(super) fn new(news: &News, dag: &ParsedDag) -> Entry {
    let row = Row {
        dag_id: dag.content.dag_id.clone(),
        file: None,
        is_paused: dag.is_paused,
        next_run: None,
        last_interval: None,
        parsed_at: news.parsed.at,
        error: None,
        document_hash: dag.content.document.hash().clone(),
        version: 0,
    };
    Entry {
        row,
        document: None,
        source: None,
        dag: None,
        version: None,
    }
}

/// Takes over what a unit says of a DAG.
pub(super) fn say(entry: &mut Entry, news: &News, said: &ParsedDag) {
    let parsed = Parsed {
        content: &said.content,
        source: said.source.as_ref().map(|source| source.hash()),
        bundle: Some(&news.parsed.bundle),
        file: &said.file,
        at: news.parsed.at,
    };
    let was_python = entry.is_python();
    let seen = versions::seen(entry.version.as_deref(), &parsed);
    let is_new = matches!(seen, SeenVersion::New(_));
    match seen {
        SeenVersion::Same => {}
        SeenVersion::Moved(version) => {
            entry.source.clone_from(&said.source);
            entry.version = Some(Arc::new(version));
        }
        SeenVersion::New(version) => {
            entry.source.clone_from(&said.source);
            entry.document = Some(said.content.document.clone());
            entry.version = Some(Arc::new(version));
        }
    }
    let row = &mut entry.row;
    if let Some(version) = &entry.version {
        row.document_hash = version.document.clone();
    }
    if is_new || !was_python || entry.dag.is_none() {
        entry.dag = Some(Arc::clone(&said.dag));
        row.parsed_at = news.parsed.at;
    }
    row.file = Some(said.file.clone());
    row.error = None;
}

/// The rows about files of bundles that are not as they are to be. `changed` are the DAGs that change in the same round.
pub(crate) fn decide(catalog: &Catalog, changed: &[Entry], now: Timestamp) -> FileRows {
    let mut rows = FileRows::default();
    if catalog.is_settled() || catalog.bundles.configured.is_none() {
        return rows;
    }
    rows.bundles = bundles(&catalog.bundles);
    let changed: BTreeMap<&str, &Entry> = changed
        .iter()
        .map(|entry| (entry.row.dag_id.as_str(), entry))
        .collect();
    let known = &catalog.bundles.errors;
    let mut wanted = BTreeMap::new();
    let mut of_news = Vec::new();
    for news in catalog.bundles.news() {
        wanted.extend(errors(catalog, &changed, news));
        of_news.push(&news.parsed);
    }
    for (key, error) in &wanted {
        let before = known.get(key);
        if before.is_none_or(|before| before.error != *error) {
            rows.import_errors.push(ImportError {
                key: key.clone(),
                error: error.clone(),
                seen_at: now,
                version: before.map_or(0, |before| before.version),
            });
        }
    }
    let is_mended = |key: &&FileKey| {
        let was_parsed = of_news
            .iter()
            .any(|unit| unit.bundle.name == key.bundle && is_within(&key.file, &unit.unit));
        !wanted.contains_key(*key) && (was_parsed || !catalog.bundles.is_there(key))
    };
    rows.mended = known.keys().filter(is_mended).cloned().collect();
    rows
}

/// What is wrong with the files of a unit: what the parser said, and DAGs that other files hold.
fn errors(
    catalog: &Catalog,
    changed: &BTreeMap<&str, &Entry>,
    news: &News,
) -> BTreeMap<FileKey, String> {
    let unit = &news.parsed;
    let key = |file: &str| FileKey {
        bundle: unit.bundle.name.clone(),
        file: file.to_owned(),
    };
    let mut errors: BTreeMap<FileKey, String> = BTreeMap::new();
    let mut add = |file: &str, text: String| {
        // What is not within the unit would belong to nobody.
        let (file, text) = if is_within(file, &unit.unit) {
            (file, text)
        } else {
            (unit.unit.as_str(), format!("{file}: {text}"))
        };
        let error = errors.entry(key(file)).or_default();
        if !error.is_empty() && !error.ends_with('\n') {
            error.push('\n');
        }
        error.push_str(&text);
    };
    for (file, text) in &unit.errors {
        add(file, text.clone());
    }
    for dag in &unit.dags {
        let dag_id = dag.content.dag_id.as_str();
        let changed = changed.get(dag_id).copied();
        let holder = changed.or_else(|| catalog.entry(dag_id));
        if !catalog.bundles.is_holder(unit, holder) {
            let file = holder.and_then(|holder| holder.row.file.as_deref());
            add(&dag.file, duplicate(dag_id, file.unwrap_or("another file")));
        }
    }
    errors
}

/// What is wrong with a second file of a DAG.
fn duplicate(dag_id: &str, file: &str) -> String {
    format!(
        "DAG `{dag_id}` is in `{file}` already; give one of the two another `dag_id`, or remove it"
    )
}

fn is_within(file: &str, unit: &str) -> bool {
    let rest = file.strip_prefix(unit);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The rows of bundles that are not as they are to be.
fn bundles(bundles: &Bundles) -> Vec<Bundle> {
    let configured = bundles.configured.iter().flat_map(|names| names.iter());
    let mut changed = Vec::new();
    for name in configured {
        let before = bundles.rows.get(name);
        let mut row = before.cloned().unwrap_or_else(|| Bundle {
            name: name.clone(),
            bundle_version: None,
            refreshed_at: None,
            is_active: true,
            version: 0,
        });
        row.is_active = true;
        if let Some(seen) = bundles.seen.get(name) {
            row.bundle_version.clone_from(&seen.bundle.version);
            row.refreshed_at = Some(seen.at);
        }
        changed.extend((before != Some(&row)).then_some(row));
    }
    let is_named = |name: &String| {
        let mut names = bundles.configured.iter();
        names.any(|names| names.contains(name))
    };
    let others = bundles.rows.values();
    let others = others.filter(|row| row.is_active && !is_named(&row.name));
    changed.extend(others.map(|row| Bundle {
        is_active: false,
        ..row.clone()
    }));
    changed
}

#[cfg(test)]
mod tests;
