//! The grammar of Quartz' cron expressions. Errors say what is wrong with a field.

use super::{CronExpression, Days, MonthDay, Set, Years};

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// `L-30` is the first day of a month of 31 days.
const MAX_OFFSET: u32 = 30;

/// A field with numbers: what it is called, its limits, its names, and how long a step may be.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
    max_step: u32,
}

const SECONDS: Field = Field {
    name: "seconds",
    min: 0,
    max: 59,
    names: &[],
    max_step: 59,
};
const MINUTES: Field = Field {
    name: "minutes",
    ..SECONDS
};
const HOURS: Field = Field {
    name: "hours",
    min: 0,
    max: 23,
    names: &[],
    max_step: 23,
};
const DAYS_OF_MONTH: Field = Field {
    name: "day of the month",
    min: 1,
    max: 31,
    names: &[],
    max_step: 31,
};
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &MONTHS,
    max_step: 12,
};
const DAYS_OF_WEEK: Field = Field {
    name: "day of the week",
    min: 1,
    max: 7,
    names: &WEEKDAYS,
    max_step: 7,
};

pub(super) fn expression(text: &str) -> Result<CronExpression, String> {
    let upper = text.to_uppercase();
    let fields: Vec<&str> = upper
        .split([' ', '\t'])
        .filter(|field| !field.is_empty())
        .collect();
    let [seconds, minutes, hours, day_of_month, month, day_of_week] = fields
        .first_chunk()
        .ok_or_else(|| format!("it has {} fields", fields.len()))?;
    let years = match &fields[6..] {
        [] => "*",
        [years] => *years,
        _ => return Err(format!("it has {} fields", fields.len())),
    };
    Ok(CronExpression {
        seconds: SECONDS.set(seconds)?,
        minutes: MINUTES.set(minutes)?,
        hours: HOURS.set(hours)?,
        days: days(day_of_month, day_of_week)?,
        months: MONTH.set(month)?,
        years: years
            .split(',')
            .map(self::years)
            .collect::<Result<_, _>>()?,
        text: upper,
    })
}

impl Field {
    fn set(&self, field: &str) -> Result<Set, String> {
        let mut set = Set::default();
        for item in field.split(',') {
            self.add(item, &mut set)?;
        }
        Ok(set)
    }

    /// Adds `*`, `*/5`, `/5`, `3`, `3/5`, `1-6` or `1-6/2`. A range whose end is before its start goes round.
    fn add(&self, item: &str, set: &mut Set) -> Result<(), String> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(self.step(step)?)),
        };
        let (start, end) = match range {
            "*" => (self.min, self.max),
            "" if step.is_some() => (self.min, self.max),
            range => match range.split_once('-') {
                Some((start, end)) => (self.number(start)?, self.number(end)?),
                None => {
                    let start = self.number(range)?;
                    // A single number with a step goes to the end; without one, or with the step 0, it is alone.
                    let is_alone = step.is_none_or(|step| step == 0);
                    (start, if is_alone { start } else { self.max })
                }
            },
        };
        let step = step.unwrap_or(1).max(1);
        let n_numbers = self.max - self.min + 1;
        let end = if end < start { end + n_numbers } else { end };
        for number in (start..=end).step_by(usize::try_from(step).unwrap_or(1)) {
            set.insert((number - self.min) % n_numbers + self.min);
        }
        Ok(())
    }

    fn step(&self, text: &str) -> Result<u32, String> {
        let step = number(text).filter(|step| *step <= self.max_step);
        step.ok_or_else(|| {
            let (name, max) = (self.name, self.max_step);
            format!("{name}: expected a step of at most {max}, found {text:?}")
        })
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let by_name = self.names.iter().position(|name| *name == text);
        let by_name = by_name
            .and_then(|at| u32::try_from(at).ok())
            .map(|at| at + self.min);
        let found = by_name.or_else(|| number(text));
        found
            .filter(|it| (self.min..=self.max).contains(it))
            .ok_or_else(|| {
                let Self { name, min, max, .. } = self;
                format!("{name}: expected a number from {min} to {max}, found {text:?}")
            })
    }
}

