//! What Longshore adds to the resources of TaskActions.

/// Annotation of a task's resource: `<uid of the TaskAction>/<attempt>/<launch>`. Identifies the resource when its
/// creation is repeated. The launch is the number of system failures before it: a launch after one is another one,
/// although attempt and name are the same.
pub const ANNOTATION_LAUNCH: &str = "longshore.dev/task-launch";

/// Annotation of the Lease of the role `tasks`: `true` where its holder runs the TaskActions of all namespaces. Controllers
/// of other namespaces wait for its end.
pub const ANNOTATION_ALL_NAMESPACES: &str = "longshore.dev/all-namespaces";
