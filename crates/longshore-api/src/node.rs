//! Labels of the Node of a process node.

/// Label of a Node: what kind of node it is.
pub const LABEL_NODE_KIND: &str = "longshore.dev/node-kind";
/// Value of [`LABEL_NODE_KIND`]: pods are local processes.
pub const NODE_KIND_PROCESS: &str = "process";
/// Label of a Node: how far pods are isolated (`full`, `user`, `none`).
pub const LABEL_NODE_PROFILE: &str = "longshore.dev/node-profile";
