//! Spark's own configuration of a job.

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::plugins::SparkJob;

use super::config::{Feature, SparkConfig};
use crate::context::TaskContext;

/// The configuration: the default one, what switched-on features say, and what the job says, which wins.
pub(super) fn of(
    context: &TaskContext,
    job: &SparkJob,
    config: &SparkConfig,
) -> BTreeMap<String, String> {
    let mut conf = config.default_conf.clone();
    if !job.executor_path.is_empty() {
        for key in ["spark.pyspark.python", "spark.pyspark.driver.python"] {
            conf.insert(key.to_owned(), job.executor_path.clone());
        }
    }
    for (key, value) in &job.spark_conf {
        if let Some(feature) = feature(key, value, config) {
            conf.extend(feature.conf.clone());
        }
    }
    let own = job.spark_conf.iter();
    let own = own.filter(|(key, value)| feature(key, value, config).is_none());
    conf.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    for role in ["driver", "executor"] {
        limit_cores(&mut conf, role);
    }
    conf.insert(
        "spark.kubernetes.executor.podNamePrefix".to_owned(),
        context.generated_name.clone(),
    );
    // Upstream has the time of the build; ours is the same whenever it is built.
    if let Some(created) = context.created_at {
        conf.insert(
            "spark.kubernetes.driverEnv.FLYTE_START_TIME".to_owned(),
            created.as_millisecond().to_string(),
        );
    }
    conf
}

/// Limits a pod to the cores that it requests, unless the job sets a limit.
fn limit_cores(conf: &mut BTreeMap<String, String>, role: &str) {
    let limit = format!("spark.kubernetes.{role}.limit.cores");
    let set = |conf: &BTreeMap<String, String>, key: &str| {
        conf.get(key).filter(|value| !value.is_empty()).cloned()
    };
    if set(conf, &limit).is_some() {
        return;
    }
    let asked_for = set(conf, &format!("spark.kubernetes.{role}.request.cores"))
        .or_else(|| set(conf, &format!("spark.{role}.cores")));
    if let Some(cores) = asked_for {
        conf.insert(limit, cores);
    }
}

/// The configured feature that a key switches on.
fn feature<'a>(key: &str, value: &str, config: &'a SparkConfig) -> Option<&'a Feature> {
    if !value.trim().eq_ignore_ascii_case("true") {
        return None;
    }
    let name = ["spark.flyteorg.", "spark.flyte."]
        .into_iter()
        .find_map(|prefix| key.strip_prefix(prefix)?.strip_suffix(".enabled"))?;
    config.features.iter().find(|feature| feature.name == name)
}

/// A whole number of the configuration that is not zero.
pub(super) fn number(conf: &BTreeMap<String, String>, key: &str) -> Option<i32> {
    conf.get(key)?.parse().ok().filter(|number| *number != 0)
}
