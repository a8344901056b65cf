//! Kubernetes quantities, as far as the downward API needs them.

/// The amount in thousandths: `"500m"` is 500, `"1Ki"` is 1,024,000. `None` when it is not a quantity.
pub(crate) fn milli(quantity: &str) -> Option<i128> {
    let split = quantity.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'));
    let (number, suffix) = quantity.split_at(split.unwrap_or(quantity.len()));
    let (factor, divisor): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000 * 1_000, 1),
        "M" => (1_000 * 1_000_000, 1),
        "G" => (1_000 * 1_000_000_000, 1),
        "T" => (1_000 * 1_000_000_000_000, 1),
        "P" => (1_000 * 1_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some(digits.checked_mul(factor)? / (scale * divisor))
}

/// How many times `divisor` goes into `amount`, rounded up, as the downward API publishes it.
pub(crate) fn divided(amount: &str, divisor: &str) -> Option<i128> {
    let divisor = milli(divisor).filter(|d| *d > 0)?;
    let amount = milli(amount)?;
    Some((amount + divisor - 1).div_euclid(divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        for (amount, divisor, expected) in [
            ("500m", "1", Some(1)),
            ("1500m", "1", Some(2)),
            ("500m", "1m", Some(500)),
            ("1.5", "1m", Some(1500)),
            ("64Mi", "1Mi", Some(64)),
            ("1G", "1", Some(1_000_000_000)),
            ("x", "1", None),
            ("1", "0", None),
        ] {
            assert_eq!(divided(amount, divisor), expected, "{amount} / {divisor}");
        }
    }
}
