//! One bundle: which of its units are parsed now, and what becomes of what is found.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use longshore_airflow::parser::ParseRequest;
use longshore_bundles::{
    Affected, BundleName, Learned, ParseQueue, QueueSettings, Reads, Units, git::WorkTree,
    local::Look,
};
use longshore_python::parser::{AskedRows, Outcome};
use longshore_store::{BundleVersion, StoredDocument};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Parsers, found};
use crate::{
    base::shared::Shared,
    catalog::{ParsedUnit, SeenBundle},
    model::Unsupported,
};

/// The text of a file is kept up to here, in bytes.
const MAX_SOURCE: u64 = 4 << 20;

/// What a look at a bundle found.
pub(super) struct ScannedTree {
    /// The files, and what changed.
    pub(super) look: Look,
    /// The version of the bundle; `None` for a bundle without versions.
    pub(super) version: Option<String>,
    /// What keeps the files there, for as long as they are parsed.
    pub(super) tree: Option<Arc<WorkTree>>,
}

/// Where the files of a version are.
#[derive(Clone)]
struct Place {
    root: PathBuf,
    bundle: BundleVersion,
    units: Arc<BTreeSet<String>>,
    at: jiff::Timestamp,
    tree: Option<Arc<WorkTree>>,
}

/// A parse that has ended.
struct Done {
    unit: String,
    outcome: Result<(ParsedUnit, Option<Vec<String>>, AskedRows), String>,
}

/// The loop of one bundle.
pub(super) struct Following {
    shared: Arc<Shared>,
    parsers: Arc<Parsers>,
    name: BundleName,
    queue: ParseQueue,
    units: Units,
    /// What each unit has read when it was parsed last.
    reads: BTreeMap<String, Reads>,
    /// Units that are not parsed as the last look saw them.
    pending: BTreeSet<String>,
    place: Option<Place>,
    running: JoinSet<Done>,
    /// The last reason why nothing was learned of a unit: each is told once.
    told: Option<String>,
    /// What was told of each DAG.
    unsupported: BTreeMap<String, Vec<Unsupported>>,
}

