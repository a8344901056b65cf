//! Rounds of creating runs: tables, and a scheduler that dies and a clock that jumps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::timetable::{
    CronSchedule, CronTrigger, Delta,
    tests::laws::{moments, timetables},
};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hourly() -> Timetable {
    Timetable::CronTrigger(CronTrigger::at(CronSchedule::in_utc(
        "@hourly".parse().unwrap(),
    )))
}

fn dag(dag_id: &str, due: &str) -> ScheduledDag {
    ScheduledDag {
        dag_id: dag_id.to_owned(),
        is_paused: false,
        next: Some(NextRun::of(DataInterval::exact(time(due)))),
        n_active_runs: 0,
        max_active_runs: 16,
        timetable: hourly(),
        restriction: Restriction {
            catchup: true,
            ..Restriction::default()
        },
    }
}

const NOW: &str = "2026-01-01T12:30:00Z";

/// Whether a DAG is due, by what is special of it.
#[test]
fn only_what_is_due_and_allowed_gets_a_run() {
    let due = || dag("d", "2026-01-01T12:00:00Z");
    let cases = [
        ("due", due(), true),
        ("due this moment", dag("d", NOW), true),
        ("later", dag("d", "2026-01-01T12:30:00.000001Z"), false),
        (
            "paused",
            ScheduledDag {
                is_paused: true,
                ..due()
            },
            false,
        ),
        (
            "nothing next",
            ScheduledDag {
                next: None,
                ..due()
            },
            false,
        ),
        (
            "one run left",
            ScheduledDag {
                n_active_runs: 15,
                ..due()
            },
            true,
        ),
        (
            "all runs taken",
            ScheduledDag {
                n_active_runs: 16,
                ..due()
            },
            false,
        ),
        (
            "continuous and running",
            ScheduledDag {
                timetable: Timetable::Continuous,
                n_active_runs: 1,
                ..due()
            },
            false,
        ),
    ];
    for (name, dag, expected) in cases {
        let steps = decide(&[dag], &|_, _| Some(false), time(NOW));
        assert_eq!(!steps.is_empty(), expected, "{name}");
    }
}

#[test]
fn a_step_creates_one_run_and_advances_past_it() {
    let steps = decide(
        &[dag("d", "2026-01-01T09:00:00Z")],
        &|_, _| Some(false),
        time(NOW),
    );
    let [step] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    let new = step.create.as_ref().unwrap();
    assert_eq!(new.run_id, "scheduled__2026-01-01T09:00:00+00:00");
    assert_eq!(step.next.unwrap().run_after, time("2026-01-01T10:00:00Z"));
}

/// What was missed is left out: the run over the latest interval alone is made, as after a pause in Airflow.
#[test]
fn without_catchup_only_the_latest_of_what_was_missed_is_made() {
    let interval = DataInterval {
        start: time("2026-01-01T08:00:00Z"),
        end: time("2026-01-01T09:00:00Z"),
    };
    let cron = || CronSchedule::in_utc("@hourly".parse().unwrap());
    let hour = Delta::exact(SignedDuration::from_hours(1));
    let nine = NextRun::of(DataInterval::exact(time("2026-01-01T09:00:00Z")));
    let cases = [
        (hourly(), nine, "12:00", Some("13:00")),
        (
            Timetable::MultipleCronTrigger(vec![
                CronTrigger::at(CronSchedule::in_utc("0 9,11 * * *".parse().unwrap())),
                CronTrigger::at(CronSchedule::in_utc("30 10 * * *".parse().unwrap())),
            ]),
            nine,
            "11:00",
            Some("09:00"),
        ),
        (
            Timetable::CronDataInterval(cron()),
            NextRun::of(interval),
            "12:00",
            Some("13:00"),
        ),
        (
            Timetable::DeltaDataInterval(hour),
            NextRun::of(interval),
            "12:00",
            Some("13:00"),
        ),
        (Timetable::Once, nine, "09:00", None),
    ];
    for (timetable, next, expected, after) in cases {
        let mut missed = dag("d", NOW);
        (missed.next, missed.timetable) = (Some(next), timetable);
        missed.restriction.catchup = false;
        let name = format!("{:?}", missed.timetable);
        let steps = decide(&[missed], &|_, _| Some(false), time(NOW));
        let run = steps[0].create.as_ref().unwrap().run;
        let at = |clock: &str| time(&format!("2026-01-01T{clock}:00Z"));
        assert_eq!(run.run_after, at(expected), "{name}");
        assert_eq!(steps[0].last, run.data_interval);
        let next = steps[0].next.map(|next| next.run_after);
        let next = next.map(|next| next.strftime("%H:%M").to_string());
        assert_eq!(next.as_deref(), after, "{name}");
    }
}

#[test]
fn a_run_that_nobody_looked_for_waits_for_another_round() {
    let due = dag("d", "2026-01-01T09:00:00Z");
    assert_eq!(decide(&[due], &|_, _| None, time(NOW)), []);
}

