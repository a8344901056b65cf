//! What can be chosen.

/// How pods are admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitConfig {
    /// Deletes and evictions of controlled pods become operations: upstream's feature gate `GraceDeleteWebhook`.
    /// Default: false.
    pub grace_delete: bool,
    /// A delete with `gracePeriodSeconds: 0` passes. Default: false, as upstream.
    pub force_delete_passes: bool,
    /// How long whoever evicts is asked to stay away, in seconds. Default: 5.
    pub eviction_retry_after_seconds: u32,
}

impl Default for AdmitConfig {
    fn default() -> Self {
        Self {
            grace_delete: false,
            force_delete_passes: false,
            eviction_retry_after_seconds: 5,
        }
    }
}

/// How the controllers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOpsConfig {
    /// Only this namespace; all where it is `None`. Default: all.
    pub namespace: Option<String>,
    /// Rounds at the same time, of each controller. Default: 16.
    pub concurrency: usize,
}

impl Default for PodOpsConfig {
    fn default() -> Self {
        Self {
            namespace: None,
            concurrency: 16,
        }
    }
}
