//! The objects that all pods of a run share: its files (a ConfigMap) and its workspace (a claim). They exist before
//! its first pod. The files are deleted when the run has ended; the workspace stays, with the outputs.

pub(crate) mod controller;
pub(crate) mod decide;
pub(crate) mod observe;
