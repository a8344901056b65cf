//! Rule 22: the options of the autoscaler, where it is on.

use jiff::SignedDuration;

use super::{Invalid, Validity};
use crate::{
    conf::{Defaulted, FlinkConfig, Key, operator, value::write_double},
    cron::CronExpression,
};

/// An option of the autoscaler with its older key.
macro_rules! option {
    ($name:literal) => {
        Key::with_older(
            concat!("job.autoscaler.", $name),
            &[concat!("kubernetes.operator.job.autoscaler.", $name)],
        )
    };
}

const ENABLED: Defaulted<bool> = option!("enabled").or("false");
const SCALE_DOWN_FACTOR: Key<f64> = option!("scale-down.max-factor");
const SCALE_UP_FACTOR: Key<f64> = option!("scale-up.max-factor");
const BOUNDARY: Key<f64> = option!("target.utilization.boundary");
const UTILIZATION_MAX: Key<f64> = option!("utilization.max");
const UTILIZATION_MIN: Key<f64> = option!("utilization.min");
const GC_PRESSURE: Key<f64> = option!("memory.gc-pressure.threshold");
const HEAP_USAGE: Key<f64> = option!("memory.heap-usage.threshold");
const SCALABILITY_ENABLED: Defaulted<bool> = option!("observed-scalability.enabled").or("false");
const SCALABILITY_COEFFICIENT: Key<f64> = option!("observed-scalability.coefficient-min");
const EFFECTIVENESS_ENABLED: Defaulted<bool> =
    option!("scaling.effectiveness.detection.enabled").or("false");
const EFFECTIVENESS: Key<f64> = option!("scaling.effectiveness.threshold");
const TUNING_ENABLED: Defaulted<bool> = option!("memory.tuning.enabled").or("false");
const TUNING_OVERHEAD: Key<f64> = option!("memory.tuning.overhead");
const METRICS_WINDOW: Defaulted<SignedDuration> = option!("metrics.window").or("15 min");
const EXCLUDED_PERIODS: Key<Vec<String>> = option!("excluded.periods");
const UTILIZATION_TARGET: Defaulted<f64> = Key::with_older(
    "job.autoscaler.utilization.target",
    &[
        "job.autoscaler.target.utilization",
        "kubernetes.operator.job.autoscaler.utilization.target",
        "kubernetes.operator.job.autoscaler.target.utilization",
    ],
)
.or("0.7");

pub(super) fn validate(config: &FlinkConfig) -> Validity {
    if !config.get(&ENABLED)? {
        return Ok(());
    }
    // Every default is within its range: what is not set needs no check.
    at_least_0(config, &SCALE_DOWN_FACTOR)?;
    at_least_0(config, &SCALE_UP_FACTOR)?;
    within(config, &UTILIZATION_TARGET.key, 0.0, 1.0)?;
    at_least_0(config, &BOUNDARY)?;
    let target = config.get(&UTILIZATION_TARGET)?;
    within(config, &UTILIZATION_MAX, target, 1.0)?;
    within(config, &UTILIZATION_MIN, 0.0, target)?;
    within(config, &GC_PRESSURE, 0.0, 1.0)?;
    within(config, &HEAP_USAGE, 0.0, 1.0)?;
    if config.get(&SCALABILITY_ENABLED)? {
        within(config, &SCALABILITY_COEFFICIENT, 0.01, 1.0)?;
    }
    if config.get(&EFFECTIVENESS_ENABLED)? {
        within(config, &EFFECTIVENESS, 0.0, 1.0)?;
    }
    if config.get(&TUNING_ENABLED)? {
        within(config, &TUNING_OVERHEAD, 0.0, 1.0)?;
    }
    for period in config.find(&EXCLUDED_PERIODS)?.unwrap_or_default() {
        excluded_period(&period)?;
    }
    metrics_window(config)
}

fn at_least_0(config: &FlinkConfig, key: &Key<f64>) -> Validity {
    within(config, key, 0.0, f64::INFINITY)
}

fn within(config: &FlinkConfig, key: &Key<f64>, min: f64, max: f64) -> Validity {
    let name = key.name;
    let Ok(value) = config.find(key) else {
        return Err(Invalid(format!(
            "Invalid value in the autoscaler config {name}"
        )));
    };
    if value.is_none_or(|value| (min..=max).contains(&value)) {
        return Ok(());
    }
    let max = if max == f64::INFINITY {
        "+Infinity".to_owned()
    } else {
        write_double(max)
    };
    Err(Invalid(format!(
        "The AutoScalerOption {name} is invalid, it should be a value within the range [{}, {max}]",
        write_double(min)
    )))
}

/// A time of the day, a cron expression, or both joined with `&&`.
fn excluded_period(text: &str) -> Validity {
    let key = EXCLUDED_PERIODS.name;
    let parts: Vec<&str> = text.split("&&").map(str::trim).collect();
    if parts.len() > 2 {
        return Err(Invalid(format!(
            "Invalid value {text} in the autoscaler config {key}"
        )));
    }
    let is_daily: Vec<bool> = parts.iter().map(|part| is_time_of_day(part)).collect();
    let is_cron: Vec<bool> = parts
        .iter()
        .map(|part| CronExpression::parse(part).is_ok())
        .collect();
    if is_daily
        .iter()
        .zip(&is_cron)
        .any(|(daily, cron)| !daily && !cron)
    {
        return Err(Invalid(format!(
            "Invalid value {text} in the autoscaler config {key}, the value is neither a valid daily expression nor a valid \
             cron expression"
        )));
    }
    if parts.len() == 2 && (!is_daily.contains(&true) || !is_cron.contains(&true)) {
        return Err(Invalid(format!(
            "Invalid value {text} in the autoscaler config {key}, the value can not be configured as dailyExpression && \
             dailyExpression or cronExpression && cronExpression"
        )));
    }
    Ok(())
}

/// Whether a text is a time of the day as Quartz' `DailyCalendar` reads it: `9:30:30-10:50`.
fn is_time_of_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [start, end] = parts[..] else {
        return false;
    };
    let (start, end) = (millis_of_day(start), millis_of_day(end));
    start.is_some() && end.is_some() && start < end
}

fn millis_of_day(text: &str) -> Option<u32> {
    const UNITS: [(u32, u32); 4] = [(24, 3_600_000), (60, 60_000), (60, 1000), (1000, 1)];
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=4).contains(&parts.len()) {
        return None;
    }
    let mut millis = 0;
    for (part, (limit, unit)) in parts.iter().zip(UNITS) {
        let number: u32 = part.parse().ok().filter(|number| *number < limit)?;
        millis += number * unit;
    }
    Some(millis)
}

/// With a window shorter than the time between two samples there are never two of them.
fn metrics_window(config: &FlinkConfig) -> Validity {
    let window = config.get(&METRICS_WINDOW)?;
    let interval = config.get(&operator::RECONCILE_INTERVAL)?;
    if window >= interval {
        return Ok(());
    }
    Err(Invalid(format!(
        "The autoscaler metric window ({}={window}) must not be smaller than the operator reconcile interval \
         ({}={interval}), otherwise fewer than two metric samples are retained and autoscaling is never applied.",
        METRICS_WINDOW.key.name,
        operator::RECONCILE_INTERVAL.key.name
    )))
}
