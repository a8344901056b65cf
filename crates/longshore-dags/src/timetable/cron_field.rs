//! One field of a cron expression, read as croniter reads it.

use std::collections::BTreeSet;

use super::cron_error::CronError;

/// Which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Second,
    Year,
}

impl FieldKind {
    /// In the order of the text: croniter has the seconds after the five usual fields, and then the year.
    pub(super) const ORDER: [Self; 7] = [
        Self::Minute,
        Self::Hour,
        Self::DayOfMonth,
        Self::Month,
        Self::DayOfWeek,
        Self::Second,
        Self::Year,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Second => "second",
            Self::Year => "year",
        }
    }

    fn range(self) -> (u16, u16) {
        match self {
            Self::Minute | Self::Second => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
            Self::Year => (1970, 2099),
        }
    }

    fn names(self) -> &'static [(&'static str, u16)] {
        const MONTHS: [(&str, u16); 12] = [
            ("jan", 1),
            ("feb", 2),
            ("mar", 3),
            ("apr", 4),
            ("may", 5),
            ("jun", 6),
            ("jul", 7),
            ("aug", 8),
            ("sep", 9),
            ("oct", 10),
            ("nov", 11),
            ("dec", 12),
        ];
        const DAYS: [(&str, u16); 7] = [
            ("sun", 0),
            ("mon", 1),
            ("tue", 2),
            ("wed", 3),
            ("thu", 4),
            ("fri", 5),
            ("sat", 6),
        ];
        match self {
            Self::Month => &MONTHS,
            Self::DayOfWeek => &DAYS,
            Self::Minute | Self::Hour | Self::DayOfMonth | Self::Second | Self::Year => &[],
        }
    }

    fn help(self) -> String {
        let (least, most) = self.range();
        let more = match self {
            Self::DayOfMonth => ", `L` for the last day, `15W` for the weekday nearest to the 15th",
            Self::Month => ", or `jan` to `dec`",
            Self::DayOfWeek => {
                ", or `sun` to `sat`; `1#2` is the second Monday, `L5` the last Friday"
            }
            Self::Minute | Self::Hour | Self::Second | Self::Year => "",
        };
        format!(
            "write `*`, numbers from {least} to {most}, ranges `a-b` or steps `*/n`, with commas between{more}"
        )
    }
}

/// What a field says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    /// Plain values.
    pub(super) values: BTreeSet<u16>,
    /// Whether every value was meant, as against every value being listed.
    pub(super) is_star: bool,
    /// `L` in days of the month.
    pub(super) has_last_day: bool,
    /// `15W` in days of the month.
    pub(super) nearest_weekday: Option<u16>,
    /// `1#2` (the second Monday) in days of the week.
    pub(super) nth: BTreeSet<(u16, u16)>,
    /// `L5` (the last Friday) in days of the week.
    pub(super) last_weekday: BTreeSet<u16>,
}

impl Field {
    /// Whether every value of the kind is listed.
    pub(super) fn is_full(&self, kind: FieldKind) -> bool {
        let (least, most) = kind.range();
        self.values.len() == usize::from(most - least) + 1
    }

    /// Whether it has days of the week by their place in the month: `1#2`, `L5`.
    pub(super) fn has_nth(&self) -> bool {
        !self.nth.is_empty() || !self.last_weekday.is_empty()
    }

    /// Reads a field in lower case. `at` is the byte where it begins in the expression.
    pub(super) fn parse(kind: FieldKind, text: &str, at: usize) -> Result<Self, CronError> {
        let mut field = Self::default();
        let mut part_at = at;
        for part in text.split(',') {
            field.add(kind, part).map_err(|why| {
                let found = if part.is_empty() { "nothing" } else { part };
                CronError {
                    range: part_at..part_at + part.len(),
                    message: format!("{why}, but {} is `{found}`", kind.name()),
                    help: kind.help(),
                }
            })?;
            part_at += part.len() + 1;
        }
        let n_parts = text.split(',').count();
        let whole = |message: &str| CronError {
            range: at..at + text.len(),
            message: format!("{message}, but {} is `{text}`", kind.name()),
            help: kind.help(),
        };
        if field.nearest_weekday.is_some() && n_parts > 1 {
            return Err(whole("`W` stands alone in its field"));
        }
        if text.contains('?') && text != "?" {
            return Err(whole("`?` stands alone in its field"));
        }
        if field.has_nth() && !field.values.is_empty() {
            return Err(whole(
                "days of the week are all with `#` or `L`, or all without",
            ));
        }
        Ok(field)
    }

