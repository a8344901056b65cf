//! What units of bundles say, against a real database: the rows, and what stays after a restart.

use std::collections::BTreeSet;

use longshore_airflow::serialized::Document;
use longshore_store::{Changes, RunStore as _, Snapshot, Store, StoredDocument};
use serde_json::{Value, json};

use super::*;
use crate::{
    base::documents::StoredDags,
    catalog::{ParsedUnit, SeenBundle, StoredRows, rows},
    folder::{DagFile, FileState},
    model::Dag,
    versions::Content,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const BUNDLE: &str = "dags-folder";

fn document(dag_id: &str, retries: u32) -> Document {
    let task = json!({"task_id": "t", "task_type": "EmptyOperator", "_task_module": "m", "retries": retries});
    let value = json!({"__version": 3, "dag": {
        "dag_id": dag_id, "fileloc": "/x.py", "tasks": [{"__type": "operator", "__var": task}],
    }});
    Document::read(value).unwrap()
}

/// A DAG in a file, and how often its task is retried.
fn said(file: &str, dag_id: &str, retries: u32) -> ParsedDag {
    let document = document(dag_id, retries);
    ParsedDag {
        dag: Arc::new(Dag::of_document(&document).unwrap()),
        content: Content::of(&document),
        source: Some(StoredDocument::of_source(&format!("{dag_id} {retries}"))),
        file: file.to_owned(),
        is_paused: false,
    }
}

struct World {
    store: Store,
    catalog: Catalog,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("longshore.db"))
            .await
            .unwrap();
        let mut catalog = Catalog::default();
        catalog.configure_bundles([BUNDLE.to_owned()]);
        Self {
            store,
            catalog,
            _folder: folder,
        }
    }

    fn see(&mut self, units: &[&str], version: Option<&str>) {
        let units = units.iter().map(|unit| (*unit).to_owned());
        self.catalog.see_bundle(SeenBundle {
            bundle: BundleVersion {
                name: BUNDLE.to_owned(),
                version: version.map(str::to_owned),
            },
            units: Arc::new(units.collect::<BTreeSet<_>>()),
            at: NOW,
            is_parsed: true,
        });
    }

    fn parse(&mut self, unit: &str, dags: Vec<ParsedDag>, errors: &[(&str, &str)]) {
        let errors = errors.iter();
        let errors = errors.map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        self.catalog.take_parsed(ParsedUnit {
            bundle: BundleVersion {
                name: BUNDLE.to_owned(),
                version: None,
            },
            unit: unit.to_owned(),
            dags,
            errors: errors.collect(),
            at: NOW,
        });
    }

    /// A round of the scheduler. Returns what it commits; a second one commits nothing.
    async fn settle(&mut self) -> Changes {
        let changes = self.round().await;
        assert!(self.round().await.is_empty());
        changes
    }

    fn decide(&self) -> (Vec<Entry>, Changes) {
        let entries = rows::decide(&self.catalog, NOW);
        let files = decide(&self.catalog, &entries, NOW);
        let mut changes = Changes::default();
        self.catalog.collect_into(&mut changes, &entries, files);
        (entries, changes)
    }

    async fn round(&mut self) -> Changes {
        let (entries, changes) = self.decide();
        if !changes.is_empty() {
            self.store.commit(&changes).await.unwrap();
        }
        let version = self.catalog.version();
        self.catalog.apply(&entries, &changes, version);
        changes
    }

    async fn stored(&self) -> Snapshot {
        self.store.load().await.unwrap()
    }

    /// The rows as the database has them, in place of those in memory.
    async fn reload(&mut self) {
        let mut snapshot = self.stored().await;
        let mut dags = StoredDags::default();
        dags.add(std::mem::take(&mut snapshot.documents).into_values());
        let rows = StoredRows::take(&mut snapshot);
        self.catalog.reload(rows, &mut dags);
    }

    fn known(&self) -> Vec<String> {
        let known = self.catalog.known().into_iter().map(|known| {
            let name = known.dag_id.as_deref().unwrap_or("-");
            let file = known.file.as_deref().unwrap_or("-");
            let error = known.error.as_deref().unwrap_or("fine");
            format!("{name} in {file}: {error}")
        });
        known.collect()
    }
}

