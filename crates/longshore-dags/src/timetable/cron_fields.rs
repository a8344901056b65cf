//! The fields of a cron expression together: which days, and which times of a day, they name.

use std::collections::BTreeSet;

use jiff::civil::{Date, Time};

use super::cron_field::Field;

/// The fields of an expression. A time matches if its date and its time of day do.
#[derive(Clone, Debug)]
pub(super) struct CronFields {
    pub(super) minute: Field,
    pub(super) hour: Field,
    pub(super) day_of_month: Field,
    pub(super) month: Field,
    pub(super) day_of_week: Field,
    pub(super) second: Field,
    /// `*` is every year, also those that cannot be written.
    pub(super) year: Field,
}

impl CronFields {
    /// Whether a date matches. Where both day fields restrict the day, one of them is enough.
    pub(super) fn has_date(&self, date: Date) -> bool {
        let has = |field: &Field, value: i16| field.values.contains(&value.unsigned_abs());
        if !has(&self.month, date.month().into())
            || !self.year.is_star && !has(&self.year, date.year())
        {
            return false;
        }
        match (self.day_of_month.is_star, self.day_of_week.is_star) {
            (true, true) => true,
            (false, true) => is_day_of_month(&self.day_of_month, date),
            (true, false) => is_day_of_week(&self.day_of_week, date),
            (false, false) => {
                is_day_of_month(&self.day_of_month, date) || is_day_of_week(&self.day_of_week, date)
            }
        }
    }

    /// The first matching time of a day that is not before `least`.
    pub(super) fn first_time(&self, least: Time) -> Option<Time> {
        let [hour, minute, second] = parts(least);
        let [hours, minutes, seconds] = self.times();
        hours.range(hour..).find_map(|&h| {
            let least = if h == hour { minute } else { 0 };
            minutes.range(least..).find_map(|&m| {
                let least = if (h, m) == (hour, minute) { second } else { 0 };
                time(h, m, *seconds.range(least..).next()?)
            })
        })
    }

    /// The last matching time of a day that is not after `most`.
    pub(super) fn last_time(&self, most: Time) -> Option<Time> {
        let [hour, minute, second] = parts(most);
        let [hours, minutes, seconds] = self.times();
        hours.range(..=hour).rev().find_map(|&h| {
            let most = if h == hour { minute } else { 59 };
            minutes.range(..=most).rev().find_map(|&m| {
                let most = if (h, m) == (hour, minute) { second } else { 59 };
                time(h, m, *seconds.range(..=most).next_back()?)
            })
        })
    }

    fn times(&self) -> [&BTreeSet<u16>; 3] {
        [&self.hour, &self.minute, &self.second].map(|field| &field.values)
    }
}

fn is_day_of_month(field: &Field, date: Date) -> bool {
    let day = date.day().unsigned_abs().into();
    field.values.contains(&day)
        || field.has_last_day && date == date.last_of_month()
        || field
            .nearest_weekday
            .is_some_and(|wanted| day == nearest_weekday(wanted, date))
}

/// The day from Monday to Friday that is nearest to `wanted` in the month of `date`, or in a shorter month to its end.
fn nearest_weekday(wanted: u16, date: Date) -> u16 {
    let last = date.days_in_month().unsigned_abs().into();
    let wanted = wanted.min(last);
    let weekday = i16::from(date.weekday().to_monday_zero_offset());
    let distance = wanted.cast_signed() - i16::from(date.day());
    match (weekday + distance).rem_euclid(7) {
        5 if wanted == 1 => 3,
        5 => wanted - 1,
        6 if wanted == last => wanted - 2,
        6 => wanted + 1,
        _ => wanted,
    }
}

fn is_day_of_week(field: &Field, date: Date) -> bool {
    let weekday = date.weekday().to_sunday_zero_offset().unsigned_abs().into();
    let nth = date.day().unsigned_abs().div_ceil(7).into();
    let is_last = date.day() + 7 > date.days_in_month();
    field.values.contains(&weekday)
        || field.nth.contains(&(weekday, nth))
        || is_last && field.last_weekday.contains(&weekday)
}

fn parts(time: Time) -> [u16; 3] {
    [time.hour(), time.minute(), time.second()].map(|part| part.unsigned_abs().into())
}

fn time(hour: u16, minute: u16, second: u16) -> Option<Time> {
    let part = |value: u16| i8::try_from(value).ok();
    Time::new(part(hour)?, part(minute)?, part(second)?, 0).ok()
}
