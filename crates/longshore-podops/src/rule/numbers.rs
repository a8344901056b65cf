//! Numbers of pods, or percentages of all of them.

use serde_json::Value;

/// Which way a percentage that is no whole number of pods goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Up,
    Down,
}

/// Whether a value is a number of pods or a percentage of them, neither below 0: `3` or `"50%"`.
pub(super) fn is_amount(value: &Value) -> bool {
    if let Some(number) = value.as_i64() {
        return number >= 0;
    }
    let percentage = value.as_str().and_then(|text| text.strip_suffix('%'));
    percentage.is_some_and(|text| {
        text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i64>().is_ok()
    })
}

/// `3` or `"50%"`, of so many.
///
/// *Errors*: what it is instead.
pub(super) fn scaled(value: &Value, of: usize, round: Round) -> Result<i64, String> {
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    let percentage = value.as_str().and_then(|text| text.strip_suffix('%'));
    let percentage = percentage.and_then(|text| text.parse::<i64>().ok());
    let percentage = percentage.ok_or_else(|| {
        format!("invalid value for IntOrString: expected a number or a percentage, found {value}")
    })?;
    let of = i64::try_from(of).unwrap_or(i64::MAX);
    let hundredths = percentage.saturating_mul(of);
    Ok(match round {
        Round::Up => hundredths.saturating_add(99).div_euclid(100),
        Round::Down => hundredths.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_amount_is_a_number_or_a_percentage_and_not_below_0() {
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
        ] {
            assert_eq!(is_amount(&value), expected, "{value}");
            let scaled = scaled(&value, 4, Round::Up);
            assert!(!expected || scaled.is_ok(), "{value}: {scaled:?}");
        }
    }
}
