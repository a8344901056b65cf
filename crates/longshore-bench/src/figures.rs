//! Figures out of measurements.

use std::time::Duration;

use serde_json::{Value, json};

/// Times of the same thing, many of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The value that this share of all is not above; 0 without any.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// `{"p50": …, "p99": …}` in milliseconds.
    pub(crate) fn milliseconds(&self) -> Value {
        let of = |percent| round(self.percentile(percent).as_secs_f64() * 1e3);
        json!({"p50": of(50), "p99": of(99)})
    }
}

/// `n` things in this time.
pub(crate) fn per_second(n: usize, time: Duration) -> f64 {
    round(n as f64 / time.as_secs_f64())
}

/// Two decimals: more say nothing.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The same figures, each with the median of all runs; what is no number is that of the first.
pub(crate) fn medians(runs: &[Value]) -> Value {
    match runs.first() {
        Some(Value::Object(first)) => {
            let of = |key: &str| {
                let values = runs.iter().filter_map(|run| run.get(key).cloned());
                medians(&values.collect::<Vec<_>>())
            };
            first.keys().map(|key| (key.clone(), of(key))).collect()
        }
        Some(Value::Number(_)) => {
            let mut numbers = runs.to_vec();
            let value = |number: &Value| number.as_f64().unwrap_or_default();
            numbers.sort_by(|a, b| value(a).total_cmp(&value(b)));
            numbers.swap_remove(numbers.len() / 2)
        }
        other => other.cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), Duration::ZERO);
        for ms in (1..=200).rev() {
            times.push(Duration::from_millis(ms));
        }
        assert_eq!(times.milliseconds(), json!({"p50": 100.0, "p99": 198.0}));
        assert_eq!(times.percentile(100), Duration::from_millis(200));
    }

    #[test]
    fn the_median_run_is_made_of_medians() {
        let run = |a: f64, b: f64| json!({"server": "embedded", "a": a, "of": {"b": b}, "n": 7.0});
        let runs = [run(3.0, 1.0), run(1.0, 3.0), run(2.0, 9.0)];
        assert_eq!(medians(&runs), run(2.0, 3.0));
        assert_eq!(medians(&runs[..1]), run(3.0, 1.0));
    }
}
