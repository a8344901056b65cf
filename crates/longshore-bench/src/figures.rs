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

/// What several runs of the same say: each figure with its median, how many runs there were, and in `min` and `max` the
/// ends of those figures that were not the same in all of them.
pub(crate) fn summary(runs: &[Value]) -> Value {
    let mut summary = over(runs, |n| n / 2);
    let (least, most) = (over(runs, |_| 0), over(runs, |n| n - 1));
    if let Some(members) = summary.as_object_mut() {
        members.insert("runs".to_owned(), json!(runs.len()));
        let ends = [
            ("min", differing(&least, &most)),
            ("max", differing(&most, &least)),
        ];
        for (name, end) in ends {
            if let Some(end) = end {
                members.insert(name.to_owned(), end);
            }
        }
    }
    summary
}

/// The same figures, each with the one of all runs that `rank` chooses, in their order; what is no number is that of the
/// first run.
fn over(runs: &[Value], rank: fn(usize) -> usize) -> Value {
    match runs.first() {
        Some(Value::Object(first)) => {
            let of = |key: &str| {
                let values = runs.iter().filter_map(|run| run.get(key).cloned());
                over(&values.collect::<Vec<_>>(), rank)
            };
            first.keys().map(|key| (key.clone(), of(key))).collect()
        }
        Some(Value::Number(_)) => {
            let mut numbers = runs.to_vec();
            let value = |number: &Value| number.as_f64().unwrap_or_default();
            numbers.sort_by(|a, b| value(a).total_cmp(&value(b)));
            numbers.swap_remove(rank(numbers.len()))
        }
        other => other.cloned().unwrap_or_default(),
    }
}

/// What of a value is not so in the other one.
fn differing(value: &Value, other: &Value) -> Option<Value> {
    let Value::Object(members) = value else {
        return (value != other).then(|| value.clone());
    };
    let differing = members
        .iter()
        .filter_map(|(key, value)| Some((key.clone(), differing(value, &other[key])?)));
    let differing: serde_json::Map<String, Value> = differing.collect();
    (!differing.is_empty()).then_some(Value::Object(differing))
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
    fn the_summary_has_the_medians_of_all_runs_and_the_ends_of_what_differs() {
        let run = |a: f64, b: f64| json!({"server": "embedded", "a": a, "of": {"b": b}, "n": 7.0});
        let runs = [run(3.0, 1.0), run(1.0, 1.0), run(2.0, 1.0)];
        let mut expected = run(2.0, 1.0);
        expected["runs"] = json!(3);
        expected["min"] = json!({"a": 1.0});
        expected["max"] = json!({"a": 3.0});
        assert_eq!(summary(&runs), expected);
        let mut expected = run(3.0, 1.0);
        expected["runs"] = json!(1);
        assert_eq!(summary(&runs[..1]), expected);
    }
}
