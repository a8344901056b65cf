//! The catalog against a database that loses answers, and tables of what files do to rows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::Next;
use longshore_store::Dag as Row;

use proptest::prelude::*;

use super::{due::ExistingRuns, *};
use crate::{
    document,
    scheduler::{
        board::Board,
        facts::{Fact, NewRun},
    },
    timetable::tests::laws::{moments, timetables},
};

const NOON: &str = "2026-01-01T12:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn dag(head: &str) -> Arc<Dag> {
    let text = format!("{head}\ntasks: {{t: {{command: [x]}}}}\n");
    let document = document::parse("test.yaml", &text).unwrap();
    let read = &mut |_: &str| unreachable!("the DAG has no files");
    Arc::new(document.validate(read).unwrap())
}

fn file(name: &str, head: &str) -> DagFile {
    DagFile {
        name: name.to_owned(),
        state: FileState::Dag(dag(head)),
    }
}

fn broken(name: &str) -> DagFile {
    DagFile {
        name: name.to_owned(),
        state: FileState::Broken("a mistake".to_owned()),
    }
}

fn removed(name: &str) -> DagFile {
    DagFile {
        name: name.to_owned(),
        state: FileState::Removed,
    }
}

const HOURLY: &str = "dag_id: a\nschedule: '@hourly'\nstart_date: 2026-01-01";

/// A catalog with its database.
#[derive(Default)]
struct World {
    catalog: Catalog,
    board: Board,
    /// What the database has.
    rows: BTreeMap<String, Row>,
    documents: BTreeMap<DocumentHash, StoredDocument>,
    /// Runs ever created.
    created: Vec<String>,
    next: Option<Next>,
}

impl World {
    fn told(files: Vec<DagFile>) -> Self {
        let mut world = Self::default();
        world.update_files(files);
        world
    }

    fn update_files(&mut self, files: Vec<DagFile>) {
        self.catalog.update_files(files, time(NOON));
        self.settle(NOON);
    }

    fn settle(&mut self, now: &str) -> usize {
        let changed = rows::decide(&self.catalog, time(now));
        self.commit(&changed);
        assert!(self.catalog.is_settled());
        assert_eq!(rows::decide(&self.catalog, time(now)), []);
        changed.len()
    }

    fn store(&mut self, entries: &[Entry]) {
        for Entry { row, document, .. } in entries {
            let known = self.rows.get(&row.dag_id);
            assert_eq!(row.version, known.map_or(0, |row| row.version), "conflict");
            if let Some(document) = document {
                let hash = document.hash().clone();
                self.documents.insert(hash, document.clone());
            }
            assert!(self.documents.contains_key(&row.document_hash));
            let row = Row {
                version: row.version + 1,
                ..row.clone()
            };
            self.rows.insert(row.dag_id.clone(), row);
        }
    }

    fn stored(&self) -> (StoredRows, StoredDags) {
        let mut dags = StoredDags::default();
        dags.add(self.documents.values().cloned());
        let rows = StoredRows {
            dags: self.rows.values().cloned().collect(),
            ..StoredRows::default()
        };
        (rows, dags)
    }

    fn loaded(&self) -> Catalog {
        let (rows, mut dags) = self.stored();
        Catalog::load(rows, &mut dags)
    }

    fn commit(&mut self, entries: &[Entry]) {
        self.store(entries);
        let told = self.catalog.version();
        self.catalog.apply(entries, &Changes::default(), told);
    }

    /// The process starts again, and the folder is told again.
    fn restart(&mut self, files: Vec<DagFile>) {
        self.catalog = self.loaded();
        self.update_files(files);
    }

