//! Amounts of resources as Kubernetes writes them: `100m`, `1.5`, `32Mi`, `1e3`.

/// An amount, in billionths; what is finer is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

impl Quantity {
    /// The amount that a text says; `None` where it says none.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let scale = Scale::parse(suffix)?;
        let numerator = digits.checked_mul(scale.numerator)?.checked_mul(NANOS)?;
        let places = u32::try_from(fraction.len()).ok()?;
        let denominator = 10_i128
            .checked_pow(places)?
            .checked_mul(scale.denominator)?;
        let nanos = -(-numerator).div_euclid(denominator);
        Some(Self {
            nanos: if is_negative { -nanos } else { nanos },
        })
    }

    /// The least whole number that is enough.
    pub fn rounded_up(self) -> i128 {
        -(-self.nanos).div_euclid(NANOS)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

const NANOS: i128 = 1_000_000_000;

/// What a suffix multiplies by.
struct Scale {
    numerator: i128,
    denominator: i128,
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
            let power = u32::try_from(at).ok()? + 1;
            return Some(Self {
                numerator: 1024_i128.pow(power),
                denominator: 1,
            });
        }
        let exponent = match suffix {
            "n" => -9,
            "u" => -6,
            "m" => -3,
            "" => 0,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            "T" => 12,
            "P" => 15,
            "E" => 18,
            _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        let power = 10_i128.checked_pow(i32::unsigned_abs(exponent))?;
        Some(if exponent < 0 {
            Self {
                numerator: 1,
                denominator: power,
            }
        } else {
            Self {
                numerator: power,
                denominator: 1,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        Quantity::parse(text).unwrap().nanos
    }

    #[test]
    fn the_least_whole_number_that_is_enough_is_found() {
        for (text, expected) in [("0", 0), ("2", 2), ("1500m", 2), ("1m", 1), ("-1500m", -1)] {
            assert_eq!(
                Quantity::parse(text).unwrap().rounded_up(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn the_same_amount_is_written_in_many_ways() {
        for (text, expected) in [
            ("0", 0),
            ("100m", NANOS / 10),
            (".1", NANOS / 10),
            ("1.", NANOS),
            ("+1", NANOS),
            ("-1", -NANOS),
            ("1e3", 1000 * NANOS),
            ("1E3", 1000 * NANOS),
            ("1k", 1000 * NANOS),
            ("1e-3", NANOS / 1000),
            ("1.5Ki", 1536 * NANOS),
            ("1E", 10_i128.pow(18) * NANOS),
            ("1n", 1),
            ("0.5n", 1),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
        assert!(Quantity::parse("1Gi") > Quantity::parse("1G"));
        assert!(Quantity::parse("0m").unwrap().is_zero());
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "", ".", "m", "1x", "1 Gi", "1.2.3", "1KiB", "e3", "1e", "--1", "1e99", "٣",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }
}
