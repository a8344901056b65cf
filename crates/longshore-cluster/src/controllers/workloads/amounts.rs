//! Numbers that may be percentages. Pure.

use serde_json::Value;

/// Which way a percentage of few pods goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// A number, or a percentage of one; what is neither counts as 0.
pub(crate) fn resolve(value: &Value, of: i64, rounding: Rounding) -> i64 {
    if let Some(number) = value.as_i64() {
        return number.max(0);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
    let percent = percent
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(0);
    let hundredths = percent.max(0).saturating_mul(of);
    match rounding {
        Rounding::Up => hundredths.saturating_add(99) / 100,
        Rounding::Down => hundredths / 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_are_rounded_as_asked() {
        for (value, of, up, down) in [
            (json!(3), 10, 3, 3),
            (json!("25%"), 10, 3, 2),
            (json!("25%"), 4, 1, 1),
            (json!("0%"), 4, 0, 0),
            (json!("100%"), 7, 7, 7),
            (json!("x"), 7, 0, 0),
            (Value::Null, 7, 0, 0),
        ] {
            assert_eq!(resolve(&value, of, Rounding::Up), up, "{value} of {of}");
            assert_eq!(resolve(&value, of, Rounding::Down), down, "{value} of {of}");
        }
    }
}
