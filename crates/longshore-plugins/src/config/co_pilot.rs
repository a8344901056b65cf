//! The helpers that bring inputs and take outputs of tasks that know nothing of either.

use std::{collections::BTreeMap, time::Duration};

/// `plugins.k8s.co-pilot`, and what it needs of other sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoPilot {
    /// `name`: what the names of the helpers begin with. Default: `flyte-copilot-`.
    pub name_prefix: String,
    /// `image`. Default: upstream's.
    pub image: String,
    /// `default-input-path`. Default: `/var/flyte/inputs`.
    pub input_path: String,
    /// `default-output-path`. Default: `/var/flyte/outputs`.
    pub output_path: String,
    /// `input-vol-name`. Default: `flyte-inputs`.
    pub input_volume: String,
    /// `output-vol-name`. Default: `flyte-outputs`.
    pub output_volume: String,
    /// `timeout` of the upload. Default: 1 hour.
    pub timeout: Duration,
    /// `cpu`: request and limit of each helper. Default: `500m`.
    pub cpu: String,
    /// `memory`: request and limit of each helper. Default: `128Mi`.
    pub memory: String,
    /// `storage-config-override`, else the section `storage`.
    pub storage: CoPilotStorage,
    /// Whether it is `storage-config-override`, which the helpers get on their command line even
    /// where a secret holds the rest.
    pub is_storage_overridden: bool,
    /// `storage-config-secret-name`: a Secret with the configuration of the storage.
    pub storage_secret: Option<String>,
    /// `logger.level` of the executor, which the helpers share. Default: 3, warnings.
    pub log_level: i64,
}

/// Where inputs and outputs are, as the command line of the helpers says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoPilotStorage {
    /// `type`. Default: `s3`.
    pub kind: String,
    /// `container`: the bucket.
    pub container: String,
    /// `enable-multicontainer`: whether there are other buckets. Default: no.
    pub is_multi_container: bool,
    /// `stow.kind`: the kind of store of the library stow.
    pub stow_kind: String,
    /// `stow.config`: address and credentials.
    pub stow_config: BTreeMap<String, String>,
}

impl Default for CoPilot {
    fn default() -> Self {
        let text = str::to_owned;
        Self {
            name_prefix: text("flyte-copilot-"),
            image: text("cr.flyte.org/flyteorg/flyte-binary-v2:latest"),
            input_path: text("/var/flyte/inputs"),
            output_path: text("/var/flyte/outputs"),
            input_volume: text("flyte-inputs"),
            output_volume: text("flyte-outputs"),
            timeout: Duration::from_hours(1),
            cpu: text("500m"),
            memory: text("128Mi"),
            storage: CoPilotStorage::default(),
            is_storage_overridden: false,
            storage_secret: None,
            log_level: 3,
        }
    }
}

impl Default for CoPilotStorage {
    fn default() -> Self {
        Self {
            kind: "s3".to_owned(),
            container: String::new(),
            is_multi_container: false,
            stow_kind: String::new(),
            stow_config: BTreeMap::new(),
        }
    }
}
