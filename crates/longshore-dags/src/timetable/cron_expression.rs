//! Cron expressions as Airflow reads them, evaluated on the wall clock.
//!
//! Airflow reads them with croniter, whose dialect is not that of the croner crate: seconds come last, ranges may wrap,
//! `5/10` has no end, `L5` is the last Friday. So the expression is read here into plain sets, croner gets them in its
//! own canonical form, and searches.

use std::{collections::BTreeSet, fmt, str::FromStr};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, civil::DateTime, tz::TimeZone};

use super::{
    cron_error::CronError,
    cron_field::{Field, FieldKind},
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
    search: Cron,
    covers_every_hour: bool,
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
        let fields = read_fields(&lower)?;
        let [_, hour, ..] = &fields;
        let expression = Self {
            text: written.to_owned(),
            covers_every_hour: hour.is_full(FieldKind::Hour),
            search: search_for(&fields, text)?,
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
        self.covers_every_hour
    }

    /// The first match after a time on the wall clock.
    pub(super) fn next(&self, after: DateTime) -> Option<DateTime> {
        let start = after.to_zoned(TimeZone::UTC).ok()?;
        let found = self.search.find_next_occurrence(&start, false).ok()?;
        let found = found.datetime();
        (found.year() - after.year() <= MAX_YEARS_BETWEEN_MATCHES).then_some(found)
    }

    /// The last match before a time on the wall clock.
    pub(super) fn previous(&self, before: DateTime) -> Option<DateTime> {
        // The search knows whole seconds only: within one, its beginning lies before.
        let start = if before.subsec_nanosecond() == 0 {
            before
        } else {
            let whole = before.with().subsec_nanosecond(0).build().ok()?;
            whole.checked_add(SignedDuration::from_secs(1)).ok()?
        };
        let start = start.to_zoned(TimeZone::UTC).ok()?;
        let found = self.search.find_previous_occurrence(&start, false).ok()?;
        let found = found.datetime();
        (before.year() - found.year() <= MAX_YEARS_BETWEEN_MATCHES).then_some(found)
    }
}

/// The seven fields of an expression in lower case; seconds and years have their defaults.
fn read_fields(lower: &str) -> Result<[Field; 7], CronError> {
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
    let [_, _, dom, _, dow, ..] = &mut fields;
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
    Ok(fields)
}

/// The same in croner's form: second, minute, hour, day of month, month, day of week, year.
fn search_for(fields: &[Field; 7], text: &str) -> Result<Cron, CronError> {
    let [minute, hour, dom, month, dow, second, year] = fields;
    let canonical = [second, minute, hour, dom, month, dow, year]
        .map(canonical)
        .join(" ");
    let parser = CronParser::builder()
        .seconds(Seconds::Required)
        .year(Year::Required)
        .build();
    parser.parse(&canonical).map_err(|error| CronError {
        range: 0..text.len(),
        message: format!("`{text}` cannot be evaluated: {error}"),
        help: "write it in a simpler form, as `0 6 * * 1-5`".to_owned(),
    })
}

fn canonical(field: &Field) -> String {
    if field.is_star {
        return "*".to_owned();
    }
    let plain = field.values.iter().map(u16::to_string);
    let last_day = field.has_last_day.then(|| "L".to_owned());
    // croniter takes the last day of a month that is too short.
    let nearest = field.nearest_weekday.map(|day| match day {
        31 => "LW".to_owned(),
        day => format!("{day}W"),
    });
    let nth = field.nth.iter().map(|(day, nth)| format!("{day}#{nth}"));
    let last = field.last_weekday.iter().map(|day| format!("{day}#L"));
    let parts: BTreeSet<String> = plain
        .chain(last_day)
        .chain(nearest)
        .chain(nth)
        .chain(last)
        .collect();
    parts.into_iter().collect::<Vec<_>>().join(",")
}
