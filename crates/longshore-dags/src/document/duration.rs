//! Durations as people write them.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use serde_json::Number;

/// What can be written.
pub(super) const HELP: &str =
    "write seconds (`300`), units (`30s`, `5m`, `1h30m`, `2d`) or ISO 8601 (`PT5M`)";

/// No duration of a DAG is longer: a hundred years, which every later calculation can hold.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Reads a number of seconds. The error continues a sentence that begins with the field.
pub(super) fn from_seconds(number: &Number) -> Result<Duration, &'static str> {
    let seconds = number.as_f64().unwrap_or(f64::INFINITY);
    if seconds < 0.0 {
        return Err("must not be negative");
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| "must be at most 100 years")?;
    bounded(duration)
}

/// Reads a text with units. The error continues a sentence that begins with the field.
pub(super) fn from_text(text: &str) -> Result<Duration, &'static str> {
    const UNREADABLE: &str = "must be a duration";
    let span: Span = text.trim().parse().map_err(|_| UNREADABLE)?;
    let signed = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "must be in weeks, days, hours, minutes and seconds")?;
    if signed.is_negative() {
        return Err("must not be negative");
    }
    bounded(signed.unsigned_abs())
}

/// Whole milliseconds, because fractions of seconds would not be exact.
fn bounded(duration: Duration) -> Result<Duration, &'static str> {
    if duration > LONGEST {
        return Err("must be at most 100 years");
    }
    let nanoseconds = duration.subsec_nanos();
    let rounded = u64::from(nanoseconds.div_ceil(1_000_000));
    Ok(Duration::from_secs(duration.as_secs()) + Duration::from_millis(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_iso_8601_are_read() {
        for (text, expected) in [
            ("30s", Ok(30)),
            ("5m", Ok(300)),
            ("1h", Ok(3600)),
            ("1h30m", Ok(5400)),
            ("1h 30m", Ok(5400)),
            ("2d", Ok(172_800)),
            ("1w", Ok(604_800)),
            ("PT5M", Ok(300)),
            ("P1DT1S", Ok(86_401)),
            ("5 minutes", Ok(300)),
            ("0s", Ok(0)),
            ("-5m", Err("must not be negative")),
            ("5m ago", Err("must not be negative")),
            (
                "1y",
                Err("must be in weeks, days, hours, minutes and seconds"),
            ),
            ("9999w", Err("must be at most 100 years")),
            ("", Err("must be a duration")),
            ("soon", Err("must be a duration")),
            ("300", Err("must be a duration")),
            ("5x", Err("must be a duration")),
        ] {
            assert_eq!(
                from_text(text),
                expected.map(Duration::from_secs),
                "of {text:?}"
            );
        }
    }

    #[test]
    fn numbers_are_seconds() {
        let seconds = |n: f64| from_seconds(&Number::from_f64(n).unwrap());
        assert_eq!(seconds(0.0), Ok(Duration::ZERO));
        assert_eq!(seconds(1.5), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds(0.000_01), Ok(Duration::from_millis(1)));
        assert_eq!(seconds(-0.1), Err("must not be negative"));
        assert_eq!(seconds(1e300), Err("must be at most 100 years"));
        assert_eq!(
            from_seconds(&Number::from(300)),
            Ok(Duration::from_secs(300))
        );
    }
}
