//! Cron expressions against a slow oracle, and where clocks are changed.

use std::collections::BTreeSet;

use jiff::civil::{DateTime, date};
use proptest::prelude::*;

use super::*;
use crate::timetable::ticks::Ticks;

/// An expression as plain sets; an empty one is a star.
#[derive(Debug, Clone)]
struct Sets {
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    days: BTreeSet<i8>,
    months: BTreeSet<i8>,
    weekdays: BTreeSet<i8>,
}

impl Sets {
    fn text(&self) -> String {
        let field = |values: &BTreeSet<i8>| {
            if values.is_empty() {
                return "*".to_owned();
            }
            let values: Vec<String> = values.iter().map(i8::to_string).collect();
            values.join(",")
        };
        [
            &self.minutes,
            &self.hours,
            &self.days,
            &self.months,
            &self.weekdays,
        ]
        .map(field)
        .join(" ")
    }

    fn matches(&self, at: DateTime) -> bool {
        let has = |values: &BTreeSet<i8>, value: i8| values.is_empty() || values.contains(&value);
        let weekday = at.weekday().to_sunday_zero_offset();
        let is_day = match (self.days.is_empty(), self.weekdays.is_empty()) {
            (false, false) => self.days.contains(&at.day()) || self.weekdays.contains(&weekday),
            (true, _) | (_, true) => has(&self.days, at.day()) && has(&self.weekdays, weekday),
        };
        has(&self.minutes, at.minute())
            && has(&self.hours, at.hour())
            && is_day
            && has(&self.months, at.month())
    }

    /// Minute by minute, for at most 40 days.
    fn search(&self, from: DateTime, step: SignedDuration) -> Option<DateTime> {
        let whole = from.with().second(0).subsec_nanosecond(0).build().unwrap();
        let is_whole = whole == from;
        let first = if step.is_negative() && !is_whole {
            whole
        } else {
            whole + step
        };
        std::iter::successors(Some(first), |at| Some(*at + step))
            .take(40 * 24 * 60)
            .find(|at| self.matches(*at))
    }
}

fn set(values: std::ops::RangeInclusive<i8>, most: usize) -> impl Strategy<Value = BTreeSet<i8>> {
    prop::collection::btree_set(values, 0..=most)
}

fn sets() -> impl Strategy<Value = Sets> {
    (
        set(0..=59, 3),
        set(0..=23, 3),
        set(1..=31, 3),
        set(1..=12, 6),
        set(0..=6, 3),
    )
        .prop_map(|(minutes, hours, days, months, weekdays)| Sets {
            minutes,
            hours,
            days,
            months,
            weekdays,
        })
}