#[test]
fn a_run_that_exists_only_advances_the_row() {
    let steps = decide(
        &[dag("d", "2026-01-01T09:00:00Z")],
        &|_, _| Some(true),
        time(NOW),
    );
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].create, None);
    assert_eq!(
        steps[0].next.unwrap().run_after,
        time("2026-01-01T10:00:00Z")
    );
}

#[test]
fn a_round_has_ten_runs_longest_due_first() {
    let dags: Vec<ScheduledDag> = (0..15)
        .map(|n| {
            dag(
                &format!("d{n:02}"),
                &format!("2026-01-01T{:02}:00:00Z", (n * 7) % 12),
            )
        })
        .collect();
    let steps = decide(&dags, &|_, _| Some(false), time(NOW));
    let ids: Vec<&str> = steps.iter().map(|step| step.dag_id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "d00", "d12", "d07", "d02", "d14", "d09", "d04", "d11", "d06", "d01"
        ]
    );
}

/// What a store keeps.
#[derive(Debug)]
struct Store {
    dag: ScheduledDag,
    last: Option<DataInterval>,
    /// By logical date; a schedule that creates a run twice breaks the law.
    runs: BTreeMap<Timestamp, NewRun>,
    ids: BTreeSet<String>,
}

/// What happens in one round.
#[derive(Clone, Debug)]
enum Event {
    /// The clock stands at another time, the step is applied whole.
    Round(Timestamp),
    /// The file has another schedule for a moment, and this one again: the row is made anew from the latest run.
    Refresh(Timestamp),
    /// A user requests a run about the logical date that comes next.
    Manual,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (moments(), 0..6).prop_map(|(now, kind)| match kind {
        0 => Event::Manual,
        1 => Event::Refresh(now),
        _ => Event::Round(now),
    });
    prop::collection::vec(event, 1..60)
}

impl Store {
    fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let now = match event {
            Event::Round(now) => *now,
            Event::Refresh(now) => {
                self.dag.next = self.dag.next_after(self.last.as_ref(), *now);
                return Ok(());
            }
            Event::Manual => {
                if let Some(run) = self.dag.next {
                    let run_id = format!("manual__{}", run.logical_date);
                    let new = NewRun { run_id, run };
                    self.runs.entry(run.logical_date).or_insert(new);
                }
                return Ok(());
            }
        };
        let exists = |_: &str, new: &NewRun| {
            let is_there = self.runs.contains_key(&new.run.logical_date);
            Some(is_there || self.ids.contains(&new.run_id))
        };
        for step in decide(std::slice::from_ref(&self.dag), &exists, now) {
            if let Some(new) = step.create {
                prop_assert!(new.run.run_after <= now);
                prop_assert!(self.ids.insert(new.run_id.clone()), "{new:?} twice");
                let twice = self.runs.insert(new.run.logical_date, new);
                prop_assert_eq!(twice, None);
            }
            self.dag.next = step.next;
            self.last = Some(step.last);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_interval_is_run_twice_and_with_catchup_none_is_lost(
        timetable in timetables(),
        earliest in moments(),
        catchup in any::<bool>(),
        first_clock in moments(),
        events in events(),
    ) {
        let restriction = Restriction { earliest: Some(earliest), latest: None, catchup };
        let next = timetable.next_run(None, &restriction, first_clock);
        let dag = ScheduledDag { next, timetable: timetable.clone(), restriction, ..dag("d", NOW) };
        let mut store = Store { dag, last: None, runs: BTreeMap::new(), ids: BTreeSet::new() };
        let mut latest_clock = None;
        for event in &events {
            store.apply(event)?;
            if let Event::Round(now) = event {
                latest_clock = latest_clock.max(Some(*now));
            }
        }
        if !catchup {
            return Ok(());
        }
        // Exactly the first runs of the timetable, and all that are due once there was time enough.
        let oracle = |last: Option<&DataInterval>| timetable.next_run(last, &restriction, earliest);
        let expected = std::iter::successors(oracle(None), |run| oracle(Some(&run.data_interval)));
        for (run, created) in expected.zip(store.runs.values()) {
            prop_assert_eq!(run, created.run);
        }
        let Some(now) = latest_clock else { return Ok(()) };
        let now = now.max(earliest + SignedDuration::from_hours(24));
        let limit = now.min(earliest + SignedDuration::from_hours(5 * 24));
        // Each round is one run: it ends where nothing more is due.
        while store.dag.next.is_some_and(|next| next.run_after <= limit) {
            store.apply(&Event::Round(limit))?;
        }
        let due = std::iter::successors(oracle(None), |run| oracle(Some(&run.data_interval)));
        for run in due.take_while(|run| run.run_after <= limit) {
            prop_assert!(store.runs.contains_key(&run.logical_date), "{run:?} lost");
        }
    }
}
