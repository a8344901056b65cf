//! Instants and durations as the Execution API writes them (upstream: Pydantic).

use std::fmt;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, tz::Offset};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant: `2026-11-21T00:30:01.084152Z`, with six digits of the second or none.
///
/// A finer instant is cut to microseconds, which is what Airflow's database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDateTime(pub Timestamp);

impl UtcDateTime {
    /// Reads an instant; `None` for a text that is none, or that has no offset from UTC.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl From<Timestamp> for UtcDateTime {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl fmt::Display for UtcDateTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The civil time counts its fraction upwards, before 1970 too.
        let at = Offset::UTC.to_datetime(self.0);
        write!(formatter, "{}", at.strftime("%Y-%m-%dT%H:%M:%S"))?;
        let micros = at.subsec_nanosecond() / 1_000;
        if micros != 0 {
            write!(formatter, ".{micros:06}")?;
        }
        formatter.write_str("Z")
    }
}

impl Serialize for UtcDateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcDateTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("expected an instant with its offset"))
    }
}

/// A duration in the form of ISO 8601: `P7D`, `PT1H30M`, `-PT5S`. A day has 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IsoDuration(pub SignedDuration);

impl IsoDuration {
    /// Reads a duration; `None` for a text that is none, or that counts in months or years.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // jiff also reads its friendly form, `7 days`, which Pydantic does not.
        if !text.trim_start_matches(['-', '+']).starts_with('P') {
            return None;
        }
        let span: Span = text.parse().ok()?;
        let days = SpanRelativeTo::days_are_24_hours();
        span.to_duration(days).ok().map(Self)
    }
}

impl fmt::Display for IsoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 86_400;
        if self.0.is_negative() {
            formatter.write_str("-")?;
        }
        let duration = self.0.unsigned_abs();
        let (days, rest) = (duration.as_secs() / DAY, duration.as_secs() % DAY);
        formatter.write_str("P")?;
        if days > 0 {
            write!(formatter, "{days}D")?;
        }
        let micros = duration.subsec_micros();
        if rest == 0 && micros == 0 {
            return formatter.write_str(if days > 0 { "" } else { "T0S" });
        }
        formatter.write_str("T")?;
        for (amount, unit) in [(rest / 3600, 'H'), (rest / 60 % 60, 'M')] {
            if amount > 0 {
                write!(formatter, "{amount}{unit}")?;
            }
        }
        match (rest % 60, micros) {
            (0, 0) => Ok(()),
            (seconds, 0) => write!(formatter, "{seconds}S"),
            (seconds, micros) => {
                let fraction = format!("{micros:06}");
                write!(formatter, "{seconds}.{}S", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for IsoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IsoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("expected a duration of ISO 8601"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_have_six_digits_of_the_second_or_none() {
        for (read, written) in [
            ("2026-11-21T00:30:00Z", "2026-11-21T00:30:00Z"),
            ("2026-11-21T00:30:01.084152Z", "2026-11-21T00:30:01.084152Z"),
            ("2026-11-21T00:30:01.5Z", "2026-11-21T00:30:01.500000Z"),
            ("2026-11-21T02:30:01.5+02:00", "2026-11-21T00:30:01.500000Z"),
            ("2026-11-21 00:30:00+00:00", "2026-11-21T00:30:00Z"),
            ("2026-11-21T00:30:00.000000999Z", "2026-11-21T00:30:00Z"),
            ("1969-12-31T23:59:59.25Z", "1969-12-31T23:59:59.250000Z"),
        ] {
            let at = UtcDateTime::parse(read).unwrap();
            assert_eq!(at.to_string(), written, "{read}");
        }
        for wrong in ["", "2026-11-21T00:30:00", "2026-11-21", "now"] {
            assert_eq!(UtcDateTime::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_are_those_of_iso_8601() {
        for (read, seconds, written) in [
            ("P7D", 604_800.0, "P7D"),
            ("P1W", 604_800.0, "P7D"),
            ("PT3H", 10_800.0, "PT3H"),
            ("P1DT1H30M5S", 91_805.0, "P1DT1H30M5S"),
            ("PT90S", 90.0, "PT1M30S"),
            ("PT0.5S", 0.5, "PT0.5S"),
            ("-PT5S", -5.0, "-PT5S"),
            ("PT0S", 0.0, "PT0S"),
            ("P1DT0.000001S", 86_400.000_001, "P1DT0.000001S"),
        ] {
            let duration = IsoDuration::parse(read).unwrap();
            assert_eq!(duration.0.as_secs_f64(), seconds, "{read}");
            assert_eq!(duration.to_string(), written, "{read}");
            assert_eq!(IsoDuration::parse(written), Some(duration), "{read}");
        }
        for wrong in ["", "P", "7 days", "P1Y", "P1M", "604800"] {
            assert_eq!(IsoDuration::parse(wrong), None, "{wrong}");
        }
    }
}
