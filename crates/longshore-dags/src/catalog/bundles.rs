//! What bundles hold, and what the parser made of their files: the rows in memory, and the news that they do not have yet.
//!
//! A *unit* is a file that is parsed by itself; one that is an archive holds more files. The parser's news about a unit
//! stay here until the rows have them. News of which a DAG was refused stay for longer, because the DAG's other file may go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use longshore_store::{Bundle, BundleVersion, Changes, FileKey, ImportError, StoredDocument};

use super::{Catalog, Entry};
use crate::{model::Dag, versions::Content};

/// What the parser made of a unit.
#[derive(Clone, Debug)]
pub(crate) struct ParsedUnit {
    /// Its bundle, and the version of that.
    pub(crate) bundle: BundleVersion,
    /// Its path in the bundle.
    pub(crate) unit: String,
    /// The DAGs that can be scheduled.
    pub(crate) dags: Vec<ParsedDag>,
    /// Import errors, by file.
    pub(crate) errors: BTreeMap<String, String>,
    /// When it was parsed.
    pub(crate) at: Timestamp,
}

/// A DAG in a unit.
#[derive(Clone, Debug)]
pub(crate) struct ParsedDag {
    /// What the scheduler needs of it.
    pub(crate) dag: Arc<Dag>,
    /// What it says.
    pub(crate) content: Content,
    /// The text of its file, where that was read.
    pub(crate) source: Option<StoredDocument>,
    /// Its file in the bundle.
    pub(crate) file: String,
    /// Whether it is paused where it is new.
    pub(crate) is_paused: bool,
}

/// A bundle as it was seen last.
#[derive(Clone, Debug)]
pub(crate) struct SeenBundle {
    /// Its name, and its version.
    pub(crate) bundle: BundleVersion,
    /// The paths of its units.
    pub(crate) units: Arc<BTreeSet<String>>,
    /// When it was looked at.
    pub(crate) at: Timestamp,
    /// Whether every unit that had changed in this version was parsed, so that all DAGs are as it says.
    pub(crate) is_parsed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct News {
    pub(super) parsed: Arc<ParsedUnit>,
    /// The version of the catalog that came with it.
    came: u64,
}

/// Bundles, import errors, and what is new about them. A clone shares all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundles {
    pub(super) rows: Arc<BTreeMap<String, Bundle>>,
    pub(super) errors: Arc<BTreeMap<FileKey, ImportError>>,
    /// The names that the configuration has; `None` where no bundle is followed and nothing is said of that.
    pub(super) configured: Option<Arc<BTreeSet<String>>>,
    pub(super) seen: Arc<BTreeMap<String, SeenBundle>>,
    news: Arc<BTreeMap<FileKey, News>>,
}

/// What there is to say about a DAG on record that came from a bundle.
pub(super) enum Standing<'a> {
    /// Nothing new.
    Kept,
    /// Its unit was parsed, and has it.
    Said(&'a News, &'a ParsedDag),
    /// Its unit was parsed, and its file could not be.
    Broken(&'a News, &'a str),
    /// Its unit has it no more, or is gone.
    Gone,
}

impl Catalog {
    /// Notes which bundles the configuration names. Others, and their DAGs, are not active any more.
    pub(crate) fn configure_bundles(&mut self, names: impl IntoIterator<Item = String>) {
        self.bundles.configured = Some(Arc::new(names.into_iter().collect()));
        self.version += 1;
    }

    /// Notes what a look at a bundle found.
    pub(crate) fn see_bundle(&mut self, seen: SeenBundle) {
        let name = &seen.bundle.name;
        let is_unit = |unit: &String| seen.units.contains(unit);
        let news = Arc::make_mut(&mut self.bundles.news);
        news.retain(|key, _| key.bundle != *name || is_unit(&key.file));
        let name = name.clone();
        Arc::make_mut(&mut self.bundles.seen).insert(name, seen);
        self.version += 1;
    }

    /// Notes what the parser made of a unit.
    pub(crate) fn take_parsed(&mut self, parsed: ParsedUnit) {
        self.version += 1;
        let key = FileKey {
            bundle: parsed.bundle.name.clone(),
            file: parsed.unit.clone(),
        };
        let news = News {
            parsed: Arc::new(parsed),
            came: self.version,
        };
        Arc::make_mut(&mut self.bundles.news).insert(key, news);
    }
}