    /// One round of the schedules; answers the runs that it creates.
    fn round(&mut self, now: &str, facts: &[Fact]) -> Vec<String> {
        let now = time(now);
        let looked = due::candidates(&self.catalog, &self.board, now);
        let looked: ExistingRuns = looked
            .into_iter()
            .map(|(key, _)| (key.clone(), self.created.contains(&key.run_id)))
            .collect();
        let due = due::decide(&self.catalog, &self.board, facts, &looked, now);
        self.commit(&due.entries);
        self.next = Some(due.next);
        let ids: Vec<String> = due.runs.into_iter().map(|new| new.run_id).collect();
        self.created.extend(ids.clone());
        ids
    }

    fn row(&self, dag_id: &str) -> &Row {
        &self.catalog.entry(dag_id).unwrap().row
    }

    fn next_run(&self, dag_id: &str) -> Option<String> {
        let next = self.row(dag_id).next_run?;
        Some(next.run_after.to_string())
    }

    fn known(&self) -> Vec<String> {
        let word = |known: KnownDag| {
            let name = known.dag_id.as_deref().unwrap_or("-");
            let file = known.file.as_deref().unwrap_or("-");
            let error = known.error.as_deref().unwrap_or("fine");
            format!("{name} in {file}: {error}")
        };
        self.catalog.known().into_iter().map(word).collect()
    }
}

/// A look at the folder: `file=what` for each news, where what is a DAG, `!` for a mistake, or `-` for gone.
fn look(news: &str) -> Vec<DagFile> {
    let told = |told: &str| {
        let (name, what) = told.split_once('=').unwrap();
        match what {
            "!" => broken(name),
            "-" => removed(name),
            dag_id => file(name, &format!("dag_id: {dag_id}\ndescription: from {name}")),
        }
    };
    news.split_whitespace().map(told).collect()
}

#[test]
fn what_files_do_to_dags() {
    let is_taken = "DAG `a` is in `f` already; give one of the two another `dag_id`, or remove it";
    let taken = format!("- in g: {is_taken}");
    let taken_earlier = taken.replace("in g", "in e");
    for (name, looks, expected) in [
        ("new", &["f=a"][..], &["a in f: fine"][..]),
        ("removed", &["f=a", "f=-"], &["a in -: fine"]),
        ("back in another", &["f=a", "f=-", "g=a"], &["a in g: fine"]),
        ("moved in one look", &["f=a", "g=a f=-"], &["a in g: fine"]),
        ("broken", &["f=a", "f=!"], &["a in f: a mistake"]),
        ("repaired", &["f=a", "f=!", "f=a"], &["a in f: fine"]),
        ("never a DAG", &["f=!"], &["- in f: a mistake"]),
        (
            "broken and moved",
            &["f=a", "f=! g=a"],
            &["a in g: fine", "- in f: a mistake"],
        ),
        ("two of a name", &["f=a g=a"], &["a in f: fine", &taken]),
        (
            "an earlier file is no reason to move",
            &["f=a", "e=a"],
            &["a in f: fine", &taken_earlier],
        ),
        (
            "two of a name, the first removed",
            &["f=a g=a", "f=-"],
            &["a in g: fine"],
        ),
        (
            "renamed",
            &["f=a", "f=b"],
            &["a in -: fine", "b in f: fine"],
        ),
    ] {
        let mut world = World::default();
        for news in looks {
            world.update_files(look(news));
        }
        assert_eq!(world.known(), expected, "{name}");
    }
}

#[test]
fn a_broken_file_keeps_the_last_good_document_and_the_schedule_stands_still() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    world.update_files(vec![broken("a.yaml")]);
    let entry = world.catalog.entry("a").unwrap();
    assert_eq!(entry.dag, Some(dag(HOURLY)));
    let stored = StoredDocument::of(&dag(HOURLY).to_json());
    assert_eq!(world.rows["a"].document_hash, *stored.hash());
    assert!(world.round("2026-01-01T15:00:00Z", &[]).is_empty());
    assert_eq!(world.catalog.known_dag("a").unwrap().next_run, None);
    world.update_files(vec![file("a.yaml", HOURLY)]);
    let made = world.round("2026-01-01T15:00:00Z", &[]);
    assert_eq!(made, ["scheduled__2026-01-01T15:00:00+00:00"]);
}

