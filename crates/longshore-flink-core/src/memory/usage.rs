//! What a whole cluster may use (upstream: `FlinkUtils.calculateClusterCpuUsage` and `…MemoryUsage`).

use super::{JobManagerMemory, MemoryError, TaskManagerMemory};
use crate::conf::{FlinkConfig, MemorySize, options};

/// Limits of all containers of a cluster: `total-cpu` and `total-memory` of its cluster info (spec 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterUsage {
    /// Cores.
    pub cores: f64,
    /// Memory in bytes.
    pub bytes: u64,
}

impl ClusterUsage {
    /// What the JobManagers and this many TaskManagers of a cluster may use.
    ///
    /// # Errors
    /// [`MemoryError`] where the configuration describes no processes.
    pub fn of(config: &FlinkConfig, n_task_managers: u32) -> Result<Self, MemoryError> {
        let n_job_managers = f64::from(config.get(&options::JOB_MANAGER_REPLICAS)?);
        let n_task_managers = f64::from(n_task_managers);
        let job_manager_cores =
            config.get(&options::JOB_MANAGER_CPU)? * config.get(&options::JOB_MANAGER_CPU_LIMIT)?;
        // Here a TaskManager without a number of cores counts one, whatever its slots are.
        let task_manager_cores = config.find(&options::TASK_MANAGER_CPU.key)?.unwrap_or(1.0)
            * config.get(&options::TASK_MANAGER_CPU_LIMIT)?;
        let job_manager = JobManagerMemory::derive(config)?.process();
        let task_manager = TaskManagerMemory::derive(config)?.process();
        let job_manager_factor = config.get(&options::JOB_MANAGER_MEMORY_LIMIT)? * n_job_managers;
        let task_manager_factor =
            config.get(&options::TASK_MANAGER_MEMORY_LIMIT)? * n_task_managers;
        Ok(Self {
            cores: job_manager_cores * n_job_managers + task_manager_cores * n_task_managers,
            bytes: whole_mebibytes(job_manager, job_manager_factor)
                .saturating_add(whole_mebibytes(task_manager, task_manager_factor)),
        })
    }
}

/// A multiple of a size, which counts in whole mebibytes as it does in containers; in bytes.
fn whole_mebibytes(size: MemorySize, factor: f64) -> u64 {
    let bytes = MemorySize::of_bytes(size.mebibytes() << 20).bytes();
    (bytes as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_uses_the_limits_of_its_containers() {
        let base = [
            ("jobmanager.memory.process.size", "1024m"),
            ("taskmanager.memory.process.size", "2048m"),
            ("taskmanager.numberOfTaskSlots", "4"),
        ];
        for (pairs, n_task_managers, cores, mebibytes) in [
            (vec![], 0, 1.0, 1024),
            (vec![], 3, 4.0, 1024 + 3 * 2048),
            (
                vec![
                    ("kubernetes.jobmanager.cpu.amount", "0.5"),
                    ("kubernetes.jobmanager.cpu.limit-factor", "2"),
                    ("kubernetes.jobmanager.replicas", "2"),
                    ("kubernetes.taskmanager.cpu.amount", "1.5"),
                    ("kubernetes.taskmanager.cpu.limit-factor", "3"),
                    ("kubernetes.jobmanager.memory.limit-factor", "1.5"),
                    ("kubernetes.taskmanager.memory.limit-factor", "2"),
                ],
                2,
                11.0,
                2 * 1536 + 2 * 4096,
            ),
        ] {
            let config = base.into_iter().chain(pairs).collect();
            let expected = ClusterUsage {
                cores,
                bytes: mebibytes << 20,
            };
            assert_eq!(ClusterUsage::of(&config, n_task_managers), Ok(expected));
        }
    }

    #[test]
    fn a_cluster_without_memory_has_no_usage() {
        assert!(ClusterUsage::of(&FlinkConfig::new(), 1).is_err());
    }
}
