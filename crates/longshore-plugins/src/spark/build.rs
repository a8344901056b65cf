//! A Spark job as a SparkApplication.

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::{
    core::K8sPod,
    plugins::{SparkJob, spark_application::Type},
};
use serde_json::{Value, json};

use super::{DRIVER, EXECUTOR, RESOURCE, conf};
use crate::{
    config::Config,
    context::TaskContext,
    custom,
    json::{Object, push},
    metadata::union,
    plugin::BuildError,
    pod::Pod,
    proto_json::to_json,
};

/// How often the operator submits, where quota may be short.
const SUBMISSION_RETRIES: u32 = 14;
/// The least version whose applications may have templates; the operator requires a version.
const VERSION_WITH_TEMPLATES: &str = "3.0.0";
/// Of driver and executors, unless the task has one.
const SERVICE_ACCOUNT: &str = "spark";

/// The SparkApplication.
pub(super) fn of(context: &TaskContext, config: &Config) -> Result<Value, BuildError> {
    let job: SparkJob = custom::read(&context.template)?;
    if job.main_application_file.is_empty() && job.main_class.is_empty() {
        return Err(BuildError::bad_specification(
            "expected mainApplicationFile or mainClass in the template's custom, found neither",
        ));
    }
    let mut conf = conf::of(context, &job, &config.spark);
    // Without a driver, everything is lost.
    let steady = TaskContext {
        is_interruptible: false,
        ..context.clone()
    };
    let driver = Role::driver(job.driver_pod.as_ref());
    let executor = Role::executor(job.executor_pod.as_ref());
    let (driver, _) = driver.build(&steady, config, &mut conf)?;
    let (executor, mut container) = executor.build(context, config, &mut conf)?;
    let mut spec = json!({
        "type": application_type(job.application_type()),
        "image": container.remove("image"),
        "arguments": container.remove("args").unwrap_or_else(|| json!([])),
        "restartPolicy": {"type": "OnFailure", "onSubmissionFailureRetries": SUBMISSION_RETRIES},
        "driver": driver,
        "executor": executor,
    });
    if has_templates(context, config) {
        spec["sparkVersion"] = json!(VERSION_WITH_TEMPLATES);
    }
    if let Some(scheduler) = conf.get("spark.batchScheduler") {
        spec["batchScheduler"] = json!(scheduler);
    }
    for (field, value) in [
        ("mainApplicationFile", job.main_application_file),
        ("mainClass", job.main_class),
    ] {
        if !value.is_empty() {
            spec[field] = json!(value);
        }
    }
    if !job.hadoop_conf.is_empty() {
        spec["hadoopConf"] = json!(job.hadoop_conf);
    }
    spec["sparkConf"] = json!(conf);
    Ok(json!({"apiVersion": RESOURCE.api_version(), "kind": RESOURCE.kind, "spec": spec}))
}

fn application_type(application_type: Type) -> &'static str {
    match application_type {
        Type::Python => "Python",
        Type::Java => "Java",
        Type::Scala => "Scala",
        Type::R => "R",
    }
}

fn has_templates(context: &TaskContext, config: &Config) -> bool {
    config.spark.enable_pod_template && context.takes_pod_templates
}

/// The driver, or the executors.
struct Role<'a> {
    name: &'static str,
    container: &'static str,
    /// The user's own pod.
    pod: Option<&'a K8sPod>,
}

impl<'a> Role<'a> {
    fn driver(pod: Option<&'a K8sPod>) -> Self {
        Self {
            name: "driver",
            container: DRIVER,
            pod,
        }
    }

    fn executor(pod: Option<&'a K8sPod>) -> Self {
        Self {
            name: "executor",
            container: EXECUTOR,
            pod,
        }
    }

    /// Builds the part of the application for this role. Returns it with the container that it was made of.
    fn build(
        &self,
        context: &TaskContext,
        config: &Config,
        conf: &mut BTreeMap<String, String>,
    ) -> Result<(Value, Object), BuildError> {
        let mut pod = Pod::for_operator(context, &config.k8s)?;
        let mut container = pod.primary()?.clone();
        let mut built = json!({
            "labels": union(&config.k8s.default_labels, None, &context.labels),
            "annotations": union(&config.k8s.default_annotations, None, &context.annotations),
            "image": container.get("image"),
        });
        let attempts = json!({
            "name": "FLYTE_MAX_ATTEMPTS", "value": context.max_attempts.to_string(),
        });
        push(&mut container, "env", attempts);
        built["env"] = container.get("env").cloned().unwrap_or_default();
        for (field, of_pod) in [
            ("affinity", "affinity"),
            ("podSecurityContext", "securityContext"),
            ("dnsConfig", "dnsConfig"),
            ("tolerations", "tolerations"),
            ("schedulerName", "schedulerName"),
            ("nodeSelector", "nodeSelector"),
            ("hostNetwork", "hostNetwork"),
        ] {
            if let Some(value) = pod.spec.get(of_pod) {
                built[field] = value.clone();
            }
        }
        let is_driver = self.name == "driver";
        let templates = has_templates(context, config);
        if is_driver || templates {
            let account = context.service_account.as_deref();
            built["serviceAccount"] = json!(account.unwrap_or(SERVICE_ACCOUNT));
        }
        if templates {
            built["template"] = json!({"spec": self.template(pod)?});
            let key = format!("spark.kubernetes.{}.podTemplateContainerName", self.name);
            conf.insert(key, self.container.to_owned());
        }
        for (field, key) in [("cores", "cores"), ("instances", "instances")] {
            let number = conf::number(conf, &format!("spark.{}.{key}", self.name));
            if let Some(number) = number.filter(|_| !(is_driver && field == "instances")) {
                built[field] = json!(number);
            }
        }
        let memory = conf.get(&format!("spark.{}.memory", self.name));
        if let Some(memory) = memory.filter(|memory| !memory.is_empty()) {
            built["memory"] = json!(memory);
        }
        Ok((built, container))
    }

    /// The user's own pod as it is, else the task's, without what the application says itself.
    fn template(&self, mut pod: Pod) -> Result<Value, BuildError> {
        if let Some(own) = self.pod.and_then(|pod| pod.pod_spec.as_ref()) {
            let mut own = to_json(own);
            let links = &mut own["enableServiceLinks"];
            if links.is_null() {
                *links = pod.spec.remove("enableServiceLinks").unwrap_or_default();
            }
            return Ok(own);
        }
        let container = pod.renamed_primary(self.container)?;
        container.remove("command");
        container.remove("args");
        Ok(Value::Object(pod.spec))
    }
}
