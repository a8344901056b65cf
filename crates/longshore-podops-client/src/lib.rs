//! For controllers that operate on pods, or that route traffic to them, under KusionStack's PodOpsLifecycle.
//!
//! A controller that *operates* on a pod begins an [`operation`], waits until it may touch the pod, does its work and
//! finishes. One that *routes traffic* to pods holds a finalizer of its own while it does ([`cooperation`]), and no
//! operation touches the pod before it has let go.
//!
//! Everything here is pure: a function changes the pod in memory and says whether there is anything to write. Whoever
//! calls it updates the pod with the `resourceVersion` that was read, and reads again upon a conflict. The labels of one
//! call have to be written in one request.

pub mod cooperation;
pub mod operation;

pub use cooperation::{TrafficChange, lifecycle_finalizer, wanted_change};
pub use operation::{
    Allowed, BeginError, FinishError, OperationAdapter, Written, allow_ops, begin,
    begin_with_cleaning_old, cancel, finish, is_during_ops, undo,
};
