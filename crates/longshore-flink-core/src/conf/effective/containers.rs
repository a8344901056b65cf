//! Memory, cores and numbers of JobManagers and TaskManagers (spec 12.2, steps 7 and 8; upstream:
//! `ResourceConfigUtils`).

use std::collections::BTreeMap;

use longshore_k8s::Quantity;

use super::{
    EffectiveError, FlinkConfig, FlinkDeploymentSpec, FlinkVersion, JobSpec, Texts, given,
};
use crate::{
    conf::{Defaulted, FromConf, InvalidOption, Key, MemorySize, options, value::write_double},
    resources::template::OtherResources,
    spec::{DeploymentMode, QuantityText, ResourceRequirements, ResourceSpec},
};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// The options of a component's container.
struct Component {
    name: &'static str,
    memory: Key<MemorySize>,
    cpu: Defaulted<f64>,
    older_cpu: &'static str,
    cpu_limit: Defaulted<f64>,
    memory_limit: Defaulted<f64>,
}

const JOB_MANAGER: Component = Component {
    name: "JobManager",
    memory: crate::memory::JOB_MANAGER_PROCESS,
    cpu: options::JOB_MANAGER_CPU,
    older_cpu: "kubernetes.jobmanager.cpu",
    cpu_limit: options::JOB_MANAGER_CPU_LIMIT,
    memory_limit: options::JOB_MANAGER_MEMORY_LIMIT,
};

const TASK_MANAGER: Component = Component {
    name: "TaskManager",
    memory: crate::memory::TASK_MANAGER_PROCESS,
    cpu: options::TASK_MANAGER_CPU,
    older_cpu: "kubernetes.taskmanager.cpu",
    cpu_limit: options::TASK_MANAGER_CPU_LIMIT,
    memory_limit: options::TASK_MANAGER_MEMORY_LIMIT,
};

/// Step 7.
pub(super) fn apply_job_manager(
    config: &mut FlinkConfig,
    spec: &FlinkDeploymentSpec,
    version: FlinkVersion,
) -> Result<(), EffectiveError> {
    let Some(job_manager) = &spec.job_manager else {
        return Ok(());
    };
    JOB_MANAGER.apply(
        config,
        version,
        job_manager.resources.as_ref(),
        job_manager.resource.as_ref(),
    )?;
    if job_manager.replicas > 0 {
        let replicas = job_manager.replicas.to_string();
        config.set(&options::JOB_MANAGER_REPLICAS.key, replicas);
    }
    Ok(())
}

/// Step 8.
pub(super) fn apply_task_manager(
    config: &mut FlinkConfig,
    spec: &FlinkDeploymentSpec,
    version: FlinkVersion,
) -> Result<(), EffectiveError> {
    if let Some(task_manager) = &spec.task_manager {
        TASK_MANAGER.apply(
            config,
            version,
            task_manager.resources.as_ref(),
            task_manager.resource.as_ref(),
        )?;
        if let Some(replicas) = task_manager.replicas.filter(|replicas| *replicas > 0) {
            config.set(&options::TASK_MANAGER_REPLICAS, replicas.to_string());
        }
    }
    if let (Some(job), DeploymentMode::Standalone) = (&spec.job, spec.deployment_mode())
        && !config.contains(&options::TASK_MANAGER_REPLICAS)
    {
        let slots = config.get(&options::SLOTS)?.max(1);
        let parallelism = parallelism(config, spec, job)?;
        let replicas = parallelism.saturating_add(slots - 1) / slots;
        config.set(&options::TASK_MANAGER_REPLICAS, replicas.to_string());
    }
    Ok(())
}

/// Parallelism of an application: as many as there are slots in the wanted TaskManagers; in standalone mode that of its
/// widest vertex; else that of the job.
pub(super) fn parallelism(
    config: &FlinkConfig,
    spec: &FlinkDeploymentSpec,
    job: &JobSpec,
) -> Result<i32, InvalidOption> {
    if let Some(replicas) = spec.task_manager.as_ref().and_then(|it| it.replicas) {
        return Ok(replicas.saturating_mul(config.get(&options::SLOTS)?));
    }
    if spec.deployment_mode() == DeploymentMode::Standalone {
        let overrides = config.map(&options::PARALLELISM_OVERRIDES)?;
        let widest = overrides
            .values()
            .map(|text| i32::from_conf(text))
            .collect::<Result<Vec<i32>, _>>()
            .map_err(|why| InvalidOption {
                key: options::PARALLELISM_OVERRIDES.name.to_owned(),
                why,
            })?;
        if let Some(widest) = widest.into_iter().max().filter(|widest| *widest > 0) {
            return Ok(widest);
        }
    }
    Ok(job.parallelism)
}

