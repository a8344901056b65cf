//! Amounts of memory as Flink reads, writes and multiplies them (`MemorySize`).

use std::fmt;

use super::value::{FromConf, InvalidValue};

/// An amount of memory in bytes, of at most 2^63 − 1 bytes.
///
/// `Display` writes it as Flink does: in the largest unit that divides it (`1 gb`, `1536 mb`). [`MemorySize::human`] is
/// the form of error messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize(u64);

const MAX: u64 = i64::MAX as u64;

/// Multiplier and labels; the second label is the one that Flink writes.
const UNITS: [(u64, [&str; 3]); 5] = [
    (1, ["b", "bytes", "bytes"]),
    (1 << 10, ["k", "kb", "kibibytes"]),
    (1 << 20, ["m", "mb", "mebibytes"]),
    (1 << 30, ["g", "gb", "gibibytes"]),
    (1 << 40, ["t", "tb", "tebibytes"]),
];

impl MemorySize {
    /// No memory.
    pub const ZERO: Self = Self(0);
    /// The largest amount that Flink can hold.
    pub const MAX: Self = Self(MAX);

    /// This many bytes, cut at [`MemorySize::MAX`].
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(if bytes > MAX { MAX } else { bytes })
    }

    /// This many mebibytes.
    #[must_use]
    pub const fn of_mebibytes(mebibytes: u32) -> Self {
        Self((mebibytes as u64) << 20)
    }

    /// Reads an amount: a whole number and a unit (`2048m`, `1 gb`, `512 kibibytes`), or a whole number of bytes. All
    /// units are powers of 1024.
    ///
    /// # Errors
    /// [`InvalidValue`] for any other text, and for an amount above [`MemorySize::MAX`].
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let error = || {
            InvalidValue::new(
                "an amount of memory such as `1024m`, `2g` or `512 kb`",
                text,
            )
        };
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit());
        let (number, label) = trimmed.split_at(end.unwrap_or(trimmed.len()));
        let number: u64 = number.parse().map_err(|_| error())?;
        let label = label.trim().to_ascii_lowercase();
        let multiplier = UNITS
            .iter()
            .find(|(_, labels)| label.is_empty() || labels.contains(&label.as_str()))
            .map(|(multiplier, _)| *multiplier);
        multiplier
            .and_then(|multiplier| number.checked_mul(multiplier))
            .filter(|bytes| *bytes <= MAX)
            .map(Self)
            .ok_or_else(error)
    }

    /// The amount in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The amount in mebibytes, rounded down (upstream: `getMebiBytes`).
    #[must_use]
    pub const fn mebibytes(self) -> u64 {
        self.0 >> 20
    }

    /// The sum; `None` above [`MemorySize::MAX`].
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0
            .checked_add(other.0)
            .filter(|sum| *sum <= MAX)
            .map(Self)
    }

    /// The difference; `None` below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// The product, cut to whole bytes; `None` for a negative factor and above [`MemorySize::MAX`].
    ///
    /// Flink multiplies by the decimal number that the factor is written as, so this one does it too: a product of two
    /// binary fractions would be one byte off here and there.
    #[must_use]
    pub fn times(self, factor: f64) -> Option<Self> {
        if !(factor.is_finite() && factor >= 0.0) {
            return None;
        }
        let written = format!("{factor}");
        let (whole, fraction) = written.split_once('.').unwrap_or((&written, ""));
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let product = u128::from(self.0).checked_mul(digits)?;
        let divisor = u32::try_from(fraction.len())
            .ok()
            .and_then(|power| 10_u128.checked_pow(power));
        // A divisor of more than 38 digits is larger than any product.
        let bytes = divisor.map_or(0, |divisor| product / divisor);
        u64::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= MAX)
            .map(Self)
    }

    /// The form of Flink's messages: `1.500gb (1610612736 bytes)`.
    #[must_use]
    pub fn human(self) -> String {
        let largest = UNITS
            .iter()
            .rev()
            .find(|(multiplier, _)| self.0 > *multiplier);
        match largest {
            Some((multiplier, labels)) if *multiplier > 1 => {
                let amount = self.0 as f64 / *multiplier as f64;
                format!("{amount:.3}{} ({} bytes)", labels[1], self.0)
            }
            _ => format!("{} bytes", self.0),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Upstream writes whole tebibytes, and zero, in bytes.
        let in_bytes = self.0.is_multiple_of(UNITS[4].0);
        let largest = UNITS
            .iter()
            .rev()
            .find(|(multiplier, _)| !in_bytes && self.0.is_multiple_of(*multiplier));
        let (multiplier, labels) = largest.unwrap_or(&UNITS[0]);
        write!(f, "{} {}", self.0 / multiplier, labels[1])
    }
}

impl FromConf for MemorySize {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_powers_of_1024_and_written_in_the_largest_unit() {
        for (text, bytes, written) in [
            ("1024", 1024, "1 kb"),
            ("1024m", 1 << 30, "1 gb"),
            ("2048m", 2 << 30, "2 gb"),
            (" 2 G ", 2 << 30, "2 gb"),
            ("1536 mebibytes", 1536 << 20, "1536 mb"),
            ("3 tb", 3 << 40, "3298534883328 bytes"),
            ("1025 b", 1025, "1025 bytes"),
            ("0", 0, "0 bytes"),
            ("9223372036854775807", MAX, "9223372036854775807 bytes"),
        ] {
            let read = MemorySize::parse(text).unwrap();
            assert_eq!(read.bytes(), bytes, "{text}");
            assert_eq!(read.to_string(), written, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_amounts() {
        for text in [
            "",
            "m",
            "-1m",
            "1.5g",
            "2Gi",
            "2 gib",
            "9223372036854775808",
            "8388608 tb",
        ] {
            assert!(MemorySize::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn products_are_those_of_decimal_numbers() {
        for (bytes, factor, product) in [
            (8_u64 << 30, f64::from(0.1_f32), Some(858_993_472)),
            (2600 << 20, f64::from(0.1_f32), Some(272_629_764)),
            (1000, 0.5, Some(500)),
            (1000, 0.0, Some(0)),
            (1000, 3.0, Some(3000)),
            (1, f64::MIN_POSITIVE, Some(0)),
            (1, -0.1, None),
            (1, f64::NAN, None),
            (MAX, 2.0, None),
        ] {
            let found = MemorySize::of_bytes(bytes).times(factor);
            assert_eq!(found.map(MemorySize::bytes), product, "{bytes} × {factor}");
        }
    }

    #[test]
    fn messages_name_the_amount_twice() {
        for (bytes, human) in [
            (0, "0 bytes"),
            (1024, "1024 bytes"),
            (1025, "1.001kb (1025 bytes)"),
            (2_726_297_600, "2.539gb (2726297600 bytes)"),
            (134_217_728, "128.000mb (134217728 bytes)"),
        ] {
            assert_eq!(MemorySize::of_bytes(bytes).human(), human);
        }
    }
}