impl Bundles {
    /// The unit that a file belongs to, as long as there is one.
    fn unit_of<'a>(&self, bundle: &str, file: &'a str) -> Option<&'a str> {
        let units = &self.seen.get(bundle)?.units;
        let ends = file.match_indices('/').map(|(at, _)| at);
        let mut paths = ends.chain([file.len()]).map(|end| &file[..end]);
        paths.find(|path| units.contains(*path))
    }

    fn news_of(&self, bundle: &str, unit: &str) -> Option<&News> {
        self.news.get(&FileKey {
            bundle: bundle.to_owned(),
            file: unit.to_owned(),
        })
    }

    /// The news, by unit.
    pub(super) fn news(&self) -> impl Iterator<Item = &News> {
        self.news.values()
    }

    /// The DAGs in the news, each with all units that have it.
    pub(super) fn claims(&self) -> BTreeMap<&str, Vec<(&News, &ParsedDag)>> {
        let mut claims: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for news in self.news.values() {
            for dag in &news.parsed.dags {
                let of_dag = claims.entry(dag.content.dag_id.as_str()).or_default();
                of_dag.push((news, dag));
            }
        }
        claims
    }

    /// What there is to say about a DAG on record in this file of a bundle.
    pub(super) fn standing(&self, dag_id: &str, bundle: &str, file: &str) -> Standing<'_> {
        let Some(configured) = &self.configured else {
            return Standing::Kept;
        };
        if !configured.contains(bundle) {
            return Standing::Gone;
        }
        if !self.seen.contains_key(bundle) {
            return Standing::Kept;
        }
        let Some(unit) = self.unit_of(bundle, file) else {
            return Standing::Gone;
        };
        let Some(news) = self.news_of(bundle, unit) else {
            return Standing::Kept;
        };
        let parsed = &news.parsed;
        let mut dags = parsed.dags.iter();
        if let Some(dag) = dags.find(|dag| dag.content.dag_id == dag_id) {
            return Standing::Said(news, dag);
        }
        let error = parsed.errors.get(file).or_else(|| parsed.errors.get(unit));
        match error {
            Some(error) => Standing::Broken(news, error),
            None => Standing::Gone,
        }
    }

    /// Whether this unit holds the DAG.
    pub(super) fn is_holder(&self, unit: &ParsedUnit, entry: Option<&Entry>) -> bool {
        let held = entry.and_then(Entry::bundle_file);
        held.is_some_and(|(bundle, file)| {
            bundle == unit.bundle.name && self.unit_of(bundle, file) == Some(&unit.unit)
        })
    }

    /// Whether a file that has an import error is still one of a unit.
    pub(super) fn is_there(&self, key: &FileKey) -> bool {
        match &self.configured {
            None => true,
            Some(configured) => {
                let is_seen = self.seen.contains_key(&key.bundle);
                let is_unit = || self.unit_of(&key.bundle, &key.file).is_some();
                configured.contains(&key.bundle) && (!is_seen || is_unit())
            }
        }
    }

    /// Takes over the rows that a round committed.
    pub(super) fn apply(&mut self, changes: &Changes) {
        for bundle in &changes.bundles {
            let mut bundle = bundle.clone();
            bundle.version += 1;
            Arc::make_mut(&mut self.rows).insert(bundle.name.clone(), bundle);
        }
        for file in &changes.mended {
            Arc::make_mut(&mut self.errors).remove(file);
        }
        for error in &changes.import_errors {
            let mut error = error.clone();
            error.version += 1;
            Arc::make_mut(&mut self.errors).insert(error.key.clone(), error);
        }
    }

    /// Forgets the news that came with this version of the catalog or before, except for those with a DAG that another
    /// file holds.
    pub(super) fn forget_news(&mut self, until: u64, entries: &BTreeMap<String, Entry>) {
        let is_used = |news: &News| {
            let mut dags = news.parsed.dags.iter();
            let entry = |dag: &ParsedDag| entries.get(&dag.content.dag_id);
            news.came <= until && dags.all(|dag| self.is_holder(&news.parsed, entry(dag)))
        };
        let used = self.news.iter().filter(|(_, news)| is_used(news));
        let used: Vec<FileKey> = used.map(|(key, _)| key.clone()).collect();
        if !used.is_empty() {
            let news = Arc::make_mut(&mut self.news);
            used.iter().for_each(|key| drop(news.remove(key)));
        }
    }
}
