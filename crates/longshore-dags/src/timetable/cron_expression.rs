//! Cron expressions as Airflow reads them, evaluated on the wall clock.
//!
//! Airflow reads them with croniter, whose dialect no crate has: seconds come last, ranges may wrap, `5/10` has no end,
//! `L5` is the last Friday. So the expression is read here into plain sets, and the search goes from day to day.

use std::{fmt, iter, str::FromStr};

use jiff::{
    SignedDuration,
    civil::{Date, DateTime, Time},
};

use super::{
    cron_error::CronError,
    cron_field::{Field, FieldKind},
    cron_fields::CronFields,
};

/// No two matches are further apart than this: croniter looks no further.
const MAX_YEARS_BETWEEN_MATCHES: i16 = 50;

/// Presets that are cron expressions.
pub(crate) const PRESETS: [(&str, &str); 8] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@quarterly", "0 0 1 */3 *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A cron expression that can be evaluated.
#[derive(Clone, Debug)]
pub struct CronExpression {
    text: String,
    fields: CronFields,
}

/// Equal as written.
impl PartialEq for CronExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CronExpression {}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for CronExpression {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let lower = text.to_ascii_lowercase();
        let preset = PRESETS.iter().find(|(name, _)| *name == lower.trim());
        let (written, lower) = match preset {
            Some((_, expression)) => (*expression, (*expression).to_owned()),
            None => (text, lower),
        };
        let expression = Self {
            text: written.to_owned(),
            fields: read_fields(&lower)?,
        };
        // From the year 2000 on every combination of days and weekdays comes within the limit.
        if expression
            .next(DateTime::constant(2000, 1, 1, 0, 0, 0, 0))
            .is_none()
            && expression
                .next(DateTime::constant(2050, 1, 1, 0, 0, 0, 0))
                .is_none()
            && expression
                .next(DateTime::constant(1969, 12, 31, 0, 0, 0, 0))
                .is_none()
        {
            return Err(CronError {
                range: 0..text.len(),
                message: format!("no time matches `{text}`"),
                help: "choose a day that its month has".to_owned(),
            });
        }
        Ok(expression)
    }
}

impl CronExpression {
    /// Whether it matches in each hour of the day. Such a schedule follows real time, others the wall clock.
    pub(super) fn covers_every_hour(&self) -> bool {
        self.fields.hour.is_full(FieldKind::Hour)
    }

    /// The first match after a time on the wall clock.
    pub(super) fn next(&self, after: DateTime) -> Option<DateTime> {
        let least = whole_second(after)?;
        let least = least.checked_add(SignedDuration::from_secs(1)).ok()?;
        let dates = iter::successors(Some(least.date()), |date| date.tomorrow().ok());
        let find = |date: Date| {
            let is_first = date == least.date();
            let least = if is_first { least.time() } else { Time::MIN };
            Some(date.to_datetime(self.fields.first_time(least)?))
        };
        dates
            .take_while(|date| date.year() - after.year() <= MAX_YEARS_BETWEEN_MATCHES)
            .filter(|date| self.fields.has_date(*date))
            .find_map(find)
    }

    /// The last match before a time on the wall clock.
    pub(super) fn previous(&self, before: DateTime) -> Option<DateTime> {
        let most = before.checked_sub(SignedDuration::from_nanos(1)).ok()?;
        let dates = iter::successors(Some(most.date()), |date| date.yesterday().ok());
        let find = |date: Date| {
            let is_first = date == most.date();
            let most = if is_first { most.time() } else { Time::MAX };
            Some(date.to_datetime(self.fields.last_time(most)?))
        };
        dates
            .take_while(|date| before.year() - date.year() <= MAX_YEARS_BETWEEN_MATCHES)
            .filter(|date| self.fields.has_date(*date))
            .find_map(find)
    }
}

fn whole_second(time: DateTime) -> Option<DateTime> {
    time.with().subsec_nanosecond(0).build().ok()
}

/// The seven fields of an expression in lower case; seconds and years have their defaults.
fn read_fields(lower: &str) -> Result<CronFields, CronError> {
    let texts: Vec<(usize, &str)> = lower
        .split_ascii_whitespace()
        .map(|field| (field.as_ptr().addr() - lower.as_ptr().addr(), field))
        .collect();
    if !(5..=7).contains(&texts.len()) {
        let n = texts.len();
        return Err(CronError {
            range: 0..lower.len(),
            message: format!("a cron expression has 5 fields (or 6 or 7), this one has {n}"),
            help: "write minute, hour, day of month, month and day of week, as `0 6 * * 1-5`; seconds and a year may follow".to_owned(),
        });
    }
    let mut fields = FieldKind::ORDER.map(|_| Field::default());
    for (at, kind) in FieldKind::ORDER.into_iter().enumerate() {
        let default = if kind == FieldKind::Second { "0" } else { "*" };
        let (start, text) = texts.get(at).copied().unwrap_or((lower.len(), default));
        fields[at] = Field::parse(kind, text, start)?;
    }
    // Days listed one by one restrict nothing, but croniter takes them for a restriction (any day of the month *or*
    // of the week), unless the other one has a star in it.
    let has_star = |at: usize| texts.get(at).is_some_and(|(_, text)| text.contains('*'));
    let (dom_star, dow_star) = (has_star(2), has_star(4));
    fields[2].is_star |= fields[2].is_full(FieldKind::DayOfMonth) && dow_star;
    fields[4].is_star |= fields[4].is_full(FieldKind::DayOfWeek) && dom_star;
    let [minute, hour, mut dom, month, dow, second, year] = fields;
    let is_clash = dom.nearest_weekday.is_some() && !dow.is_star
        || dow.has_nth() && dom.has_last_day
        || !dow.last_weekday.is_empty() && !dom.is_star;
    if is_clash {
        return Err(CronError {
            range: 0..lower.len(),
            message: format!("`W`, `#` and `L` stand beside another day in `{lower}`"),
            help: "write `*` as the other one of day of month and day of week".to_owned(),
        });
    }
    // Beside `1#2` croniter does not look at the day of the month.
    dom.is_star |= dow.has_nth();
    Ok(CronFields {
        minute,
        hour,
        day_of_month: dom,
        month,
        day_of_week: dow,
        second,
        year,
    })
}