/// What goes into the pod template: everything but cores and memory.
pub(super) fn other_resources(
    resources: Option<&ResourceRequirements>,
    resource: Option<&ResourceSpec>,
) -> OtherResources {
    if let Some(resources) = resources.filter(|it| it.has_any()) {
        let others = |map: &Option<BTreeMap<String, QuantityText>>| -> Texts {
            let entries = map.iter().flatten();
            entries
                .filter(|(name, _)| *name != CPU && *name != MEMORY)
                .map(|(name, amount)| (name.clone(), amount.as_str().to_owned()))
                .collect()
        };
        return OtherResources {
            requests: others(&resources.requests),
            limits: others(&resources.limits),
        };
    }
    let storage = resource.and_then(|it| given(it.ephemeral_storage.as_deref()));
    let storage: Texts = storage
        .map(|amount| (EPHEMERAL_STORAGE.to_owned(), amount.to_owned()))
        .into_iter()
        .collect();
    OtherResources {
        requests: storage.clone(),
        limits: storage,
    }
}

/// An amount of memory of a spec, as Flink's configuration has it: in Flink's notation, written back in its largest unit
/// (`2048m` is `2 gb`); else a quantity of Kubernetes, in bytes (`2Gi` is `2147483648`). `None` for neither.
#[must_use]
pub fn flink_memory(text: &str) -> Option<String> {
    if let Ok(size) = MemorySize::parse(text) {
        return Some(size.to_string());
    }
    let compact: String = text.split_whitespace().collect();
    let upper = compact.to_ascii_uppercase();
    let upper = upper.strip_suffix('B').unwrap_or(&upper);
    let quantity = match upper.strip_suffix('I') {
        Some(rest) => format!("{rest}i"),
        None => upper.to_owned(),
    };
    let has_digits = quantity.contains(|c: char| c.is_ascii_digit());
    let amount = Quantity::parse(&quantity).filter(|_| has_digits)?;
    Some(amount.rounded_up().to_string())
}

impl Component {
    /// `resources` counts where it requests or limits anything, else `resource`.
    fn apply(
        &self,
        config: &mut FlinkConfig,
        version: FlinkVersion,
        resources: Option<&ResourceRequirements>,
        resource: Option<&ResourceSpec>,
    ) -> Result<(), EffectiveError> {
        if let Some(resources) = resources.filter(|it| it.has_any()) {
            return self.apply_requirements(config, version, resources);
        }
        let Some(resource) = resource else {
            return Ok(());
        };
        if let Some(memory) = &resource.memory {
            self.set_memory(config, memory)?;
        }
        if let Some(cores) = resource.cpu {
            self.set_cores(config, version, cores);
        }
        Ok(())
    }

    fn apply_requirements(
        &self,
        config: &mut FlinkConfig,
        version: FlinkVersion,
        resources: &ResourceRequirements,
    ) -> Result<(), EffectiveError> {
        if let Some(memory) = resources.request_or_limit(MEMORY) {
            self.set_memory(config, memory.as_str())?;
        }
        if let Some(cores) = resources.request_or_limit(CPU) {
            let cores = self.thousandths(CPU, cores)? / 1000.0;
            self.set_cores(config, version, cores);
        }
        let limits = [(CPU, &self.cpu_limit), (MEMORY, &self.memory_limit)];
        for (name, option) in limits {
            let find = |map: &'_ Option<BTreeMap<String, QuantityText>>| {
                map.as_ref().and_then(|map| map.get(name)).cloned()
            };
            let (Some(request), Some(limit)) = (find(&resources.requests), find(&resources.limits))
            else {
                continue;
            };
            let request = self.thousandths(name, &request)?;
            if request > 0.0 {
                let factor = self.thousandths(name, &limit)? / request;
                config.set(&option.key, write_double(factor));
            }
        }
        Ok(())
    }

    fn set_memory(&self, config: &mut FlinkConfig, text: &str) -> Result<(), EffectiveError> {
        let memory = flink_memory(text).ok_or_else(|| self.amount_error(MEMORY, text))?;
        config.set(&self.memory, memory);
        Ok(())
    }

    fn set_cores(&self, config: &mut FlinkConfig, version: FlinkVersion, cores: f64) {
        let text = write_double(cores);
        if version < FlinkVersion::V1_17 {
            config.set_text(self.older_cpu, text.as_str());
        }
        config.set(&self.cpu.key, text);
    }

    fn thousandths(
        &self,
        resource: &'static str,
        text: &QuantityText,
    ) -> Result<f64, EffectiveError> {
        let quantity = Quantity::parse(text.as_str());
        let quantity = quantity.ok_or_else(|| self.amount_error(resource, text.as_str()))?;
        Ok(quantity.milli_rounded_up() as f64)
    }

    fn amount_error(&self, resource: &'static str, found: &str) -> EffectiveError {
        EffectiveError::Amount {
            component: self.name,
            resource,
            found: found.to_owned(),
        }
    }
}