#[test]
fn a_restart_changes_no_row_of_a_folder_that_is_as_it_was() {
    let files = || vec![file("a.yaml", HOURLY), file("b.yaml", "dag_id: b")];
    let mut world = World::told(files());
    let before = world.rows.clone();
    world.restart(files());
    assert_eq!(world.rows, before);
}

/// The first look also finds what happened to the folder while no scheduler ran.
#[test]
fn a_file_that_went_away_while_nothing_ran_is_noticed_at_the_first_look() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    world.restart(vec![]);
    assert_eq!(world.row("a").file, None);
    assert!(world.round("2026-01-02T00:00:00Z", &[]).is_empty());
    assert_eq!(world.next, Some(Next::AwaitChange));
}

/// Another command on the same database must not run what a service has.
#[test]
fn without_a_folder_no_schedule_makes_runs() {
    let world = World::told(vec![file("a.yaml", HOURLY)]);
    let mut other = World {
        catalog: world.loaded(),
        ..World::default()
    };
    assert_eq!(other.settle(NOON), 0);
    assert!(other.round("2026-01-02T00:00:00Z", &[]).is_empty());
    assert_eq!(other.next, Some(Next::AwaitChange));
    assert!(other.catalog.entry("a").is_some());
}

#[test]
fn a_new_dag_is_paused_where_its_file_says_so_and_later_where_people_say() {
    let paused = format!("{HOURLY}\nis_paused_upon_creation: true");
    let mut world = World::told(vec![file("a.yaml", &paused)]);
    assert!(world.row("a").is_paused);
    assert!(world.round("2026-01-01T15:30:00Z", &[]).is_empty());
    world.catalog.pause("a", false);
    assert!(world.catalog.is_pausing("a"));
    world.settle(NOON);
    assert!(!world.catalog.is_pausing("a"));
    // Only the latest of what was missed.
    let made = world.round("2026-01-01T15:30:00Z", &[]);
    assert_eq!(made, ["scheduled__2026-01-01T15:00:00+00:00"]);
    assert_eq!(world.next_run("a").unwrap(), "2026-01-01T16:00:00Z");
    // The file does not say so again.
    world.update_files(vec![file("a.yaml", &format!("{paused}\ndescription: new"))]);
    assert!(!world.row("a").is_paused);
}

#[test]
fn pausing_what_is_paused_settles_without_a_change() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    world.catalog.pause("a", true);
    world.catalog.pause("a", false);
    assert_eq!(world.settle(NOON), 0);
    assert!(!world.catalog.is_pausing("a"));
}

#[test]
fn catchup_makes_every_run_one_in_a_round_and_a_later_start_leaves_none_twice() {
    let head = format!("{HOURLY}\ncatchup: true");
    let mut world = World::told(vec![file("a.yaml", &head)]);
    for hour in 0..=12 {
        let made = world.round("2026-01-01T12:30:00Z", &[]);
        assert_eq!(
            made,
            [format!("scheduled__2026-01-01T{hour:02}:00:00+00:00")]
        );
        assert_eq!(world.next, Some(Next::After(Duration::ZERO)));
        if hour == 5 {
            world.restart(vec![file("a.yaml", &head)]);
        }
    }
    assert!(world.round("2026-01-01T12:30:00Z", &[]).is_empty());
    // An earlier start does not go back, as in Airflow.
    let earlier = head.replace("2026-01-01", "2025-12-31");
    world.update_files(vec![file("a.yaml", &earlier)]);
    assert_eq!(world.next_run("a").unwrap(), "2026-01-01T13:00:00Z");
}

