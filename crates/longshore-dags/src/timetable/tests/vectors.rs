//! What Airflow and croniter answered.

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

#[derive(Deserialize)]
struct Recorded {
    dag_id: String,
    timetable: Value,
    catchup: bool,
    now: Timestamp,
    earliest: Timestamp,
    next: Vec<NextRun2>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct NextRun2 {
    run_after: Timestamp,
    data_interval: (Timestamp, Timestamp),
    logical_date: Timestamp,
}

impl From<NextRun> for NextRun2 {
    fn from(run: NextRun) -> Self {
        Self {
            run_after: run.run_after,
            data_interval: (run.data_interval.start, run.data_interval.end),
            logical_date: run.logical_date,
        }
    }
}

/// At most `n` runs in a row.
fn chain(
    timetable: &Timetable,
    restriction: &Restriction,
    now: Timestamp,
    n: usize,
) -> Vec<NextRun> {
    let next = |last: Option<&DataInterval>| timetable.next_run(last, restriction, now);
    std::iter::successors(next(None), |run| next(Some(&run.data_interval)))
        .take(n)
        .collect()
}

#[test]
fn the_runs_of_sample_dags_are_those_of_airflow() {
    let text = include_str!("../../../testdata/timetables/timetable-next-run.json");
    let recorded: Vec<Recorded> = serde_json::from_str(text).unwrap();
    assert_eq!(recorded.len(), 20);
    for case in recorded {
        let timetable = Timetable::from_encoded(&case.timetable).unwrap();
        let restriction = Restriction {
            earliest: Some(case.earliest),
            latest: None,
            catchup: case.catchup,
        };
        let runs = chain(&timetable, &restriction, case.now, 6);
        let runs: Vec<NextRun2> = runs.into_iter().map(NextRun2::from).collect();
        assert_eq!(
            runs, case.next,
            "of {} catchup {}",
            case.dag_id, case.catchup
        );
        let class = case.timetable["__type"].as_str().unwrap();
        let is_unsupported =
            matches!(&timetable, Timetable::Unsupported { class: kept } if kept == class);
        assert_eq!(is_unsupported, class.contains("Asset"));
        if !is_unsupported {
            assert_eq!(timetable.to_encoded(), case.timetable);
        }
    }
}

#[derive(Debug, Deserialize)]
struct Chain {
    timetable: Value,
    now: Timestamp,
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
    catchup: bool,
    /// Logical date, start, end, run after; `null` where no run follows.
    next: Vec<Option<[Timestamp; 4]>>,
    manual: [Timestamp; 2],
}

#[test]
fn many_timetables_zones_and_clocks_answer_as_airflow_does() {
    let text = include_str!("../../../testdata/timetables/airflow.json");
    let recorded: Vec<Chain> = serde_json::from_str(text).unwrap();
    assert_eq!(recorded.len(), 356);
    for case in &recorded {
        let timetable = Timetable::from_encoded(&case.timetable).unwrap();
        let restriction = Restriction {
            earliest: case.earliest,
            latest: case.latest,
            catchup: case.catchup,
        };
        let expected: Vec<[Timestamp; 4]> = case.next.iter().copied().flatten().collect();
        let runs: Vec<[Timestamp; 4]> = chain(&timetable, &restriction, case.now, 6)
            .into_iter()
            .map(|run| {
                let interval = run.data_interval;
                [
                    run.logical_date,
                    interval.start,
                    interval.end,
                    run.run_after,
                ]
            })
            .collect();
        assert_eq!(runs, expected, "of {case:?}");
        let manual = timetable.manual_interval(case.now);
        assert_eq!([manual.start, manual.end], case.manual, "of {case:?}");
    }
}

#[derive(Deserialize)]
struct Croniter {
    valid: Vec<Times>,
    invalid: Vec<String>,
}

#[derive(Deserialize)]
struct Times {
    expression: String,
    start: jiff::civil::DateTime,
    next: Vec<jiff::civil::DateTime>,
    previous: Vec<jiff::civil::DateTime>,
}

#[test]
fn cron_expressions_mean_what_they_mean_to_croniter() {
    let text = include_str!("../../../testdata/timetables/croniter.json");
    let recorded: Croniter = serde_json::from_str(text).unwrap();
    assert!(recorded.valid.len() > 300);
    let mut differences = Vec::new();
    for case in recorded.valid {
        let cron: CronExpression = match case.expression.parse() {
            Ok(cron) => cron,
            Err(error) => {
                differences.push(format!("{}: {error}", case.expression));
                continue;
            }
        };
        let next = std::iter::successors(cron.next(case.start), |at| cron.next(*at));
        let next: Vec<_> = next.take(case.next.len().max(1)).collect();
        let previous = std::iter::successors(cron.previous(case.start), |at| cron.previous(*at));
        let previous: Vec<_> = previous.take(case.previous.len().max(1)).collect();
        if next != case.next || previous != case.previous {
            differences.push(format!(
                "{} from {}:\n next {next:?}\n  not {:?}\n previous {previous:?}\n  not {:?}",
                case.expression, case.start, case.next, case.previous
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for text in recorded.invalid {
        assert!(text.parse::<CronExpression>().is_err(), "{text} was read");
    }
}

#[test]
fn encoded_forms_read_back_and_broken_ones_are_refused() {
    let encoded = |class: &str, fields: Value| json!({"__type": format!("airflow.timetables.{class}"), "__var": fields});
    for (encoded, expected) in [
        (
            json!({}),
            "needs the name of a class as `__type`, but has null",
        ),
        (
            encoded("trigger.CronTriggerTimetable", json!({"timezone": "UTC"})),
            "needs a cron expression as `expression`, but has null",
        ),
        (
            encoded(
                "trigger.CronTriggerTimetable",
                json!({"expression": "x", "timezone": "UTC"}),
            ),
            "has a cron expression that cannot be read",
        ),
        (
            encoded(
                "interval.CronDataIntervalTimetable",
                json!({"expression": "@daily", "timezone": "Mars/Base"}),
            ),
            "needs a time zone as `timezone`, but has \"Mars/Base\"",
        ),
        (
            encoded("interval.DeltaDataIntervalTimetable", json!({"delta": 0.0})),
            "needs a step forward as `delta`, but has 0.0",
        ),
        (
            encoded(
                "interval.DeltaDataIntervalTimetable",
                json!({"delta": {"day": 3}}),
            ),
            "needs seconds, or the years to microseconds of a relativedelta as `delta`",
        ),
        (
            encoded(
                "trigger.MultipleCronTriggerTimetable",
                json!({"expressions": [], "timezone": "UTC"}),
            ),
            "needs a list of cron expressions as `expressions`, but has []",
        ),
    ] {
        let error = Timetable::from_encoded(&encoded).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let text = include_str!("../../../testdata/timetables/airflow.json");
    for case in serde_json::from_str::<Vec<Chain>>(text).unwrap() {
        let timetable = Timetable::from_encoded(&case.timetable).unwrap();
        assert_eq!(
            Timetable::from_encoded(&timetable.to_encoded()).unwrap(),
            timetable
        );
    }
    let custom = json!({"__type": "my.plugin.Workdays", "__var": {"country": "FR"}});
    let timetable = Timetable::from_encoded(&custom).unwrap();
    assert_eq!(
        timetable.next_run(None, &Restriction::default(), time("2026-01-01T00:00:00Z")),
        None
    );
    assert_eq!(timetable.to_encoded()["__type"], "my.plugin.Workdays");
}