#[tokio::test]
async fn a_parsed_file_becomes_rows_in_one_commit_and_again_is_the_same_version() {
    let mut world = World::new().await;
    world.see(&["a.py"], None);
    world.parse(
        "a.py",
        vec![said("a.py", "one", 0), said("a.py", "two", 0)],
        &[],
    );
    let changes = world.settle().await;
    assert_eq!((changes.dags.len(), changes.dag_versions.len()), (2, 2));
    assert_eq!(world.known(), ["one in a.py: fine", "two in a.py: fine"]);
    let details = world.catalog.manual_details("one", NOW);
    assert_eq!(details.dag_version, Some(changes.dag_versions[0].id));

    // Parsed again, and in another process.
    for is_restarted in [false, true] {
        if is_restarted {
            world.catalog = Catalog::default();
            world.reload().await;
            world.catalog.configure_bundles([BUNDLE.to_owned()]);
            world.see(&["a.py"], None);
            assert_eq!(world.known(), ["one in a.py: fine", "two in a.py: fine"]);
        }
        world.parse(
            "a.py",
            vec![said("a.py", "one", 0), said("a.py", "two", 0)],
            &[],
        );
        assert!(world.settle().await.is_empty());
    }
    // One of them says something else.
    world.parse(
        "a.py",
        vec![said("a.py", "one", 0), said("a.py", "two", 3)],
        &[],
    );
    let changes = world.settle().await;
    let [version] = &changes.dag_versions[..] else {
        panic!("{changes:?}");
    };
    assert_eq!((version.dag_id.as_str(), version.number), ("two", 2));
    let dag = world.catalog.known_dag("two").unwrap().dag.unwrap();
    assert_eq!(dag.tasks["t"].retries, 3);
}

#[tokio::test]
async fn a_lost_answer_to_the_commit_makes_no_second_version() {
    let mut world = World::new().await;
    world.see(&["a.py"], None);
    world.parse(
        "a.py",
        vec![said("a.py", "one", 0)],
        &[("a.py", "a warning")],
    );
    let (_, changes) = world.decide();
    world.store.commit(&changes).await.unwrap();
    world.reload().await;
    assert!(world.settle().await.is_empty());
    assert_eq!(world.stored().await.dag_versions.len(), 1);
}

#[tokio::test]
async fn import_errors_are_kept_and_shown_and_gone_when_the_file_is_mended() {
    let mut world = World::new().await;
    world.see(&["a.py", "b.py", "c.zip"], None);
    world.parse("a.py", vec![said("a.py", "one", 0)], &[]);
    world.parse("b.py", vec![], &[("b.py", "Traceback")]);
    world.parse(
        "c.zip",
        vec![],
        &[("c.zip/d.py", "Traceback"), ("/lib.py", "no")],
    );
    world.settle().await;
    let broken = [
        "- in b.py: Traceback",
        "- in c.zip: /lib.py: no",
        "- in c.zip/d.py: Traceback",
    ];
    assert_eq!(
        world.known(),
        [&["one in a.py: fine"], &broken[..]].concat()
    );

    // A DAG whose file breaks stays, starts nothing, and says why.
    world.parse("a.py", vec![], &[("a.py", "SyntaxError")]);
    world.settle().await;
    world.reload().await;
    assert_eq!(
        world.known(),
        [&["one in a.py: SyntaxError"], &broken[..]].concat()
    );

    world.parse("a.py", vec![said("a.py", "one", 0)], &[]);
    world.parse("b.py", vec![], &[]);
    world.see(&["a.py", "b.py"], None);
    world.settle().await;
    assert_eq!(world.known(), ["one in a.py: fine"]);
    assert_eq!(world.stored().await.import_errors, []);
}

#[tokio::test]
async fn a_dag_whose_file_or_bundle_goes_has_no_file_any_more_and_comes_back_as_it_was() {
    let mut world = World::new().await;
    for go in ["file", "dag", "bundle"] {
        world.catalog.configure_bundles([BUNDLE.to_owned()]);
        world.see(&["a.py"], None);
        world.parse("a.py", vec![said("a.py", "one", 0)], &[]);
        world.settle().await;
        world.catalog.pause("one", true);
        world.settle().await;
        assert_eq!(world.known(), ["one in a.py: fine"], "{go}");
        match go {
            "file" => world.see(&[], None),
            "dag" => world.parse("a.py", vec![], &[]),
            _ => world.catalog.configure_bundles([]),
        }
        world.settle().await;
        assert_eq!(world.known(), ["one in -: fine"], "{go}");
        assert!(world.catalog.known_dag("one").unwrap().is_paused, "{go}");
    }
    let rows = world.stored().await;
    assert_eq!(rows.dag_versions.len(), 1);
    assert!(!rows.bundles[0].is_active);
}

