//! Numbers of pods, or percentages of all of them.

use serde_json::Value;

/// Which way a percentage that is no whole number of pods goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Up,
    Down,
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