impl Following {
    pub(super) fn new(shared: Arc<Shared>, parsers: Arc<Parsers>, name: BundleName) -> Self {
        let settings = &parsers.settings;
        let queue = ParseQueue::new(QueueSettings {
            n_parallel: settings.parsing_processes.max(1),
            refresh_interval: settings.min_file_process_interval,
            ..QueueSettings::default()
        });
        Self {
            units: Units::new(settings.discovery),
            shared,
            parsers,
            name,
            queue,
            reads: BTreeMap::new(),
            pending: BTreeSet::new(),
            place: None,
            running: JoinSet::new(),
            told: None,
            unsupported: BTreeMap::new(),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn settings(&self) -> &super::ParsingSettings {
        &self.parsers.settings
    }

    pub(super) fn name(&self) -> &BundleName {
        &self.name
    }

    /// Parses what the looks say, until shutdown. Children that run then are ended.
    pub(super) async fn run(
        mut self,
        mut looks: mpsc::Receiver<ScannedTree>,
        shutdown: CancellationToken,
    ) {
        loop {
            self.begin(&shutdown);
            let wait = self.wait();
            tokio::select! {
                () = shutdown.cancelled() => break,
                seen = looks.recv() => match seen {
                    Some(seen) => self.see(seen).await,
                    None => break,
                },
                Some(done) = self.running.join_next() => match done {
                    Ok(done) => self.ended(done),
                    // It panicked, and with it the loop of its bundle would stand still.
                    Err(error) => {
                        tracing::error!(bundle = %self.name, %error, "parsing stops");
                        break;
                    }
                },
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.running.shutdown().await;
    }

    /// How long nothing is to be begun.
    fn wait(&self) -> Duration {
        let longest = Duration::from_secs(3600);
        let Some(at) = self.queue.wakes_at() else {
            return longest;
        };
        let left = at.duration_since(self.shared.clock.now());
        match Duration::try_from(left) {
            // It is due, and waits for the end of another: that wakes the loop.
            Ok(Duration::ZERO) | Err(_) => longest,
            Ok(left) => left.min(longest),
        }
    }

    /// Takes up what a look found.
    async fn see(&mut self, seen: ScannedTree) {
        let ScannedTree {
            look,
            version,
            tree,
        } = seen;
        for (path, problem) in &look.diff.problems {
            tracing::warn!(bundle = %self.name, path, %problem, "a file of a bundle is left out");
        }
        let root = look.root.clone();
        let (mut units, reads) = (
            std::mem::take(&mut self.units),
            std::mem::take(&mut self.reads),
        );
        let taken = tokio::task::spawn_blocking(move || {
            let affected = units.take(&look, &reads);
            (units, reads, affected)
        });
        let affected: Affected = match taken.await {
            Ok((units, reads, affected)) => {
                (self.units, self.reads) = (units, reads);
                affected
            }
            Err(error) => {
                tracing::error!(bundle = %self.name, %error, "a look at a bundle is lost");
                return;
            }
        };
        let now = self.shared.clock.now();
        self.queue.take(&affected, now);
        for unit in &affected.gone {
            self.reads.remove(unit);
            self.pending.remove(unit);
        }
        self.pending
            .extend(affected.changed.into_iter().chain(affected.dependants));
        self.place = Some(Place {
            root,
            bundle: BundleVersion {
                name: self.name.as_str().to_owned(),
                version,
            },
            units: Arc::new(self.units.paths().clone()),
            at: now,
            tree,
        });
        self.tell_place();
    }

    /// Tells the catalog what there is.
    fn tell_place(&self) {
        let Some(place) = &self.place else { return };
        self.shared.catalog_mut().see_bundle(SeenBundle {
            bundle: place.bundle.clone(),
            units: Arc::clone(&place.units),
            at: place.at,
            is_parsed: self.pending.is_empty(),
        });
        self.shared.inbox.wake();
    }

    /// Begins as many parses as there may be.
    fn begin(&mut self, shutdown: &CancellationToken) {
        let Some(place) = self.place.clone() else {
            return;
        };
        while let Some(unit) = self.queue.begin(self.shared.clock.now()) {
            let (shared, parsers) = (Arc::clone(&self.shared), Arc::clone(&self.parsers));
            let (place, shutdown) = (place.clone(), shutdown.clone());
            self.running
                .spawn(async move { parse(&shared, &parsers, place, unit, shutdown).await });
        }
    }

    /// Takes up what a parse came to.
    fn ended(&mut self, done: Done) {
        let now = self.shared.clock.now();
        let unit = done.unit;
        let learned = match &done.outcome {
            Err(_) => Learned::Nothing,
            Ok((_, _, asked)) if *asked == AskedRows::default() => Learned::All,
            Ok(_) => Learned::ForNow,
        };
        if !self.queue.ended(&unit, learned, now) {
            return;
        }
        match done.outcome {
            Err(why) => {
                if self.told.as_ref() != Some(&why) {
                    tracing::warn!(bundle = %self.name, unit, why, "a DAG file was not parsed, and is tried again");
                }
                self.told = Some(why);
            }
            Ok((parsed, reads, _)) => {
                self.told = None;
                // What was missing may come from anywhere.
                let reads = reads.filter(|_| parsed.errors.is_empty());
                let reads = reads.map_or(Reads::Unknown, Reads::of);
                self.reads.insert(unit.clone(), reads);
                self.tell_unsupported(&parsed);
                self.shared.catalog_mut().take_parsed(parsed);
                self.shared.inbox.wake();
                if self.pending.remove(&unit) && self.pending.is_empty() {
                    self.tell_place();
                }
            }
        }
    }

    /// Says what of a DAG is not followed, once.
    fn tell_unsupported(&mut self, parsed: &ParsedUnit) {
        for said in &parsed.dags {
            let python = said.dag.python.as_ref();
            let parts = python.map_or(&[][..], |python| &python.unsupported);
            let dag_id = &said.content.dag_id;
            let told = self.unsupported.get(dag_id).map_or(&[][..], Vec::as_slice);
            if told != parts {
                for part in parts {
                    tracing::warn!(dag_id, %part, "a part of a DAG is not supported");
                }
                self.unsupported.insert(dag_id.clone(), parts.to_vec());
            }
        }
    }
}

/// Parses one unit in a child.
async fn parse(
    shared: &Shared,
    parsers: &Parsers,
    place: Place,
    unit: String,
    shutdown: CancellationToken,
) -> Done {
    let name = place.bundle.name.clone();
    let root = place.root.to_string_lossy().into_owned();
    let request = ParseRequest::of_file(&name, &root, &unit);
    let place_to_parse = tokio::select! {
        permit = parsers.free.acquire() => permit,
        () = shutdown.cancelled() => {
            return Done { unit, outcome: Err("the service stops".to_owned()) };
        }
    };
    // Before it is parsed: what changes meanwhile is parsed again.
    let source = read_source(&place.root, &unit).await;
    let parsed = parsers
        .parser
        .parse(&request, &parsers.questions, shutdown.cancelled())
        .await;
    drop(place_to_parse);
    let (reads, asked) = (parsed.reads, parsed.asked);
    let result = match parsed.outcome {
        Outcome::Found(result) => *result,
        Outcome::Again { why } => {
            return Done {
                unit,
                outcome: Err(why),
            };
        }
    };
    let at = shared.clock.now();
    let are_paused = parsers.settings.are_paused_at_creation;
    let of_unit = found::Unit {
        bundle: place.bundle.clone(),
        unit: unit.clone(),
        source,
        are_paused,
        at,
    };
    let found = tokio::task::spawn_blocking(move || found::read(result, of_unit));
    // The files stay until here.
    drop(place.tree);
    let outcome = match found.await {
        Ok(found) => Ok((found, reads, asked)),
        Err(error) => Err(error.to_string()),
    };
    Done { unit, outcome }
}

/// The text of a module; nothing of an archive, or of a file that cannot be read or is too long.
async fn read_source(root: &Path, unit: &str) -> Option<StoredDocument> {
    let path = root.join(unit);
    let reading = tokio::task::spawn_blocking(move || {
        if path.extension()? != "py" || std::fs::metadata(&path).ok()?.len() > MAX_SOURCE {
            return None;
        }
        let text = std::fs::read(&path).ok()?;
        Some(StoredDocument::of_source(&String::from_utf8_lossy(&text)))
    });
    reading.await.ok().flatten()
}
