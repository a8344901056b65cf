//! A watch position that cannot be mistaken for another cluster's.

use std::{fmt, str::FromStr};

/// Where the pod watch is: a `resourceVersion` means something only in the cluster that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The uid of the namespace `kube-system`, the customary identity of a cluster.
    pub(crate) cluster: String,
    /// The `resourceVersion`, which Kubernetes lets compare as an integer.
    pub(crate) resource_version: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.resource_version, self.cluster)
    }
}

/// The stored text is not a position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `<resourceVersion>@<cluster uid>`, found `{0}`")]
pub(crate) struct PositionError(String);

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once('@')
            .and_then(|(version, cluster)| {
                Some(Self {
                    cluster: cluster.to_owned(),
                    resource_version: version.parse().ok()?,
                })
            })
            .ok_or_else(|| PositionError(text.to_owned()))
    }
}
