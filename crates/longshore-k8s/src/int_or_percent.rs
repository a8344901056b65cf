//! Numbers of pods, or percentages of a number of pods, as in `maxSurge: 25%`.

use serde_json::Value;

/// A number, or a percentage of another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number by itself.
    Int(i64),
    /// So many hundredths of a total.
    Percent(i64),
}

/// How a percentage becomes a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// As for `maxSurge`, and for both fields of a PodDisruptionBudget.
    Up,
    /// As for `maxUnavailable` of a Deployment.
    Down,
}

/// A value that is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for IntOrString: expected a number or a percentage, found {found}")]
pub struct InvalidIntOrPercent {
    found: Value,
}

impl IntOrPercent {
    /// Reads the value of a field: `3` or `"25%"`.
    ///
    /// # Errors
    /// The value is neither a whole number nor a text that ends in `%`.
    pub fn read(value: &Value) -> Result<Self, InvalidIntOrPercent> {
        let int = value.as_i64().map(Self::Int);
        int.or_else(|| Self::percentage(value.as_str()?))
            .ok_or_else(|| InvalidIntOrPercent {
                found: value.clone(),
            })
    }

    /// The percentage that a text says; `None` where it says none (upstream also takes one with a sign).
    pub fn percentage(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%')?.parse().ok()?;
        Some(Self::Percent(number))
    }

    /// The number; for a percentage, that of `total` (upstream: `GetScaledValueFromIntOrPercent`).
    pub fn scaled(self, total: i64, rounding: Rounding) -> i64 {
        match self {
            Self::Int(number) => number,
            Self::Percent(percent) => {
                let hundredths = i128::from(percent) * i128::from(total);
                let scaled = match rounding {
                    Rounding::Up => -(-hundredths).div_euclid(100),
                    Rounding::Down => hundredths.div_euclid(100),
                };
                i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
            }
        }
    }
}

/// Whether a text is a percentage that API servers admit: digits and `%`, without a sign (upstream: `IsValidPercent`).
pub fn is_percentage(text: &str) -> bool {
    let digits = text.strip_suffix('%').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether API servers admit a value as a number of pods or a percentage of them: neither is below 0.
pub fn is_admitted(value: &Value) -> bool {
    match IntOrPercent::read(value) {
        Ok(IntOrPercent::Int(number)) => number >= 0,
        Ok(IntOrPercent::Percent(_)) => value.as_str().is_some_and(is_percentage),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_is_scaled_as_upstream_scales_it() {
        let vectors: Vec<Value> =
            serde_json::from_str(include_str!("../testdata/amounts.json")).unwrap();
        for vector in vectors {
            let of = vector["of"].as_i64().unwrap();
            let read = IntOrPercent::read(&vector["in"]).ok();
            let scaled = |rounding| read.map(|it| it.scaled(of, rounding));
            assert_eq!(scaled(Rounding::Up), vector["up"].as_i64(), "{vector}");
            assert_eq!(scaled(Rounding::Down), vector["down"].as_i64(), "{vector}");
        }
    }

    #[test]
    fn an_admitted_value_is_a_number_or_a_percentage_and_not_below_0() {
        for (value, expected) in [
            (json!(0), true),
            (json!(3), true),
            (json!("0%"), true),
            (json!("50%"), true),
            (json!("150%"), true),
            (json!(-1), false),
            (json!(1.5), false),
            (json!("50"), false),
            (json!("abc"), false),
            (json!("%"), false),
            (json!("-10%"), false),
            (json!("+10%"), false),
            (json!("10 %"), false),
            (json!("99999999999999999999%"), false),
            (json!([1]), false),
            (Value::Null, false),
        ] {
            assert_eq!(is_admitted(&value), expected, "{value}");
            let read = IntOrPercent::read(&value);
            assert!(!expected || read.is_ok(), "{value}: {read:?}");
        }
        let error = IntOrPercent::read(&json!("abc")).unwrap_err();
        let expected =
            "invalid value for IntOrString: expected a number or a percentage, found \"abc\"";
        assert_eq!(error.to_string(), expected);
    }

    proptest! {
        #[test]
        fn the_two_roundings_are_at_most_one_apart(percent in -300_i64..300, total in 0_i64..100_000) {
            let amount = IntOrPercent::Percent(percent);
            let (up, down) = (amount.scaled(total, Rounding::Up), amount.scaled(total, Rounding::Down));
            prop_assert_eq!(up - down, i64::from(percent * total % 100 != 0));
            prop_assert!(down * 100 <= percent * total && percent * total <= up * 100);
        }

        #[test]
        fn a_percentage_is_read_back(percent in any::<i64>()) {
            let read = IntOrPercent::read(&json!(format!("{percent}%")));
            prop_assert_eq!(read, Ok(IntOrPercent::Percent(percent)));
            // No amount overflows.
            let amount = IntOrPercent::Percent(percent);
            prop_assert!(amount.scaled(i64::MAX, Rounding::Up) >= amount.scaled(i64::MAX, Rounding::Down));
        }
    }
}
