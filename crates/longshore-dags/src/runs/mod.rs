//! The objects that all pods of a run share: its files (a ConfigMap) and its workspace (a claim). They exist before
//! its first pod; the files go when the run has ended, the workspace stays for whoever wants the outputs.

pub(crate) mod controller;
pub(crate) mod decide;
