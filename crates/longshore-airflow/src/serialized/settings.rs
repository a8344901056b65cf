//! What a DAG file can say of any task, and what Airflow takes where it says nothing.

use super::{
    record::{members, record},
    time::{Moment, Seconds},
    value::Var,
    words::{Backoff, TriggerRule, WeightRule},
};

members! {
    /// Members that every task may have: arguments of `BaseOperator` (spec section 5.2). A mapped task has them among its
    /// `partial_kwargs`; those that all tasks of a DAG have in common may be in `client_defaults`.
    pub struct Settings {
        /// Who cares for the task, for people.
        "owner" owner: String = "airflow".to_owned(),
        /// No run before it has the task; that of the DAG where there is none.
        "start_date" start_date: Moment,
        /// No run after it has the task; that of the DAG where there is none.
        "end_date" end_date: Moment,
        /// When it may start.
        "trigger_rule" trigger_rule: TriggerRule = TriggerRule::AllSuccess,
        /// Only after this task of the run before has succeeded or was skipped.
        "depends_on_past" depends_on_past: bool = false,
        /// The first run that has the task need not wait for one before.
        "ignore_first_depends_on_past" ignore_first_depends_on_past: bool = false,
        /// It is skipped only after its past allows it to run.
        "wait_for_past_depends_before_skipping" wait_for_past_depends_before_skipping: bool = false,
        /// With `depends_on_past`: the tasks directly after this one in the run before must be done, too.
        "wait_for_downstream" wait_for_downstream: bool = false,
        /// How many tries follow a failed one.
        "retries" retries: i64 = 0,
        /// The queue of the executor.
        "queue" queue: String = "default".to_owned(),
        /// The pool whose slots it takes.
        "pool" pool: String = "default_pool".to_owned(),
        /// How many slots of the pool it takes.
        "pool_slots" pool_slots: i64 = 1,
        /// The worker ends the task after this time.
        "execution_timeout" execution_timeout: Seconds,
        /// Wait before the first retry.
        "retry_delay" retry_delay: Seconds = Seconds::whole(300),
        /// By how much that wait grows.
        "retry_exponential_backoff" retry_exponential_backoff: Backoff = Backoff::Factor(0.into()),
        /// The longest that wait becomes.
        "max_retry_delay" max_retry_delay: Seconds,
        /// Its weight beside others that wait for a slot.
        "priority_weight" priority_weight: i64 = 1,
        /// Whose weights count with its own.
        "weight_rule" weight_rule: WeightRule = WeightRule::Downstream,
        /// The executor, where it is not the first one of the configuration.
        "executor" executor: String,
        /// What the executor must know: a `dict`, for Kubernetes with `pod_template_file` and `pod_override`.
        "executor_config" executor_config: Var,
        /// Whether what it returns is kept.
        "do_xcom_push" do_xcom_push: bool = true,
        /// Whether its failure is mailed.
        "email_on_failure" email_on_failure: bool = true,
        /// Whether its retry is mailed.
        "email_on_retry" email_on_retry: bool = true,
        /// Documentation, as text.
        "doc" doc: String,
        /// Documentation, as Markdown.
        "doc_md" doc_md: String,
        /// Documentation, as JSON.
        "doc_json" doc_json: String,
        /// Documentation, as YAML.
        "doc_yaml" doc_yaml: String,
        /// Documentation, as reStructuredText.
        "doc_rst" doc_rst: String,
        /// Template for the name of a mapped instance.
        "map_index_template" map_index_template: String,
        /// Whether it may run another operator inside.
        "allow_nested_operators" allow_nested_operators: bool = true,
        /// Whether templates give Python objects; that of the DAG where there is none.
        "render_template_as_native_obj" render_template_as_native_obj: bool,
        /// Assets that it reads.
        "inlets" inlets: Vec<Var> = Vec::new(),
        /// Assets that it writes.
        "outlets" outlets: Vec<Var> = Vec::new(),
        /// Whether there is a callback for its start.
        "has_on_execute_callback" has_on_execute_callback: bool = false,
        /// Whether there is a callback for its failure.
        "has_on_failure_callback" has_on_failure_callback: bool = false,
        /// Whether there is a callback for being skipped.
        "has_on_skipped_callback" has_on_skipped_callback: bool = false,
        /// Whether there is a callback for its success.
        "has_on_success_callback" has_on_success_callback: bool = false,
        /// Whether there is a callback for its retry.
        "has_on_retry_callback" has_on_retry_callback: bool = false,
        /// Whether a Python object decides about retries, in the worker.
        "has_retry_policy" has_retry_policy: bool = false,
        /// Whether each item of a returned `dict` is a value of its own.
        "multiple_outputs" multiple_outputs: bool = false,
        /// Whether it prepares something for the tasks after it.
        "is_setup" is_setup: bool = false,
        /// Whether it clears away what a setup task prepared.
        "is_teardown" is_teardown: bool = false,
        /// For a teardown: whether its failure fails the run.
        "on_failure_fail_dagrun" on_failure_fail_dagrun: bool = false,
        /// How many instances of it run at a time, in all runs of the DAG.
        "max_active_tis_per_dag" max_active_tis_per_dag: i64,
        /// How many instances of it run at a time in one run.
        "max_active_tis_per_dagrun" max_active_tis_per_dagrun: i64,
        /// The user that the worker runs it as.
        "run_as_user" run_as_user: String,
    }
}

record! {
    /// Settings with other members beside them, which Longshore keeps as they are.
    pub struct SettingsAndMore {
        flat {
            /// The settings.
            settings: Settings,
        }
    }
}

record! {
    /// What tasks have in common, so that it is written once.
    pub struct ClientDefaults {
        /// Of tasks.
        "tasks" may tasks: SettingsAndMore,
    }
}
