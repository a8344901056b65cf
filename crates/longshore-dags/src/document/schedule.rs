//! `schedule`, `timezone`, `start_date`, `end_date` and `catchup` of a DAG.

use jiff::{
    Timestamp, civil,
    tz::{TimeZone, db},
};

use super::{
    duration,
    node::{Key, Kind, Node},
    problem::Code,
    reader::{Located, Object, Reader},
    suggest,
};
use crate::timetable::{
    self, CronExpression, CronSchedule, CronTrigger, Delta, PRESETS, Restriction, Timetable,
};

const HELP: &str = "write a cron expression (`0 6 * * 1-5`), a preset (`@daily`), a duration (`30m`, `{days: 1}`) or a list of cron expressions";

const UNITS: [&str; 7] = [
    "years", "months", "weeks", "days", "hours", "minutes", "seconds",
];

/// What a DAG file says of when the DAG runs.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// As written, where it is one text or number.
    pub(super) written: Option<String>,
    pub(super) timetable: Timetable,
    pub(super) restriction: Restriction,
}

/// Reads the five fields of the DAG.
pub(super) fn read(reader: &mut Reader<'_>, dag: &Object<'_>) -> Schedule {
    let zone = dag
        .read("timezone", |what, node| read_zone(reader, what, node))
        .unwrap_or(TimeZone::UTC);
    let earliest = dag.read("start_date", |what, node| {
        read_date(reader, what, node, &zone)
    });
    let latest = dag.read("end_date", |what, node| {
        read_date(reader, what, node, &zone)
    });
    if let (Some(earliest), Some(latest), Some(node)) = (earliest, latest, dag.get("end_date"))
        && latest < earliest
    {
        let message = format!("`end_date` of {} lies before its `start_date`", dag.place);
        let help = "move one of them, or remove `end_date`";
        reader.report(Code::OutOfRange, node.span, message, help);
    }
    let catchup = dag.read("catchup", |what, node| reader.boolean(what, node));
    let written = dag.get("schedule").and_then(|node| match &node.kind {
        Kind::Text(text) => Some(text.clone()),
        Kind::Number(number) => Some(number.to_string()),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
    });
    let timetable = dag.read("schedule", |what, node| {
        read_timetable(reader, what, node, &zone)
    });
    Schedule {
        written,
        timetable: timetable.unwrap_or_default(),
        restriction: Restriction {
            earliest,
            latest,
            catchup: catchup.unwrap_or(false),
        },
    }
}

fn read_timetable(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
    zone: &TimeZone,
) -> Option<Timetable> {
    match &node.kind {
        Kind::Text(_) => {
            let text = reader.located(what, node)?;
            read_text(reader, what, node, &text, zone)
        }
        Kind::Number(_) => read_step(reader, what, node),
        Kind::Map(entries) => read_units(reader, what, node, entries),
        Kind::List(items) if items.is_empty() => {
            reader.report(
                Code::InvalidValue,
                node.span,
                format!("{what} is empty"),
                HELP,
            );
            None
        }
        Kind::List(_) => {
            let texts = reader.texts(what, node, HELP)?;
            let triggers: Vec<Option<CronTrigger>> = texts
                .iter()
                .map(|text| read_cron(reader, what, text, zone))
                .collect();
            let triggers: Option<Vec<CronTrigger>> = triggers.into_iter().collect();
            triggers.map(Timetable::MultipleCronTrigger)
        }
        Kind::Null | Kind::Bool(_) => {
            let message = format!("{what} cannot be {}", node.describe());
            reader.report(Code::WrongType, node.span, message, HELP);
            None
        }
    }
}

fn read_text(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
    text: &Located,
    zone: &TimeZone,
) -> Option<Timetable> {
    let word = text.text.trim().to_ascii_lowercase();
    match word.as_str() {
        "@once" => return Some(Timetable::Once),
        "@continuous" => return Some(Timetable::Continuous),
        _ => {}
    }
    let is_preset = PRESETS.iter().any(|(name, _)| *name == word);
    if word.starts_with('@') && !is_preset {
        let mut known = vec!["@once", "@continuous"];
        known.extend(PRESETS.iter().map(|(name, _)| *name));
        let message = format!("{what} cannot be `{}`", suggest::quoted(&text.text));
        let help = suggest::help(&word, &known, "presets");
        reader.report(Code::UnknownWord, node.span, message, help);
        return None;
    }
    // A duration has units where a cron expression has five fields or a preset.
    if !is_preset && (word.split_whitespace().count() < 5 || duration::from_text(&word).is_ok()) {
        return match duration::from_text(&word) {
            Ok(_) => read_step(reader, what, node),
            Err(why) if why.contains("must be a duration") => {
                read_cron(reader, what, text, zone).map(Timetable::CronTrigger)
            }
            Err(why) => {
                let message = format!("{what} {why}, but is {}", node.describe());
                reader.report(Code::InvalidDuration, node.span, message, HELP);
                None
            }
        };
    }
    read_cron(reader, what, text, zone).map(Timetable::CronTrigger)
}

