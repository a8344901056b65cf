//! Durations as Flink reads and writes them (`TimeUtils`, `java.time.Duration`).

use jiff::SignedDuration;

use super::value::{FromConf, InvalidValue};

/// A unit of Flink's notation: its nanoseconds, and its labels; the first label is the one that Flink writes.
struct Unit {
    nanos: i128,
    labels: &'static [&'static str],
}

/// From the shortest to the longest.
const UNITS: [Unit; 7] = [
    Unit {
        nanos: 1,
        labels: &["ns", "nano", "nanos", "nanosecond", "nanoseconds"],
    },
    Unit {
        nanos: 1_000,
        labels: &["µs", "micro", "micros", "microsecond", "microseconds"],
    },
    Unit {
        nanos: 1_000_000,
        labels: &["ms", "milli", "millis", "millisecond", "milliseconds"],
    },
    Unit {
        nanos: 1_000_000_000,
        labels: &["s", "sec", "secs", "second", "seconds"],
    },
    Unit {
        nanos: 60_000_000_000,
        labels: &["min", "m", "minute", "minutes"],
    },
    Unit {
        nanos: 3_600_000_000_000,
        labels: &["h", "hour", "hours"],
    },
    Unit {
        nanos: 86_400_000_000_000,
        labels: &["d", "day", "days"],
    },
];

/// Where milliseconds stand in [`UNITS`]: a number without a unit counts milliseconds.
const MILLIS: usize = 2;

/// Reads a duration: a whole number and a unit (`15 s`, `1 min`, `10m`, `500 ms`), a whole number of milliseconds, or
/// ISO-8601 as Java reads it (`PT1H30M`, `P1D`, `PT-5S`).
///
/// # Errors
/// [`InvalidValue`] for any other text, and for a duration that 64-bit seconds cannot hold.
pub fn parse(text: &str) -> Result<SignedDuration, InvalidValue> {
    let trimmed = text.trim();
    let nanos =
        if trimmed.contains(['P', 'p']) && !trimmed.starts_with(|c: char| c.is_ascii_digit()) {
            iso_nanos(trimmed)
        } else {
            flink_nanos(trimmed)
        };
    nanos.and_then(from_nanos).ok_or_else(|| {
        InvalidValue::new(
            "a duration such as `15 s`, `1 min`, `500 ms` or `PT1H`",
            text,
        )
    })
}

/// Writes a duration as Flink does: in the longest unit that divides it, as in `5 min` or `3601 s`.
#[must_use]
pub fn format(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return format!("0 {}", UNITS[MILLIS].labels[0]);
    }
    let longest = UNITS.iter().rev().find(|unit| nanos % unit.nanos == 0);
    longest.map_or_else(
        || format!("{nanos} ns"),
        |unit| format!("{} {}", nanos / unit.nanos, unit.labels[0]),
    )
}

impl FromConf for SignedDuration {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        parse(text)
    }
}

fn flink_nanos(trimmed: &str) -> Option<i128> {
    let end = trimmed.find(|c: char| !c.is_ascii_digit());
    let (number, label) = trimmed.split_at(end.unwrap_or(trimmed.len()));
    let number: i64 = number.parse().ok()?;
    let label = label.trim().to_lowercase();
    let unit = if label.is_empty() {
        &UNITS[MILLIS]
    } else {
        UNITS
            .iter()
            .find(|unit| unit.labels.contains(&label.as_str()))?
    };
    i128::from(number).checked_mul(unit.nanos)
}

/// Reads `[+-]PnDTnHnMn.nS`, each number with a sign of its own, as `java.time.Duration` does.
fn iso_nanos(text: &str) -> Option<i128> {
    let upper = text.to_ascii_uppercase();
    let (sign, unsigned) = signed(&upper);
    let (days, time) = match unsigned.strip_prefix('P')?.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (unsigned.strip_prefix('P')?, None),
    };
    let mut total = 0_i128;
    let mut n_parts = 0;
    if !add_part(days, 'D', UNITS[6].nanos, &mut total, &mut n_parts)?.is_empty() {
        return None;
    }
    if let Some(time) = time {
        let before = n_parts;
        let mut rest = time;
        for (letter, nanos) in [
            ('H', UNITS[5].nanos),
            ('M', UNITS[4].nanos),
            ('S', UNITS[3].nanos),
        ] {
            rest = add_part(rest, letter, nanos, &mut total, &mut n_parts)?;
        }
        if !rest.is_empty() || n_parts == before {
            return None;
        }
    }
    (n_parts > 0).then_some(sign * total)
}

/// Adds the part of an ISO duration that ends with this letter, if it comes next, and returns what follows.
fn add_part<'a>(
    text: &'a str,
    letter: char,
    nanos: i128,
    total: &mut i128,
    n_parts: &mut usize,
) -> Option<&'a str> {
    let Some((number, rest)) = text.split_once(letter) else {
        return Some(text);
    };
    let (sign, number) = signed(number);
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    if !fraction.is_empty() && letter != 'S' {
        return None;
    }
    let whole = i128::from(whole.parse::<i64>().ok()?) * nanos;
    let fraction: i128 = format!("{fraction:0<9}").parse().ok()?;
    *total += sign * (whole + fraction);
    *n_parts += 1;
    Some(rest)
}

fn signed(text: &str) -> (i128, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn from_nanos(nanos: i128) -> Option<SignedDuration> {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    let rest = i32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
    SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(i64::from(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_flinks_notation_and_in_javas() {
        for (text, millis) in [
            ("15 s", 15_000),
            ("1 min", 60_000),
            ("10m", 600_000),
            ("500 ms", 500),
            ("  7 Minutes ", 420_000),
            ("42", 42),
            ("1d", 86_400_000),
            ("2 hours", 7_200_000),
            ("5000 µs", 5),
            ("3000000 nanoseconds", 3),
            ("PT15S", 15_000),
            ("pt1h30m", 5_400_000),
            ("P1D", 86_400_000),
            ("P2DT3H4M", 183_840_000),
            ("PT-6H+3M", -21_420_000),
            ("-PT6H", -21_600_000),
            ("PT1.5S", 1_500),
        ] {
            assert_eq!(
                parse(text).map(|read| read.as_millis()),
                Ok(millis),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in [
            "",
            " ",
            "s",
            "-5 s",
            "1.5 s",
            "5 fortnights",
            "1 min 5 s",
            "P",
            "PT",
            "P1H",
            "P1DT",
            "PT1M1H",
            "PT1.5H",
            "99999999999999999999 s",
            "9223372036854775807 d",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_in_the_longest_unit_that_divides_them() {
        for (text, written) in [
            ("300000", "5 min"),
            ("3601 s", "3601 s"),
            ("24 h", "1 d"),
            ("1500 ms", "1500 ms"),
            ("0 s", "0 ms"),
            ("1001 µs", "1001 µs"),
            ("60 min", "1 h"),
        ] {
            assert_eq!(parse(text).map(format), Ok(written.to_owned()), "{text}");
        }
    }
}
