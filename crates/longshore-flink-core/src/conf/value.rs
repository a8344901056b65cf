//! What the text of one value means: the types of Flink's options.

use std::marker::PhantomData;

/// A text that is not a value of the type that its option has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found `{found}`")]
pub struct InvalidValue {
    expected: &'static str,
    found: String,
}

impl InvalidValue {
    /// The error for this text, where this was expected.
    #[must_use]
    pub fn new(expected: &'static str, found: &str) -> Self {
        Self {
            expected,
            found: found.to_owned(),
        }
    }
}

/// A value that an option has in a configuration, although the option has another type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the value of the configuration key `{key}` cannot be used; correct it in the configuration"
)]
pub struct InvalidOption {
    /// The key as it stands in the configuration.
    pub key: String,
    /// What is wrong with its value.
    #[source]
    pub why: InvalidValue,
}

/// A type of values (upstream: `ConfigurationUtils.convertValue`).
pub trait FromConf: Sized {
    /// Reads a value.
    ///
    /// # Errors
    /// [`InvalidValue`] where the text is no value of this type.
    fn from_conf(text: &str) -> Result<Self, InvalidValue>;
}

/// An option: its key, and the older keys that stand for it, in the order in which Flink looks for them.
#[derive(Debug)]
pub struct Key<T> {
    /// The key that Flink documents.
    pub name: &'static str,
    /// Fallback and deprecated keys.
    pub older: &'static [&'static str],
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// An option with one key.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with_older(name, &[])
    }

    /// An option with older keys.
    #[must_use]
    pub const fn with_older(name: &'static str, older: &'static [&'static str]) -> Self {
        Self {
            name,
            older,
            value: PhantomData,
        }
    }

    /// The same option with a default.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Defaulted<T> {
        Defaulted { key: self, default }
    }

    /// All keys of the option, the documented one first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<T> {
        std::iter::once(self.name).chain(self.older.iter().copied())
    }
}

/// An option with a default.
#[derive(Debug)]
pub struct Defaulted<T> {
    /// The option.
    pub key: Key<T>,
    /// The value where the configuration has none.
    pub default: &'static str,
}

impl FromConf for String {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        Ok(text.to_owned())
    }
}

impl FromConf for bool {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(InvalidValue::new("`true` or `false`", text)),
        }
    }
}

impl FromConf for i32 {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        text.parse()
            .map_err(|_| InvalidValue::new("a whole number of at most 2147483647", text))
    }
}

impl FromConf for f64 {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        text.trim()
            .parse()
            .map_err(|_| InvalidValue::new("a number such as `0.5`", text))
    }
}

impl FromConf for f32 {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        text.trim()
            .parse()
            .map_err(|_| InvalidValue::new("a number such as `0.5`", text))
    }
}

/// Writes a number as Java writes a `double`: always with a decimal point, with an exponent below 0.001 and from
/// 10,000,000 on.
#[must_use]
pub fn write_double(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) && size.is_finite() {
        let written = format!("{number:E}");
        return match written.split_once('E') {
            Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
            _ => written,
        };
    }
    if number.fract() == 0.0 {
        format!("{number:.1}")
    } else {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_read_as_java_reads_them() {
        assert_eq!(bool::from_conf("TRUE"), Ok(true));
        assert_eq!(bool::from_conf("False"), Ok(false));
        assert!(bool::from_conf("yes").is_err());
        assert_eq!(i32::from_conf("-12"), Ok(-12));
        assert!(i32::from_conf("1.0").is_err());
        assert!(i32::from_conf("3000000000").is_err());
        assert_eq!(f64::from_conf(" 0.5 "), Ok(0.5));
        assert!(f32::from_conf("half").is_err());
    }

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        for (number, written) in [
            (0.5, "0.5"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (2.25, "2.25"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (0.000_15, "1.5E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
        ] {
            assert_eq!(write_double(number), written);
        }
    }

    #[test]
    fn an_error_says_what_was_expected_and_what_was_found() {
        let error = bool::from_conf("yes").unwrap_err();
        assert_eq!(error.to_string(), "expected `true` or `false`, found `yes`");
    }
}
