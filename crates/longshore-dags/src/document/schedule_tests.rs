//! What a DAG file may say of when the DAG runs.

use serde_json::{Value, json};

use super::*;

fn validated(fields: &str) -> Result<Dag, Problems> {
    let text = format!("dag_id: d\n{fields}\ntasks: {{a: {{image: i}}}}\n");
    parse("dag.yaml", &text)?.validate(&mut |_| Err(io::ErrorKind::NotFound.into()))
}

fn encoded(fields: &str) -> Value {
    let dag = validated(fields).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(Dag::from_text(&dag.to_json().to_string()).unwrap(), dag);
    dag.timetable.to_encoded()
}

#[test]
fn schedules_become_the_timetables_that_airflow_makes_of_them() {
    let cron = |expression: &str, zone: &str| {
        let fields = json!({"expression": expression, "timezone": zone, "interval": 0.0, "run_immediately": false});
        json!({"__type": "airflow.timetables.trigger.CronTriggerTimetable", "__var": fields})
    };
    let step = |delta: Value| json!({"__type": "airflow.timetables.trigger.DeltaTriggerTimetable", "__var": {"delta": delta, "interval": 0.0}});
    let simple =
        |class: &str| json!({"__type": format!("airflow.timetables.simple.{class}"), "__var": {}});
    for (fields, expected) in [
        ("", simple("NullTimetable")),
        ("schedule: null", simple("NullTimetable")),
        ("schedule: '@once'", simple("OnceTimetable")),
        ("schedule: '@continuous'", simple("ContinuousTimetable")),
        ("schedule: '@daily'", cron("0 0 * * *", "UTC")),
        ("schedule: '@Monthly'", cron("0 0 1 * *", "UTC")),
        ("schedule: 0 6 * * MON-fri", cron("0 6 * * MON-fri", "UTC")),
        (
            "schedule: 0 6 * * *\ntimezone: Europe/Berlin",
            cron("0 6 * * *", "Europe/Berlin"),
        ),
        ("schedule: 30m", step(json!(1800.0))),
        ("schedule: 1h 30m", step(json!(5400.0))),
        ("schedule: PT5M", step(json!(300.0))),
        ("schedule: 90", step(json!(90.0))),
        ("schedule: {days: 1, hours: 0.5}", step(json!(88_200.0))),
        (
            "schedule: {months: 1, years: 1}",
            step(json!({"months": 13, "seconds": 0.0})),
        ),
        (
            "schedule: [0 6 * * *, 0 18 * * *]",
            json!({"__type": "airflow.timetables.trigger.MultipleCronTriggerTimetable", "__var":
                {"expressions": ["0 6 * * *", "0 18 * * *"], "timezone": "UTC", "interval": 0.0, "run_immediately": false}}),
        ),
    ] {
        assert_eq!(encoded(fields), expected, "of {fields}");
    }
}

#[test]
fn dates_without_offset_are_by_the_clock_of_the_dag() {
    for (fields, start, end) in [
        (
            "start_date: 2026-01-31\nend_date: 2026-02-01T06:00:00",
            "2026-01-31T00:00:00Z",
            "2026-02-01T06:00:00Z",
        ),
        (
            "timezone: Europe/Berlin\nstart_date: 2026-01-31\nend_date: 2026-07-01T06:00:00",
            "2026-01-30T23:00:00Z",
            "2026-07-01T04:00:00Z",
        ),
        (
            "timezone: Europe/Berlin\nstart_date: 2026-01-31T00:00:00Z\nend_date: 2026-01-31T00:00:00+00:00",
            "2026-01-31T00:00:00Z",
            "2026-01-31T00:00:00Z",
        ),
    ] {
        let dag = validated(fields).unwrap();
        assert_eq!(dag.start_date, Some(start.parse().unwrap()), "of {fields}");
        assert_eq!(dag.end_date, Some(end.parse().unwrap()), "of {fields}");
    }
}

#[test]
fn a_date_with_a_time_zone_in_brackets_is_refused_and_not_read_as_another_one() {
    for date in [
        "2026-11-27T00:00:00[America/New_York]",
        "2026-07-10T00:00:00[Europe/Berlin]",
        "2026-11-27T00:00:00-05:00[Asia/Tokyo]",
        "2026-11-27T05:00:00Z[UTC]",
    ] {
        for field in ["start_date", "end_date"] {
            let problems = validated(&format!("{field}: '{date}'")).expect_err(date);
            let told = problems.to_string();
            let expected =
                format!("`{field}` of the DAG must be a date without a time zone in brackets");
            assert!(told.contains(&expected), "{told}");
        }
    }
}

#[test]
fn a_continuous_dag_has_one_run_at_a_time() {
    assert_eq!(
        validated("schedule: '@continuous'")
            .unwrap()
            .max_active_runs,
        1
    );
    assert_eq!(validated("schedule: '@daily'").unwrap().max_active_runs, 16);
}

#[test]
fn problems_of_schedules_have_their_place() {
    let problems: Vec<String> = [
        "schedule: '* 24 * * *'",
        "schedule: \"0 6 * * mon-fry\"",
        "schedule: 0 6 * *",
        "schedule: 0 0 30 2 *",
        "schedule: 0 0 15W * 1",
        "schedule: '*/0 * * * *'",
        "schedule: [0 6 * * *, 0 6 32 * *, 0 6]",
        "schedule: []",
        "schedule: [1]",
        "schedule: '@dayly'",
        "schedule: true",
        "schedule: 0",
        "schedule: 0s",
        "schedule: P1M",
        "schedule: 999999w",
        "schedule: {day: 1}",
        "schedule: {days: one}",
        "schedule: {months: 0.5}",
        "schedule: {days: -1}",
        "schedule: {}",
        "schedule: {years: 99999}",
        "schedule: '@continuous'\nmax_active_runs: 2",
        "timezone: Europe/Berln",
        "timezone: Mars",
        "timezone: 1",
        "start_date: soon\nend_date: [1]\ncatchup: 1",
        "start_date: 2026-02-01\nend_date: 2026-01-01",
    ]
    .into_iter()
    .map(|fields| {
        let problems = validated(fields).expect_err(fields);
        format!("{fields}\n{problems}\n")
    })
    .collect();
    insta::assert_snapshot!(problems.join("\n"));
}
