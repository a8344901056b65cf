//! ResourceConsist: keeps an external table (a load balancer's backends, say) in step with pods.
//!
//! Upstream's words: an *employer* is the object that has the table, a Service as a rule; its *employees* are the pods in
//! it.

/// Finalizer of an employer: its table is not empty.
pub const FINALIZER_CLEAN: &str = "resource-consist.kusionstack.io/clean-finalizer";
/// Finalizer of an employer, before it was [`FINALIZER_CLEAN`]: the name of the employer follows the prefix.
pub const FINALIZER_CLEAN_BEFORE: &str = "resource-consist.kusionstack.io/clean-";

/// Reason of an Event about an employer: it has its finalizer.
pub const REASON_CLEAN_FINALIZER_ENSURED: &str = "EnsureEmployerCleanFinalizerSucceed";
/// Reason of an Event about an employer: its table is empty, and its finalizer is removed.
pub const REASON_CLEAN_FINALIZER_CLEANED: &str = "CleanEmployerCleanFinalizerSucceed";
/// Reason of an Event about an employer: an annotation of a pod is not valid.
pub const REASON_EXPECTED_FINALIZER_FAILED: &str = "EnsureExpectedFinalizerFailed";
/// Reason of an Event about an employer: what the table has of it cannot be read.
pub const REASON_CURRENT_EMPLOYER_FAILED: &str = "GetCurrentEmployerFailed";
/// Reason of an Event about an employer: what the table has of its pods cannot be read.
pub const REASON_CURRENT_EMPLOYEES_FAILED: &str = "GetCurrentEmployeesFailed";
/// Reason of an Event about an employer: what the table has of it cannot be written.
pub const REASON_SYNC_EMPLOYER_FAILED: &str = "SyncEmployerFailed";
/// Reason of an Event about an employer: what the table has of its pods cannot be written.
pub const REASON_SYNC_EMPLOYEES_FAILED: &str = "SyncEmployeesFailed";
