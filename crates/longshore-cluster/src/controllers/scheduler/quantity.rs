//! Quantities of Kubernetes: `500m`, `1Gi`, `2e3`.

/// Suffixes and what they stand for, in thousandths.
const SUFFIXES: &[(&str, i128)] = &[
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("Ei", 1000 << 60),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
];

/// A quantity in thousandths, rounded up; `None` when the text is none.
pub(super) fn thousandths(text: &str) -> Option<i128> {
    let found = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit, 0)));
    let (number, unit, exponent) = match found {
        Some(found) => found,
        None => match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, 1000, exponent.parse::<i32>().ok()?),
            None => (text, 1000, 0),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = exponent - i32::try_from(fraction.len()).ok()?;
    let value = digits.checked_mul(unit)?;
    let power = 10_i128.checked_pow(scale.unsigned_abs())?;
    if scale >= 0 {
        value.checked_mul(power)
    } else {
        Some((value + power - 1).div_euclid(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("500m", Some(500)),
            ("0.5", Some(500)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("2k", Some(2_000_000)),
            ("1e3", Some(1_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("0.1m", Some(1)),
            ("", None),
            ("x", None),
            ("1Zi", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text:?}");
        }
    }
}
