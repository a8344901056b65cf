//! What Longshore adds to the pods, TaskActions and objects of a DAG run.

/// Annotation: which launch of its try a pod or TaskAction is, decimal, from 1.
pub const ANNOTATION_LAUNCH: &str = "longshore.dev/launch";
/// Annotation: the run that a shared object (files, workspace) belongs to, as `<scheduler id>/<dag_id>/<run_id>`.
/// Identifies the object when its creation is repeated.
pub const ANNOTATION_RUN: &str = "longshore.dev/run";

/// Label of a TaskAction made for a DAG: the scheduler that made it, as a label-safe value.
pub const LABEL_SCHEDULER: &str = "longshore.dev/scheduler";

/// Image of a container task that names none: the machine itself on the process node.
pub const IMAGE_HOST: &str = "longshore.dev/host";

/// Environment variable: the file that takes a task's small result, at most [`MAX_RESULT_BYTES`] bytes of JSON.
pub const ENV_RETURN: &str = "LONGSHORE_RETURN";
/// Environment variable: the directory that all tasks of the run share.
pub const ENV_WORKSPACE: &str = "LONGSHORE_WORKSPACE";
/// Environment variable: the directory with the files beside the DAG.
pub const ENV_FILES: &str = "LONGSHORE_FILES";
/// Environment variable: the DAG.
pub const ENV_DAG_ID: &str = "LONGSHORE_DAG_ID";
/// Environment variable: the run.
pub const ENV_RUN_ID: &str = "LONGSHORE_RUN_ID";
/// Environment variable: the task.
pub const ENV_TASK_ID: &str = "LONGSHORE_TASK_ID";
/// Environment variable: the try, from 1.
pub const ENV_TRY_NUMBER: &str = "LONGSHORE_TRY_NUMBER";

/// Where a task writes its small result, unless its pod override names another `terminationMessagePath`.
pub const RETURN_PATH: &str = "/dev/termination-log";
/// What a kubelet keeps of a termination message.
pub const MAX_RESULT_BYTES: usize = 4096;

/// Name of the volume with the shared workspace.
pub const VOLUME_WORKSPACE: &str = "longshore-workspace";
/// Name of the volume with the files beside the DAG.
pub const VOLUME_FILES: &str = "longshore-files";
/// Where the files beside the DAG are mounted.
pub const FILES_MOUNT_PATH: &str = "/longshore/files";