/// Digits only: Rust would take a sign, too.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn days(of_month: &str, of_week: &str) -> Result<Days, String> {
    match (of_month, of_week) {
        ("?", "?") => Err("only one of both days can be `?`".to_owned()),
        ("?", of_week) => days_of_week(of_week),
        (of_month, "?") => days_of_month(of_month),
        _ => Err("one of both days must be `?`".to_owned()),
    }
}

fn days_of_month(field: &str) -> Result<Days, String> {
    let (mut days, mut weekdays) = (Vec::new(), Vec::new());
    for item in field.split(',') {
        let (day, is_weekday) = match item.strip_suffix('W') {
            Some(day) => (day, true),
            None => (item, false),
        };
        let day = match day.strip_prefix('L') {
            Some(offset) => Some(before_last(offset, item)?),
            None if is_weekday => Some(MonthDay::Day(to_i8(DAYS_OF_MONTH.number(day)?))),
            None => None,
        };
        match day {
            Some(day) if is_weekday => weekdays.push(day),
            Some(day) => days.push(day),
            None => {
                let set = DAYS_OF_MONTH.set(item)?;
                let numbers = (1..=31).filter(|day| set.contains(*day));
                days.extend(numbers.map(|day| MonthDay::Day(to_i8(day))));
            }
        }
    }
    Ok(Days::OfMonth { days, weekdays })
}

/// What follows an `L`: nothing, or `-3`.
fn before_last(offset: &str, item: &str) -> Result<MonthDay, String> {
    let offset = match offset.strip_prefix('-') {
        None if offset.is_empty() => Some(0),
        None => None,
        Some(offset) => number(offset).filter(|offset| *offset <= MAX_OFFSET),
    };
    offset
        .map(|offset| MonthDay::BeforeLast(to_i8(offset)))
        .ok_or_else(|| {
            format!("day of the month: expected `L` or `L-n` with n of at most 30, found {item:?}")
        })
}

fn days_of_week(field: &str) -> Result<Days, String> {
    if field == "L" {
        return DAYS_OF_WEEK.set("7").map(Days::OfWeek);
    }
    if let Some(day) = field.strip_suffix('L') {
        return DAYS_OF_WEEK.number(day).map(Days::LastOfWeek);
    }
    let Some((day, nth)) = field.split_once('#') else {
        return DAYS_OF_WEEK.set(field).map(Days::OfWeek);
    };
    let day = DAYS_OF_WEEK.number(day)?;
    match number(nth).filter(|nth| (1..=5).contains(nth)) {
        Some(nth) => Ok(Days::NthOfWeek {
            day,
            nth: to_i8(nth),
        }),
        None => Err(format!(
            "day of the week: expected a number from 1 to 5 after `#`, found {nth:?}"
        )),
    }
}

fn years(item: &str) -> Result<Years, String> {
    let error = || format!("years: expected years, found {item:?}");
    let year = |text: &str| number(text).and_then(|year| i16::try_from(year).ok());
    let (range, step) = match item.split_once('/') {
        None => (item, None),
        Some((range, step)) => (range, Some(year(step).ok_or_else(error)?)),
    };
    let (from, to) = match range {
        "*" => (Some(1970), None),
        "" if step.is_some() => (Some(1970), None),
        range => match range.split_once('-') {
            Some((from, to)) => (year(from), Some(year(to).ok_or_else(error)?)),
            None if step.is_some_and(|step| step > 0) => (year(range), None),
            None => (year(range), year(range)),
        },
    };
    let from = from.ok_or_else(error)?;
    if to.is_some_and(|to| to < from) {
        return Err(error());
    }
    Ok(Years {
        from,
        to,
        step: step.unwrap_or(1),
    })
}

/// Every number here is at most 31.
fn to_i8(number: u32) -> i8 {
    i8::try_from(number).unwrap_or(i8::MAX)
}
