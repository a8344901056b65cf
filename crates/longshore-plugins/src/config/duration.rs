//! Durations as Go writes them: `1h30m`, `500ms`.

use std::time::Duration;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The duration of a text; `None` for no duration, and for a negative one.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim().trim_start_matches('+');
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(scaled(number, scale)?)?;
        rest = next;
    }
    Some(Duration::from_nanos(nanos))
}

fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos = match whole {
        "" => 0,
        whole => whole.parse::<u64>().ok()?.checked_mul(scale)?,
    };
    let mut place = scale;
    for digit in fraction.chars() {
        place /= 10;
        nanos = nanos.checked_add(u64::from(digit.to_digit(10)?).checked_mul(place)?)?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_does() {
        for (text, millis) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("3m0s", Some(180_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1_500)),
            (".5s", Some(500)),
            ("250ms", Some(250)),
            ("", None),
            ("5", None),
            ("-5s", None),
            ("5 s", None),
            ("s", None),
            ("1.2.3s", None),
            ("99999999999h", None),
        ] {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