fn wall() -> impl Strategy<Value = DateTime> {
    (0_i64..3 * 365 * 86_400, 0_i32..3).prop_map(|(seconds, part)| {
        let start = date(2024, 1, 1).at(0, 0, 0, 0) + SignedDuration::from_secs(seconds);
        // Whole minutes, whole seconds, and parts of a second.
        match part {
            0 => start.with().second(0).build().unwrap(),
            1 => start,
            _ => start + SignedDuration::from_millis(500),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_search_finds_what_a_slow_one_finds(sets in sets(), from in wall()) {
        let Ok(cron) = sets.text().parse::<CronExpression>() else {
            // Only days that no month has are refused.
            prop_assert!(sets.days.iter().all(|day| *day > 29) && sets.weekdays.is_empty(), "{}", sets.text());
            return Ok(());
        };
        let minute = SignedDuration::from_mins(1);
        if let Some(expected) = sets.search(from, minute) {
            prop_assert_eq!(cron.next(from), Some(expected), "{} after {}", sets.text(), from);
        } else if let Some(next) = cron.next(from) {
            prop_assert!(sets.matches(next) && next.duration_since(from) > SignedDuration::from_hours(39 * 24));
        }
        if let Some(expected) = sets.search(from, -minute) {
            prop_assert_eq!(cron.previous(from), Some(expected), "{} before {}", sets.text(), from);
        } else if let Some(previous) = cron.previous(from) {
            prop_assert!(sets.matches(previous) && from.duration_since(previous) > SignedDuration::from_hours(39 * 24));
        }
    }

    #[test]
    fn no_text_is_trouble(text in "[0-9*/,#lLwW? a-d@-]{0,30}") {
        if let Err(error) = text.parse::<CronExpression>() {
            prop_assert!(text.get(error.range.clone()).is_some(), "{error:?}");
            prop_assert!(!error.message.is_empty() && !error.help.is_empty());
        }
    }

    #[test]
    fn ticks_follow_each_other_in_every_zone(
        sets in sets(),
        seconds in 0_i64..366 * 86_400,
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    ) {
        let Ok(expression) = sets.text().parse() else { return Ok(()) };
        let cron = CronSchedule { expression, zone: crate::timetable::zone(zone).unwrap() };
        let from = time("2026-01-01T00:00:00Z") + SignedDuration::from_secs(seconds);
        let mut last = from;
        for _ in 0..20 {
            let Some(next) = cron.after(last) else { break };
            prop_assert!(next > last, "{} in {zone}: {next} after {last}", sets.text());
            last = next;
        }
        if let Some(aligned) = cron.align_to_next(from) {
            prop_assert!(aligned >= from);
            prop_assert_eq!(cron.align_to_next(aligned).map(|again| again >= aligned), Some(true));
        }
    }
}

#[test]
fn skipped_times_move_forward_and_of_equal_ones_the_second_is_taken() {
    let berlin = "Europe/Berlin";
    let new_york = "America/New_York";
    for (expression, zone, after, expected) in [
        // Clocks go from 02:00 to 03:00 on March 29th.
        (
            "30 2 * * *",
            berlin,
            "2026-03-28T01:30:00Z",
            vec!["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "0 3 * * *",
            berlin,
            "2026-03-28T03:00:00Z",
            vec!["2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"],
        ),
        (
            "30 * * * *",
            berlin,
            "2026-03-29T00:00:00Z",
            vec!["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"],
        ),
        // And from 03:00 to 02:00 on October 25th: 02:30 is at 00:30Z and at 01:30Z.
        (
            "30 2 * * *",
            berlin,
            "2026-10-24T00:30:00Z",
            vec!["2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        // Asked between the two.
        (
            "30 2 * * *",
            berlin,
            "2026-10-25T01:10:00Z",
            vec!["2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        // Asked after the first, whose clock says that it is over, as in Airflow.
        (
            "30 2 * * *",
            berlin,
            "2026-10-25T00:40:00Z",
            vec!["2026-10-26T01:30:00Z"],
        ),
        // What covers each hour follows real time.
        (
            "30 * * * *",
            berlin,
            "2026-10-25T00:00:00Z",
            vec![
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-25T02:30:00Z",
            ],
        ),
        (
            "30 1 * * *",
            new_york,
            "2026-10-31T12:00:00Z",
            vec!["2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        // Half an hour is skipped at 02:00 on October 4th.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            vec!["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"],
        ),
    ] {
        let cron = cron_in(expression, zone);
        let ticks = std::iter::successors(cron.after(time(after)), |at| cron.after(*at));
        let ticks: Vec<Timestamp> = ticks.take(expected.len()).collect();
        let expected: Vec<Timestamp> = expected.into_iter().map(time).collect();
        assert_eq!(ticks, expected, "of {expression} in {zone} after {after}");
    }
}

#[test]
fn days_that_never_come_are_refused() {
    for (text, is_fine) in [
        ("0 0 30 2 *", false),
        ("0 0 31 4,6 *", false),
        ("0 0 29 2 *", true),
        ("0 0 30 2 1", true),
        ("0 0 1 1 * 0 1975", true),
        ("0 0 29 2 * 0 2099", false),
    ] {
        assert_eq!(text.parse::<CronExpression>().is_ok(), is_fine, "of {text}");
    }
}

#[test]
fn what_cron_dialects_do_not_agree_on_is_refused() {
    for text in [
        "0 0 15W * 1",
        "0 0 15W * 5#2",
        "0 0 L * 5#2",
        "0 0 13 * L5",
        "0 0 30W * *",
        "0 0 LW * *",
        "0 0 * * 5L",
        "H * * * *",
    ] {
        assert!(text.parse::<CronExpression>().is_err(), "{text} was read");
    }
}