#[test]
fn another_schedule_goes_on_after_the_latest_run() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    assert_eq!(
        world.round(NOON, &[]),
        ["scheduled__2026-01-01T12:00:00+00:00"]
    );
    let cases = [
        ("schedule: '@daily'", Some("2026-01-02T00:00:00Z")),
        ("schedule: '30 * * * *'", Some("2026-01-01T12:30:00Z")),
        ("schedule: '@once'", None),
        ("description: none", None),
        ("schedule: '@hourly'\nend_date: 2026-01-01T12:30:00Z", None),
        (
            "schedule: '@hourly'\nstart_date: 2026-03-01",
            Some("2026-03-01T00:00:00Z"),
        ),
        ("schedule: '@hourly'", Some("2026-01-01T13:00:00Z")),
    ];
    for (schedule, expected) in cases {
        world.update_files(vec![file("a.yaml", &format!("dag_id: a\n{schedule}"))]);
        assert_eq!(world.next_run("a").as_deref(), expected, "{schedule}");
    }
}

#[test]
fn once_is_once_whatever_is_started_again() {
    let once = || vec![file("a.yaml", "dag_id: a\nschedule: '@once'")];
    let mut world = World::told(once());
    assert_eq!(world.round(NOON, &[]).len(), 1);
    world.restart(once());
    assert!(world.round("2027-01-01T00:00:00Z", &[]).is_empty());
}

/// What a schedule promised stays, although the clock is past it when the process comes back.
#[test]
fn a_restart_at_the_wrong_moment_loses_no_run() {
    let head = "dag_id: a\nschedule: '@hourly'";
    let mut world = World::default();
    world
        .catalog
        .update_files(vec![file("a.yaml", head)], time(NOON));
    world.settle("2026-01-01T12:30:00Z");
    assert_eq!(world.next_run("a").unwrap(), "2026-01-01T13:00:00Z");
    world.catalog = world.loaded();
    world
        .catalog
        .update_files(vec![file("a.yaml", head)], time(NOON));
    world.settle("2026-01-01T13:50:00Z");
    let made = world.round("2026-01-01T13:50:00Z", &[]);
    assert_eq!(made, ["scheduled__2026-01-01T13:00:00+00:00"]);
}

#[test]
fn a_run_that_is_there_or_asked_for_is_not_made_again() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    let new = |run_id: &str, logical_date: &str| {
        Fact::RunRequested(NewRun {
            logical_date: Some(time(logical_date)),
            ..NewRun::manual(dag(HOURLY), run_id.to_owned())
        })
    };
    let asked = [new("mine", "2026-01-01T12:00:00Z")];
    assert!(world.round("2026-01-01T12:30:00Z", &asked).is_empty());
    assert_eq!(world.next_run("a").unwrap(), "2026-01-01T13:00:00Z");
    world
        .created
        .push("scheduled__2026-01-01T13:00:00+00:00".to_owned());
    assert!(world.round("2026-01-01T13:30:00Z", &[]).is_empty());
    let other = [new("mine", "2026-01-01T12:00:00Z")];
    let made = world.round("2026-01-01T14:00:00Z", &other);
    assert_eq!(made, ["scheduled__2026-01-01T14:00:00+00:00"]);
}

#[test]
fn a_schedule_waits_for_its_time_and_looks_at_the_clock_every_minute() {
    let mut world = World::told(vec![file("a.yaml", HOURLY)]);
    world.round(NOON, &[]);
    let cases = [
        ("2026-01-01T12:00:00Z", 60),
        ("2026-01-01T12:59:59Z", 1),
        ("1970-01-01T00:00:00Z", 60),
    ];
    for (now, seconds) in cases {
        assert!(world.round(now, &[]).is_empty());
        let expected = Next::After(Duration::from_secs(seconds));
        assert_eq!(world.next, Some(expected), "{now}");
    }
}

/// Years too early because of a wrong clock: what was made then is not made again.
#[test]
fn a_clock_that_was_far_ahead_makes_no_run_twice() {
    let mut world = World::told(vec![file("a.yaml", &format!("{HOURLY}\ncatchup: true"))]);
    for now in ["2026-01-01T03:00:00Z", "2031-01-01T00:00:00Z", NOON] {
        for _ in 0..20 {
            world.round(now, &[]);
        }
    }
    let mut distinct = world.created.clone();
    distinct.dedup();
    assert_eq!(distinct, world.created);
    assert_eq!(world.created.len(), 24);
}

