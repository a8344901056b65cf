//! Airflow's scheduler and KubernetesExecutor: DAG files, runs, task instances, a pod per task instance.
