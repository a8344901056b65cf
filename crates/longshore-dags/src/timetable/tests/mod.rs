//! Timetables against what Airflow answered, and against their laws.

mod cron;
pub(crate) mod laws;
mod vectors;

use jiff::Timestamp;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron_in(expression: &str, zone: &str) -> CronSchedule {
    CronSchedule {
        expression: expression.parse().unwrap(),
        zone: super::zone(zone).unwrap(),
    }
}

#[test]
fn run_ids_have_microseconds_only_where_there_are_any() {
    for (run_after, expected) in [
        (
            "2026-01-01T06:00:00Z",
            "scheduled__2026-01-01T06:00:00+00:00",
        ),
        (
            "2026-01-01T06:00:00.000120999Z",
            "scheduled__2026-01-01T06:00:00.000120+00:00",
        ),
        (
            "1969-12-31T23:59:59.5Z",
            "scheduled__1969-12-31T23:59:59.500000+00:00",
        ),
    ] {
        assert_eq!(scheduled_run_id(time(run_after)), expected);
    }
}
