//! ResourceConsist: what keeps a table of somebody else (a load balancer's backends, say) in step with pods.
//!
//! Upstream's words: an *employer* is the object that has the table, a Service as a rule; its *employees* are the pods in
//! it.

/// Finalizer of an employer with anything in its table.
pub const FINALIZER_CLEAN: &str = "resource-consist.kusionstack.io/clean-finalizer";
/// What the finalizer of an employer began with before it was [`FINALIZER_CLEAN`]: `<this><name of the employer>`.
pub const FINALIZER_CLEAN_BEFORE: &str = "resource-consist.kusionstack.io/clean-";

/// Reason of an Event about an employer: it has its finalizer.
pub const REASON_CLEAN_FINALIZER_ENSURED: &str = "EnsureEmployerCleanFinalizerSucceed";
/// Reason of an Event about an employer: it is gone from everywhere, and may go.
pub const REASON_CLEAN_FINALIZER_CLEANED: &str = "CleanEmployerCleanFinalizerSucceed";
/// Reason of an Event about an employer: a pod's annotation says nothing that can be followed.
pub const REASON_EXPECTED_FINALIZER_FAILED: &str = "EnsureExpectedFinalizerFailed";
/// Reason of an Event about an employer: what the table has of it cannot be read.
pub const REASON_CURRENT_EMPLOYER_FAILED: &str = "GetCurrentEmployerFailed";
/// Reason of an Event about an employer: what the table has of its pods cannot be read.
pub const REASON_CURRENT_EMPLOYEES_FAILED: &str = "GetCurrentEmployeesFailed";
/// Reason of an Event about an employer: what the table has of it cannot be written.
pub const REASON_SYNC_EMPLOYER_FAILED: &str = "SyncEmployerFailed";
/// Reason of an Event about an employer: what the table has of its pods cannot be written.
pub const REASON_SYNC_EMPLOYEES_FAILED: &str = "SyncEmployeesFailed";
