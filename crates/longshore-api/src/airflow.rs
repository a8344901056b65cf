//! What Airflow's KubernetesExecutor writes on a worker pod, word for word: other programs select pods by it.
//!
//! The pods are read by people's own tools (`kubectl get pods -l dag_id=…`), by log collectors and by Airflow itself,
//! so keys and values are exact.

/// Label: the DAG, as a label-safe value.
pub const LABEL_DAG_ID: &str = "dag_id";
/// Label: the task, as a label-safe value.
pub const LABEL_TASK_ID: &str = "task_id";
/// Label: the run, as a label-safe value.
pub const LABEL_RUN_ID: &str = "run_id";
/// Label: the try, decimal, from 1.
pub const LABEL_TRY_NUMBER: &str = "try_number";
/// Label: the index of a mapped task instance, decimal; absent on unmapped ones.
pub const LABEL_MAP_INDEX: &str = "map_index";
/// Label: [`TRUE`] on every pod of the executor.
pub const LABEL_KUBERNETES_EXECUTOR: &str = "kubernetes_executor";
/// Label: Airflow's version, with `-` for `+`.
pub const LABEL_AIRFLOW_VERSION: &str = "airflow_version";
/// Label: the scheduler that owns the pod, as a label-safe value.
pub const LABEL_AIRFLOW_WORKER: &str = "airflow-worker";
/// Label: [`TRUE`] once a pod that is kept was dealt with.
pub const LABEL_EXECUTOR_DONE: &str = "airflow_executor_done";
/// Label: [`TRUE`] just before the executor deletes a pod on purpose.
pub const LABEL_POD_REVOKED: &str = "airflow_pod_revoked";
/// Label: the task instance's id, our fencing key (upstream from core 3.4 on).
pub const LABEL_TI_ID: &str = "ti_id";

/// Annotation: the DAG, as it is.
pub const ANNOTATION_DAG_ID: &str = "dag_id";
/// Annotation: the task, as it is.
pub const ANNOTATION_TASK_ID: &str = "task_id";
/// Annotation: the run, as it is.
pub const ANNOTATION_RUN_ID: &str = "run_id";
/// Annotation: the try, decimal, from 1.
pub const ANNOTATION_TRY_NUMBER: &str = "try_number";
/// Annotation: the index of a mapped task instance, decimal; absent on unmapped ones.
pub const ANNOTATION_MAP_INDEX: &str = "map_index";
/// Annotation: the task instance's id (upstream from core 3.4 on).
pub const ANNOTATION_TASK_INSTANCE_ID: &str = "task_instance_id";

/// The value of labels and variables that say yes.
pub const TRUE: &str = "True";

/// Name of the container that runs the task, unless a pod override renames it.
pub const CONTAINER_BASE: &str = "base";

/// Environment variable: [`TRUE`] in every container of a task.
pub const ENV_IS_K8S_EXECUTOR_POD: &str = "AIRFLOW_IS_K8S_EXECUTOR_POD";
