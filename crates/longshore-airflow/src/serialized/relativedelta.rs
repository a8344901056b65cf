//! Lengths of time by the calendar: Python's `dateutil.relativedelta`.

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};
use serde_json::Number;

use super::{record::record, time::microseconds};

record! {
    /// Python's `dateutil.relativedelta`: first sets some parts of a date (`year` …), then adds others (`years` …), and
    /// then goes to a weekday. Airflow leaves out parts of 0, also those that set.
    pub struct Relativedelta {
        /// Added.
        "years" may years: Number,
        /// Added; the day is clamped to the last one of the month.
        "months" may months: Number,
        /// Added.
        "days" may days: Number,
        /// Days added after February of leap years.
        "leapdays" may leapdays: Number,
        /// Added.
        "hours" may hours: Number,
        /// Added.
        "minutes" may minutes: Number,
        /// Added.
        "seconds" may seconds: Number,
        /// Added.
        "microseconds" may microseconds: Number,
        /// Set.
        "year" may year: i64,
        /// Set, from 1.
        "month" may month: i64,
        /// Set, from 1.
        "day" may day: i64,
        /// Set.
        "hour" may hour: i64,
        /// Set.
        "minute" may minute: i64,
        /// Set.
        "second" may second: i64,
        /// Set.
        "microsecond" may microsecond: i64,
        /// Day of the week (0 is Monday), and which of them (1 is this day or the next such, −1 this or the last such).
        "weekday" may weekday: Vec<i64>,
    }
}

/// In which direction what is added counts. What is set stays the same.
#[derive(Clone, Copy)]
enum Direction {
    Later,
    Earlier,
}

impl Relativedelta {
    /// A time and this length, in UTC. `None` where Python has no such time, and for a length that Python has not.
    #[must_use]
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        self.from(time, Direction::Later)
    }

    /// A time less this length, in UTC; `None` as for [`Relativedelta::after`].
    #[must_use]
    pub fn before(&self, time: Timestamp) -> Option<Timestamp> {
        self.from(time, Direction::Earlier)
    }

    fn from(&self, time: Timestamp, direction: Direction) -> Option<Timestamp> {
        let start = time.to_zoned(TimeZone::UTC).datetime();
        let month = self.first_of_month(start, direction)?;
        let set_day = self.day.filter(|day| *day != 0);
        let day = set_day.unwrap_or(start.day().into());
        let day = day.min(month.days_in_month().into());
        let date = Date::new(month.year(), month.month(), day.try_into().ok()?).ok()?;
        let moved = date
            .to_datetime(self.time_of_day(start)?)
            .checked_add(self.exact(direction)?)
            .ok()?
            .checked_add(self.leap_days(month)?)
            .ok()?;
        let end = moved.checked_add(self.to_weekday(moved)?).ok()?;
        let is_python = (1..=9999).contains(&end.year());
        let zoned = end.to_zoned(TimeZone::UTC).ok()?;
        is_python.then(|| zoned.timestamp())
    }

    /// The first day of the month that it leads to.
    fn first_of_month(&self, start: DateTime, direction: Direction) -> Option<Date> {
        let year = self.year.filter(|year| *year != 0);
        let month = self.month.filter(|month| *month != 0);
        let year = year.unwrap_or(start.year().into());
        let month = month.unwrap_or(start.month().into());
        if !(1..=12).contains(&month) {
            return None;
        }
        let whole = |part: &Option<Number>| part.as_ref().map_or(Some(0), Number::as_i64);
        let more = whole(&self.years)?
            .checked_mul(12)?
            .checked_add(whole(&self.months)?)?;
        let more = match direction {
            Direction::Later => more,
            Direction::Earlier => more.checked_neg()?,
        };
        let months = year
            .checked_mul(12)?
            .checked_add(month - 1)?
            .checked_add(more)?;
        let year = months.div_euclid(12).try_into().ok()?;
        let month = (months.rem_euclid(12) + 1).try_into().ok()?;
        Date::new(year, month, 1).ok()
    }

    fn time_of_day(&self, start: DateTime) -> Option<Time> {
        let part = |set: Option<i64>, given: i8| i8::try_from(set.unwrap_or(given.into())).ok();
        let nanosecond = match self.microsecond {
            Some(microsecond) => microsecond.checked_mul(1000)?.try_into().ok()?,
            None => start.subsec_nanosecond(),
        };
        Time::new(
            part(self.hour, start.hour())?,
            part(self.minute, start.minute())?,
            part(self.second, start.second())?,
            nanosecond,
        )
        .ok()
    }

    /// Days and less that are added.
    fn exact(&self, direction: Direction) -> Option<SignedDuration> {
        let parts = [
            (&self.days, 86_400.0),
            (&self.hours, 3600.0),
            (&self.minutes, 60.0),
            (&self.seconds, 1.0),
            (&self.microseconds, 1e-6),
        ];
        let sum = parts.into_iter().try_fold(0_i64, |sum, (part, seconds)| {
            let amount = part.as_ref().map_or(Some(0.0), Number::as_f64)?;
            sum.checked_add(microseconds(amount * seconds)?)
        })?;
        let sum = match direction {
            Direction::Later => sum,
            Direction::Earlier => sum.checked_neg()?,
        };
        Some(SignedDuration::from_micros(sum))
    }

    /// Days that are added in a leap year, in both directions.
    fn leap_days(&self, month: Date) -> Option<SignedDuration> {
        let is_after_leap_day = month.month() > 2 && month.in_leap_year();
        let days = self.leapdays.as_ref().filter(|_| is_after_leap_day);
        days.map_or(Some(SignedDuration::ZERO), |days| {
            SignedDuration::from_hours(24).checked_mul(days.as_i64()?.try_into().ok()?)
        })
    }

    fn to_weekday(&self, from: DateTime) -> Option<SignedDuration> {
        let Some(weekday) = &self.weekday else {
            return Some(SignedDuration::ZERO);
        };
        let nth = weekday.get(1).copied().filter(|nth| *nth != 0);
        let nth = nth.unwrap_or(1);
        let away = weekday.first()? - i64::from(from.weekday().to_monday_zero_offset());
        let weeks = nth.checked_abs()?.checked_sub(1)?.checked_mul(7)?;
        let days = if nth > 0 {
            weeks.checked_add(away.rem_euclid(7))?
        } else {
            weeks.checked_add((-away).rem_euclid(7))?.checked_neg()?
        };
        SignedDuration::from_hours(24).checked_mul(days.try_into().ok()?)
    }
}