/// Without catchup it would stand still until then, else.
#[test]
fn a_schedule_recovers_from_a_clock_that_was_far_ahead() {
    for schedule in ["'@hourly'", "1h", "['0 * * * *', '30 5 * * *']"] {
        let head = format!("dag_id: a\nschedule: {schedule}\nstart_date: 2026-01-01");
        let files = || vec![file("a.yaml", &head)];
        let mut world = World::told(files());
        assert_eq!(world.round("2031-01-01T00:00:00Z", &[]).len(), 1);
        assert_eq!(world.next_run("a").unwrap(), "2031-01-01T01:00:00Z");
        world.restart(files());
        let made = world.round("2026-01-01T12:30:00Z", &[]);
        assert_eq!(made, ["scheduled__2026-01-01T12:00:00+00:00"], "{schedule}");
        assert_eq!(world.next_run("a").unwrap(), "2026-01-01T13:00:00Z");
        // And what is promised rightly stays.
        let before = world.rows.clone();
        world.restart(files());
        assert_eq!(world.rows, before, "{schedule}");
    }
}

/// The commit happened, its answer did not come: the rows are read again, and nothing follows twice.
#[test]
fn a_lost_answer_changes_nothing() {
    let mut world = World::default();
    world
        .catalog
        .update_files(vec![file("a.yaml", HOURLY)], time(NOON));
    world.catalog.pause("a", true);
    let changed = rows::decide(&world.catalog, time(NOON));
    world.store(&changed);
    let (rows, mut dags) = world.stored();
    world.catalog.reload(rows, &mut dags);
    assert!(world.catalog.is_pausing("a"));
    assert_eq!(world.settle(NOON), 0);
    assert!(!world.catalog.is_pausing("a"));
}

#[test]
fn what_is_told_during_a_commit_is_not_settled_by_it() {
    let mut world = World::default();
    world
        .catalog
        .update_files(vec![file("a.yaml", HOURLY)], time(NOON));
    let seen = world.catalog.clone();
    let changed = rows::decide(&seen, time(NOON));
    world.catalog.pause("a", true);
    world.store(&changed);
    world
        .catalog
        .apply(&changed, &Changes::default(), seen.version());
    assert!(!world.catalog.is_settled());
    assert_eq!(world.settle(NOON), 1);
    assert!(world.row("a").is_paused);
}

proptest! {
    /// Whenever the service starts again, a clock that goes forward leaves what is promised as it is.
    #[test]
    fn what_is_promised_stays_while_the_clock_goes_forward(
        timetable in timetables(),
        earliest in prop::option::of(moments()),
        latest in prop::option::of(moments()),
        catchup in any::<bool>(),
        mut clocks in prop::collection::vec(moments(), 1..6),
    ) {
        clocks.sort();
        let mut read = Dag::clone(&dag("dag_id: a"));
        (read.timetable, read.start_date, read.end_date, read.catchup) =
            (timetable, earliest, latest, catchup);
        let read = Arc::new(read);
        let files = || {
            let state = FileState::Dag(Arc::clone(&read));
            vec![DagFile { name: "a.yaml".to_owned(), state }]
        };
        let mut world = World::default();
        let mut promised = None;
        for now in clocks {
            let now = now.to_string();
            world.catalog = world.loaded();
            world.catalog.update_files(files(), time(NOON));
            world.settle(&now);
            let next = world.row("a").next_run;
            prop_assert!(promised.is_none() || promised == Some(next), "{:?} is now {:?}", promised, next);
            while !world.round(&now, &[]).is_empty() && world.created.len() < 30 {}
            promised = Some(world.row("a").next_run).filter(Option::is_some);
        }
        let mut distinct = world.created.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), world.created.len());
    }
}
