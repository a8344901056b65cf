//! Cron expressions of six or seven fields, as Quartz reads them: seconds, minutes, hours, day of the month, month, day of
//! the week, and years.
//!
//! Upstream evaluates them in the zone of its JVM, which is UTC in its image; here it is always UTC. Characters that Quartz
//! silently skips after a value are errors here.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

/// No expression is followed further into the future (upstream: `CronExpression.MAX_YEAR`).
const MAX_YEARS: i16 = 100;

/// A cron expression.
#[derive(Clone, PartialEq, Eq)]
pub struct CronExpression {
    text: String,
    seconds: Set,
    minutes: Set,
    hours: Set,
    days: Days,
    months: Set,
    years: Vec<Years>,
}

/// Why a text is no cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a cron expression of Quartz with six or seven fields, such as `0 0 */2 * * ?`, found {text:?}: {what}"
)]
pub struct InvalidCron {
    text: String,
    what: String,
}

/// Numbers from 0 to 63.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn insert(&mut self, number: u32) {
        self.0 |= 1_u64.checked_shl(number).unwrap_or_default();
    }

    fn contains(self, number: u32) -> bool {
        self.0 & 1_u64.checked_shl(number).unwrap_or_default() != 0
    }

    fn contains_signed(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.contains(number))
    }

    /// The first number that is not below another one.
    fn at_or_after(self, number: u32) -> Option<u32> {
        let rest = self.0 & u64::MAX.checked_shl(number).unwrap_or_default();
        (rest != 0).then(|| rest.trailing_zeros())
    }

    fn first(self) -> Option<u32> {
        self.at_or_after(0)
    }
}

/// Years from one to another, in steps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Years {
    from: i16,
    /// Without one there is no last year.
    to: Option<i16>,
    step: i16,
}

impl Years {
    fn contains(self, year: i16) -> bool {
        year >= self.from
            && self.to.is_none_or(|to| year <= to)
            && (i32::from(year) - i32::from(self.from)) % i32::from(self.step.max(1)) == 0
    }
}

/// The rule for days: that of the month, or that of the week. Quartz does not combine them.
#[derive(Clone, PartialEq, Eq)]
enum Days {
    OfMonth {
        days: Vec<MonthDay>,
        /// The weekdays next to these.
        weekdays: Vec<MonthDay>,
    },
    /// Days of the week; 1 is Sunday.
    OfWeek(Set),
    /// The last one in a month of a day of the week.
    LastOfWeek(u32),
    /// The n-th one in a month of a day of the week.
    NthOfWeek { day: u32, nth: i8 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MonthDay {
    Day(i8),
    /// So many days before the last one.
    BeforeLast(i8),
}

impl MonthDay {
    /// The day in a month of so many days; none where the month does not have it.
    fn in_month(self, n_days: i8) -> Option<i8> {
        let day = match self {
            Self::Day(day) => day,
            Self::BeforeLast(offset) => n_days - offset,
        };
        (1..=n_days).contains(&day).then_some(day)
    }
}

impl Days {
    fn contains(&self, date: Date) -> bool {
        let n_days = date.days_in_month();
        let day_of_week = date.weekday().to_sunday_one_offset();
        let is_day_of_week = |day: u32| u32::try_from(day_of_week) == Ok(day);
        match self {
            Self::OfMonth { days, weekdays } => {
                let is = |it: &MonthDay| it.in_month(n_days) == Some(date.day());
                let is_next = |it: &MonthDay| {
                    let day = it.in_month(n_days);
                    day.is_some_and(|day| nearest_weekday(date, day) == Some(date.day()))
                };
                days.iter().any(is) || weekdays.iter().any(is_next)
            }
            Self::OfWeek(days) => days.contains_signed(day_of_week),
            Self::LastOfWeek(day) => is_day_of_week(*day) && date.day() + 7 > n_days,
            Self::NthOfWeek { day, nth } => {
                is_day_of_week(*day) && (date.day() - 1) / 7 + 1 == *nth
            }
        }
    }
}

/// The day from Monday to Friday next to a day, in the same month.
fn nearest_weekday(month: Date, day: i8) -> Option<i8> {
    let date = Date::new(month.year(), month.month(), day).ok()?;
    Some(match date.weekday().to_sunday_one_offset() {
        // Saturday
        7 if day == 1 => 3,
        7 => day - 1,
        // Sunday
        1 if day == month.days_in_month() => day - 2,
        1 => day + 1,
        _ => day,
    })
}

impl CronExpression {
    /// Reads an expression. Letters are upper or lower case.
    ///
    /// # Errors
    /// The text is none.
    pub fn parse(text: &str) -> Result<Self, InvalidCron> {
        parse::expression(text).map_err(|what| InvalidCron {
            text: text.to_owned(),
            what,
        })
    }

    /// The first instant after another one that the expression names, in whole seconds; none within a hundred years.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let second = after.as_second().checked_add(1)?;
        let start = TimeZone::UTC.to_datetime(Timestamp::from_second(second).ok()?);
        let last_year = start.year().saturating_add(MAX_YEARS);
        let mut date = start.date();
        while date.year() <= last_year {
            if !self.years.iter().any(|years| years.contains(date.year())) {
                date = date.last_of_year().tomorrow().ok()?;
                continue;
            }
            if !self.months.contains_signed(date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                continue;
            }
            let from = if date == start.date() {
                start.time()
            } else {
                Time::midnight()
            };
            if self.days.contains(date)
                && let Some(time) = self.time_at_or_after(from)
            {
                let instant = TimeZone::UTC.to_timestamp(DateTime::from_parts(date, time));
                return instant.ok();
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first time of a day that is not before another one.
    fn time_at_or_after(&self, from: Time) -> Option<Time> {
        let unsigned = |number: i8| u32::try_from(number).ok();
        let (hour, minute, second) = (
            unsigned(from.hour())?,
            unsigned(from.minute())?,
            unsigned(from.second())?,
        );
        let (hour, minute, second) = self.time_from(hour, minute, second)?;
        let signed = |number: u32| i8::try_from(number).ok();
        Time::new(signed(hour)?, signed(minute)?, signed(second)?, 0).ok()
    }

    fn time_from(&self, hour: u32, minute: u32, second: u32) -> Option<(u32, u32, u32)> {
        let (first_minute, first_second) = (self.minutes.first()?, self.seconds.first()?);
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_or_after(second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = self.minutes.at_or_after(minute + 1) {
                return Some((hour, minute, first_second));
            }
        }
        let hour = self.hours.at_or_after(hour + 1)?;
        Some((hour, first_minute, first_second))
    }

    /// Whether the expression names the second of an instant.
    pub fn matches(&self, at: Timestamp) -> bool {
        let before = at.checked_sub(1.second()).ok();
        let next = before.and_then(|before| self.next_after(before));
        next.is_some_and(|next| next.as_second() == at.as_second())
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronExpression({:?})", self.text)
    }
}