    /// Adds one part between commas. The error begins a sentence: what was expected.
    fn add(&mut self, kind: FieldKind, part: &str) -> Result<(), String> {
        let (least, most) = kind.range();
        let is_day = matches!(kind, FieldKind::DayOfMonth | FieldKind::DayOfWeek);
        if part == "*" || part == "?" && is_day {
            self.values.extend(least..=most);
            self.is_star = true;
            return Ok(());
        }
        if kind == FieldKind::DayOfMonth {
            if part == "l" {
                self.has_last_day = true;
                return Ok(());
            }
            if let Some(day) = part.strip_suffix('w').or_else(|| part.strip_prefix('w')) {
                let day = value(kind, day)?;
                if (29..31).contains(&day) {
                    return Err(
                        "`W` goes with the days 1 to 28, or 31 for the last weekday".to_owned()
                    );
                }
                self.nearest_weekday = Some(day);
                return Ok(());
            }
        }
        if kind == FieldKind::DayOfWeek {
            if let Some((days, nth)) = part.split_once('#') {
                let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth));
                let nth = nth.ok_or("the number after `#` must be from 1 to 5")?;
                self.nth
                    .extend(stepped(kind, days)?.into_iter().map(|day| (day, nth)));
                return Ok(());
            }
            if let Some(day) = part.strip_prefix('l') {
                self.last_weekday.insert(value(kind, day)?);
                return Ok(());
            }
        }
        self.values.extend(stepped(kind, part)?);
        Ok(())
    }
}

/// A value by number or name.
fn value(kind: FieldKind, text: &str) -> Result<u16, String> {
    if let Some((_, number)) = kind.names().iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    let (least, most) = kind.range();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<u16> = is_number.then(|| text.parse().ok()).flatten();
    match number {
        Some(7) if kind == FieldKind::DayOfWeek => Ok(0),
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(_) | None if is_number => Err(format!("a number must be from {least} to {most}")),
        Some(_) | None => Err("a number or a name was expected".to_owned()),
    }
}

/// A value, a range, or one of them with a step.
fn stepped(kind: FieldKind, part: &str) -> Result<Vec<u16>, String> {
    let (least, most) = kind.range();
    let (range, step) = match part.split_once('/') {
        None => (part, None),
        Some((range, step)) => {
            let is_number = step.bytes().all(|byte| byte.is_ascii_digit());
            let step: Option<u16> = is_number.then(|| step.parse().ok()).flatten();
            let step = step.filter(|step| *step > 0);
            (
                range,
                Some(step.ok_or("a step must be a number above zero")?),
            )
        }
    };
    let every = usize::from(step.unwrap_or(1));
    if range == "*" {
        return Ok((least..=most).step_by(every).collect());
    }
    let Some((low, high)) = range.split_once('-') else {
        let low = value(kind, range)?;
        // `10/5` goes on to the end of the field.
        let high = if step.is_some() { most } else { low };
        return Ok((low..=high).step_by(every).collect());
    };
    let low = value(kind, low)?;
    let high = match high {
        "l" if kind == FieldKind::DayOfMonth => most,
        high => value(kind, high)?,
    };
    if low == high {
        // `jan-jan` is the whole year.
        return Ok((least..=most).step_by(every).collect());
    }
    if low < high {
        return Ok((low..=high).step_by(every).collect());
    }
    Ok(wrapped(kind, low, high, step.unwrap_or(1)))
}

/// A range over the end of the field, as `sat-sun` or `22-3`. The step goes on over the end, in croniter's way of
/// counting: only where its next value lies beyond the end.
fn wrapped(kind: FieldKind, low: u16, high: u16, step: u16) -> Vec<u16> {
    let (least, most) = kind.range();
    let every = usize::from(step);
    let mut values: Vec<u16> = (low..=most).step_by(every).collect();
    let reached = values.last().copied().unwrap_or(low);
    let after_reached = most - reached;
    let does_overshoot = u32::from(reached - least) + u32::from(step) > u32::from(most - least) + 1;
    let skipped = if does_overshoot && after_reached < step {
        step - after_reached
    } else {
        0
    };
    values.extend((least.saturating_add(skipped)..=high).step_by(every));
    values
}