#[tokio::test]
async fn a_second_file_of_a_dag_is_refused_by_name_and_taken_when_the_first_is_gone() {
    let mut world = World::new().await;
    world.see(&["a.py", "b.py"], None);
    world.parse("b.py", vec![said("b.py", "one", 1)], &[]);
    world.settle().await;
    world.parse(
        "a.py",
        vec![said("a.py", "one", 0), said("a.py", "other", 0)],
        &[],
    );
    world.settle().await;
    let refused = "- in a.py: DAG `one` is in `b.py` already; give one of the two another `dag_id`, or remove it";
    assert_eq!(
        world.known(),
        ["one in b.py: fine", "other in a.py: fine", refused]
    );
    world.see(&["a.py"], None);
    world.settle().await;
    assert_eq!(world.known(), ["one in a.py: fine", "other in a.py: fine"]);
    assert_eq!(world.stored().await.import_errors, []);
}

#[tokio::test]
async fn container_dags_and_python_dags_of_one_name_do_not_take_it_from_each_other() {
    let yaml = |is_there: bool| {
        let text = "dag_id: one\ntasks: {t: {command: [x]}}\n";
        let dag = crate::document::parse("one.yaml", text).unwrap();
        let dag = dag.validate(&mut |_| unreachable!()).unwrap();
        let state = match is_there {
            true => FileState::Dag(Arc::new(dag)),
            false => FileState::Removed,
        };
        let name = "one.yaml".to_owned();
        vec![DagFile { name, state }]
    };
    let mut world = World::new().await;
    world.see(&["a.py"], None);
    world.catalog.update_files(yaml(true), NOW);
    world.settle().await;
    world.parse("a.py", vec![said("a.py", "one", 0)], &[]);
    world.settle().await;
    let known = world.known();
    assert_eq!(known[0], "one in one.yaml: fine");
    assert!(
        known[1].starts_with("- in a.py: DAG `one` is in `one.yaml`"),
        "{known:?}"
    );
    assert_eq!(world.catalog.manual_details("one", NOW).dag_version, None);

    world.catalog.update_files(yaml(false), NOW);
    world.settle().await;
    assert_eq!(world.known(), ["one in a.py: fine"]);
    world.catalog.update_files(yaml(true), NOW);
    world.settle().await;
    let known = world.known();
    assert_eq!(known[0], "one in a.py: fine");
    assert!(
        known[1].starts_with("- in one.yaml: DAG `one` is in `a.py`"),
        "{known:?}"
    );
    assert!(
        world
            .catalog
            .manual_details("one", NOW)
            .dag_version
            .is_some()
    );
}

#[tokio::test]
async fn a_dag_that_did_not_change_is_of_the_new_commit_and_of_the_same_version() {
    let mut world = World::new().await;
    world.see(&["a.py"], Some("c1"));
    world.parse("a.py", vec![said("a.py", "one", 0)], &[]);
    world.settle().await;
    world.see(&["a.py"], Some("c2"));
    let changes = world.settle().await;
    assert_eq!(changes.dag_versions[0].number, 1);
    let details = world.catalog.manual_details("one", NOW);
    assert_eq!(details.bundle_version.as_deref(), Some("c2"));
    assert_eq!(
        world.stored().await.bundles[0].bundle_version.as_deref(),
        Some("c2")
    );
}

#[test]
fn what_cannot_be_read_of_a_document_is_said_by_name() {
    let mut value: Value = document("odd", 0).to_json();
    value["dag"]["timetable"] = json!({
        "__type": "airflow.timetables.trigger.CronTriggerTimetable",
        "__var": {"expression": "61 * * * *", "timezone": "UTC", "interval": 0.0, "run_immediately": false},
    });
    let document = Document::read(value).unwrap();
    let why = Dag::of_document(&document).unwrap_err();
    assert!(
        why.to_string().starts_with("DAG `odd` has a timetable"),
        "{why}"
    );
}