fn read_cron(
    reader: &mut Reader<'_>,
    what: &str,
    text: &Located,
    zone: &TimeZone,
) -> Option<CronTrigger> {
    match text.text.parse::<CronExpression>() {
        Ok(expression) => Some(CronTrigger::at(CronSchedule {
            expression,
            zone: zone.clone(),
        })),
        Err(error) => {
            let span = reader.span_in(text, &error.range);
            let message = format!("{what}: {}", suggest::line(&error.message));
            reader.report(Code::InvalidValue, span, message, error.help);
            None
        }
    }
}

/// A duration as everywhere in a DAG file.
fn read_step(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Timetable> {
    let duration = reader.duration(what, node)?;
    if duration.is_zero() {
        let message = format!("{what} must be longer than zero");
        reader.report(Code::OutOfRange, node.span, message, HELP);
        return None;
    }
    let rest = duration.try_into().ok()?;
    Some(every(Delta::exact(rest)))
}

/// A duration by units, the calendar's too: `{months: 1}`.
fn read_units(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
    entries: &[(Key, Node)],
) -> Option<Timetable> {
    reader.object(what.to_owned(), node, &UNITS, &[])?;
    let mut sum = Delta::ZERO;
    for (unit, node) in entries {
        let n = match &node.kind {
            Kind::Number(number) => number.as_f64(),
            Kind::Null | Kind::Bool(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => None,
        };
        if !UNITS.contains(&unit.text.as_str()) {
            return None;
        }
        let Some(more) = n.and_then(|n| sum.plus(&unit.text, n)) else {
            let message = format!(
                "`{}` of {what} must be a number, but is {}",
                unit.text,
                node.describe()
            );
            let help = "write a number, a whole one for months and years";
            reader.report(Code::InvalidDuration, node.span, message, help);
            return None;
        };
        sum = more;
    }
    if !sum.is_positive() || sum.add_to(Timestamp::UNIX_EPOCH).is_none() {
        let message = format!("{what} must be longer than zero, and not longer than history");
        reader.report(Code::OutOfRange, node.span, message, HELP);
        return None;
    }
    Some(every(sum))
}

fn every(delta: Delta) -> Timetable {
    Timetable::DeltaTrigger {
        delta,
        interval: Delta::ZERO,
    }
}

fn read_zone(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<TimeZone> {
    let name = reader.text(what, node)?;
    let zone = timetable::zone(&name);
    if zone.is_none() {
        let message = format!("{what} cannot be `{}`", suggest::quoted(&name));
        let known: Vec<String> = db().available().map(|zone| zone.to_string()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let help = match suggest::closest(&name, &known) {
            Some(close) => format!("did you mean `{close}`?"),
            None => "write a name of the time zone database, as `Europe/Berlin`".to_owned(),
        };
        reader.report(Code::UnknownWord, node.span, message, help);
    }
    zone
}

/// A date or a date with time; by the clock of the DAG's `timezone` where it does not say otherwise.
fn read_date(
    reader: &mut Reader<'_>,
    what: &str,
    node: &Node,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let text = reader.text(what, node)?;
    // A zone in brackets would be left out, or contradict the offset before it.
    if text.contains('[') {
        let message = format!(
            "{what} must be a date without a time zone in brackets, but is {}",
            node.describe()
        );
        let help =
            "write an offset, as `2026-01-31T06:00:00+01:00`, or name the zone in `timezone`";
        reader.report(Code::InvalidValue, node.span, message, help);
        return None;
    }
    let in_zone = |date: civil::DateTime| Some(date.to_zoned(zone.clone()).ok()?.timestamp());
    let read = text
        .parse()
        .ok()
        .or_else(|| in_zone(text.parse().ok()?))
        .or_else(|| in_zone(text.parse::<civil::Date>().ok()?.into()));
    if read.is_none() {
        let message = format!("{what} must be a date, but is {}", node.describe());
        let help = "write `2026-01-31` or `2026-01-31T06:00:00Z`";
        reader.report(Code::InvalidValue, node.span, message, help);
    }
    read
}
