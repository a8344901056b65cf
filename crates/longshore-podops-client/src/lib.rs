//! For controllers that operate on pods, or that route traffic to them, under KusionStack's PodOpsLifecycle.
//!
//! A controller that *operates* on a pod begins an [`operation`], waits until it may touch the pod, does its work and
//! finishes. One that *routes traffic* to pods holds a finalizer of its own while it does ([`cooperation`]), and no
//! operation touches the pod before it has let go.
//!
//! Both are pure: a function changes the pod in memory and says whether there is anything to write.
//! The caller patches the pod with [`changes_of`] it, upon the `resourceVersion` that was read, and
//! reads again upon a conflict. The labels of one call have to be written in one request.
//!
//! [`consist`] is a whole controller of the second kind, for callers that implement a table: a load balancer's
//! backends, say. The examples `restart_pods` and `traffic_table` are complete controllers, one of each kind.

mod changes;
pub mod consist;
pub mod cooperation;
pub mod operation;

pub use changes::changes_of;
pub use cooperation::{
    MalformedConditions, TrafficChange, expect_finalizer, expects_finalizer, forget_finalizer,
    holder, is_lifecycle_ready, lifecycle_finalizer, wanted_change,
};
pub use operation::{
    Allowed, BeginError, FinishError, OperationAdapter, Written, allow_ops, begin, begin_alone,
    begin_with_cleaning_old, cancel, finish, has_operations, is_during_ops, is_service_available,
    undo,
};
