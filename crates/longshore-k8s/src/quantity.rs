//! Amounts of resources as Kubernetes writes them: `100m`, `1.5`, `32Mi`, `1e3`.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

#[cfg(test)]
mod tests;

/// An amount of a resource, in billionths. A finer amount is rounded away from zero, as upstream does.
///
/// Two quantities are equal if their amounts are, however they were written: `1`, `1000m` and `1e0`.
/// `Display` writes the canonical form (upstream: `CanonicalizeBytes`), in the family of suffixes that was read.
/// An amount of more than 1.7e29 counts as 1.7e29.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes in which a quantity was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `Ki`, `Mi`, …
    Binary,
    /// `m`, none, `k`, `M`, …
    Decimal,
    /// `e3`, `E-3`.
    Exponent,
}

const NANOS: i128 = 1_000_000_000;
/// The largest amount with a binary suffix, in units; upstream silently takes it for any larger one.
const MAX_BINARY: i128 = i64::MAX as i128;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// In steps of a thousand, from a billionth on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Where the suffix for units stands in [`DECIMAL`].
const UNITS: i32 = 3;

impl Quantity {
    /// One unit.
    pub const ONE: Self = Self {
        nanos: NANOS,
        format: Format::Decimal,
    };

    /// Reads a quantity as kube-apiserver does; `None` for a text that it refuses.
    ///
    /// Upstream accepts a number without digits, as in `m` or `Ki`, and reads it as zero.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let scale = Scale::parse(suffix)?;
        if whole.is_empty() && fraction.is_empty() && !scale.allows_no_digits() {
            return None;
        }
        let nanos = scale.nanos(whole, fraction);
        Some(Self {
            nanos: if is_negative { -nanos } else { nanos },
            format: scale.format(),
        })
    }

    /// The amount in whole units, rounded away from zero (upstream: `Value`).
    pub fn rounded_up(self) -> i128 {
        away_from_zero(self.nanos, NANOS)
    }

    /// The amount in thousandths, rounded away from zero (upstream: `MilliValue`).
    pub fn milli_rounded_up(self) -> i128 {
        away_from_zero(self.nanos, NANOS / 1000)
    }

    /// How many times `divisor` goes into the amount, rounded up, as a `resourceFieldRef` publishes it; `None` unless the
    /// divisor is above zero.
    pub fn divided_by(self, divisor: Self) -> Option<i128> {
        (divisor.nanos > 0).then(|| -(-self.nanos).div_euclid(divisor.nanos))
    }

    /// Whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is above zero.
    pub fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// The number before the suffix and the power of 1024, where a binary suffix can write the amount exactly.
    fn binary(self) -> Option<(i128, usize)> {
        let units = self.nanos / NANOS;
        if self.nanos % NANOS != 0 || units.abs() < 1024 {
            return None;
        }
        let (mut number, mut power) = (units, 0);
        while number % 1024 == 0 && power < BINARY.len() {
            number /= 1024;
            power += 1;
        }
        Some((number, power))
    }

    /// The number before the suffix and the power of ten, a multiple of three.
    fn decimal(self) -> (i128, i32) {
        let (mut number, mut power) = (self.nanos, -9);
        while number % 1000 == 0 && number != 0 {
            number /= 1000;
            power += 3;
        }
        (number, power)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if let (Format::Binary, Some((number, power))) = (self.format, self.binary()) {
            let suffix = power.checked_sub(1).map_or("", |at| BINARY[at]);
            return write!(f, "{number}{suffix}");
        }
        let (number, power) = self.decimal();
        let at = usize::try_from(power / 3 + UNITS).unwrap_or_default();
        match (self.format, DECIMAL.get(at)) {
            (_, Some(&"")) => write!(f, "{number}"),
            (Format::Binary | Format::Decimal, Some(suffix)) => write!(f, "{number}{suffix}"),
            // Above `E` there is no suffix.
            (Format::Exponent, Some(_)) | (_, None) => write!(f, "{number}e{power}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

/// The leading ASCII digits of a text, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

fn away_from_zero(amount: i128, unit: i128) -> i128 {
    amount.signum() * -(-amount.abs()).div_euclid(unit)
}

/// What a suffix multiplies by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// A power of 1024.
    Binary(usize),
    /// A power of ten, by suffix.
    Decimal(i64),
    /// A power of ten, by exponent.
    Exponent(i64),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
            return Some(Self::Binary(at + 1));
        }
        if let Some(at) = DECIMAL.iter().position(|known| *known == suffix) {
            return Some(Self::Decimal(
                3 * (i64::try_from(at).ok()? - i64::from(UNITS)),
            ));
        }
        let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some(Self::Exponent(exponent))
    }

    fn format(self) -> Format {
        match self {
            Self::Binary(_) => Format::Binary,
            Self::Decimal(_) => Format::Decimal,
            Self::Exponent(_) => Format::Exponent,
        }
    }

    /// Whether upstream reads a number without digits as zero. Upstream refuses such a number where the scale is too
    /// large or too small for its 64-bit representation.
    fn allows_no_digits(self) -> bool {
        match self {
            Self::Binary(power) => power < 5,
            Self::Decimal(power) | Self::Exponent(power) => power >= -9,
        }
    }

    /// A number of this scale in billionths, rounded up.
    fn nanos(self, whole: &str, fraction: &str) -> i128 {
        let mut digits = Digits::of(whole, fraction);
        let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let shift = 9_i64.saturating_sub(places);
        match self {
            Self::Binary(power) => {
                for _ in 0..power {
                    digits.multiply(1024);
                }
                digits.shifted(shift).min(MAX_BINARY * NANOS)
            }
            Self::Decimal(power) | Self::Exponent(power) => {
                digits.shifted(shift.saturating_add(power))
            }
        }
    }
}

/// The decimal digits of a whole number of any length, the least significant one first.
struct Digits(Vec<u8>);

impl Digits {
    fn of(whole: &str, fraction: &str) -> Self {
        let bytes = whole.bytes().chain(fraction.bytes());
        let significant = bytes.skip_while(|byte| *byte == b'0');
        let mut digits: Vec<u8> = significant.map(|byte| byte - b'0').collect();
        digits.reverse();
        Self(digits)
    }

    fn multiply(&mut self, factor: u16) {
        let mut carry = 0;
        for digit in &mut self.0 {
            let product = u16::from(*digit) * factor + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.0.push((carry % 10) as u8);
            carry /= 10;
        }
    }

    /// The number times this power of ten, rounded up; `i128::MAX` where it is larger.
    fn shifted(&self, power: i64) -> i128 {
        if power < 0 {
            let n_cut = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
            let (cut, kept) = self.0.split_at(n_cut.min(self.0.len()));
            let is_inexact = cut.iter().any(|digit| *digit != 0);
            return number(kept).saturating_add(i128::from(is_inexact));
        }
        let factor = u32::try_from(power)
            .ok()
            .and_then(|power| 10_i128.checked_pow(power));
        number(&self.0).saturating_mul(factor.unwrap_or(i128::MAX))
    }
}

fn number(digits: &[u8]) -> i128 {
    digits.iter().rev().fold(0_i128, |number, digit| {
        number.saturating_mul(10).saturating_add(i128::from(*digit))
    })
}
