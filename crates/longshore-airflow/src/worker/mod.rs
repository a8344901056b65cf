//! What a worker is started with: its workload, and the pod that carries it.
//!
//! Source: spec 2.1 to 2.3 and 3.1; upstream `airflow.executors.workloads` and the KubernetesExecutor of
//! `apache-airflow-providers-cncf-kubernetes`.

mod executor_config;
pub mod names;
mod pod;
pub mod pod_merge;
mod workload;

pub use executor_config::{ExecutorConfig, ExecutorConfigError, INVALID_EXECUTOR_CONFIG};
pub use pod::{WorkerIdentity, WorkerPod, logical_date_label};
pub use workload::{BundleInfo, ExecuteTask, ExecuteTaskType, WorkloadTask, log_path};
