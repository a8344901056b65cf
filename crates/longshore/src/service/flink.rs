//! The Flink operator: its configuration, its controllers, and what JobManagers may do.

use std::{fs, path::Path, sync::Arc};

use longshore_api::flink::{FLINK_DEPLOYMENT_CRD, FLINK_SESSION_JOB_CRD, FLINK_STATE_SNAPSHOT_CRD};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_flink::{FlinkOperator, FlinkOptions, RULES_OF_JOBS};
use longshore_flink_core::conf::{
    FlinkConfig,
    format::{FLAT_FILE, STANDARD_FILE, read_flat, read_standard},
    layers::OperatorConfig,
};
use longshore_kit::{Metrics, Namespaces, Rule, SystemClock};
use longshore_outbound::Boundaries;
use serde_json::{Value, json};

use crate::error::{CliError, ConfigError};

/// The name of this part in error messages.
pub(crate) const PART: &str = "the Flink operator";
/// The definitions of its resources.
pub(crate) const DEFINITIONS: [&str; 3] = [
    FLINK_DEPLOYMENT_CRD,
    FLINK_SESSION_JOB_CRD,
    FLINK_STATE_SNAPSHOT_CRD,
];
/// The service account of JobManagers that upstream's chart makes and its examples name.
const ACCOUNT: &str = "flink";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The settings of the operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlinkSettings {
    /// What resources inherit, and the options of the operator itself.
    pub(crate) operator: Arc<OperatorConfig>,
    /// Where JobManagers and the jars of session jobs may be.
    pub(crate) boundaries: Arc<Boundaries>,
}

impl FlinkSettings {
    /// The settings for this machine, with the configuration in a file, where there is one.
    ///
    /// The author of a session job is the user who runs this program, so its jar may be served by this machine.
    pub(crate) fn of_this_machine(
        file: &Path,
        boundaries: &Arc<Boundaries>,
    ) -> Result<Self, CliError> {
        Ok(Self {
            operator: Arc::new(OperatorConfig::new(read(file)?, None)),
            boundaries: Arc::clone(boundaries),
        })
    }

    /// The settings that a directory of Flink has, as upstream reads it: the flat file, or else the standard one.
    pub(crate) fn of_directory(directory: Option<&Path>) -> Result<Self, CliError> {
        let Some(directory) = directory else {
            return Ok(Self::default());
        };
        let flat = directory.join(FLAT_FILE);
        let file = if flat.exists() {
            flat
        } else {
            directory.join(STANDARD_FILE)
        };
        Ok(Self {
            operator: Arc::new(OperatorConfig::new(read(&file)?, None)),
            ..Self::default()
        })
    }

    /// The controllers of these namespaces.
    pub(crate) fn controllers(&self, namespaces: Namespaces, metrics: &Metrics) -> FlinkOperator {
        let options = FlinkOptions {
            namespaces,
            operator: Arc::clone(&self.operator),
            boundaries: Arc::clone(&self.boundaries),
            metrics: metrics.clone(),
            ..FlinkOptions::default()
        };
        FlinkOperator::new(options, Arc::new(SystemClock))
    }
}

/// The configuration in a file; empty where there is no file.
fn read(file: &Path) -> Result<FlinkConfig, CliError> {
    if !file.exists() {
        return Ok(FlinkConfig::new());
    }
    let text = fs::read_to_string(file);
    let text = text.map_err(|source| CliError::in_file(file.to_owned(), source))?;
    if file.ends_with(FLAT_FILE) {
        return Ok(read_flat(&text));
    }
    let config = read_standard(&text).map_err(|source| ConfigError::NoYaml {
        path: file.to_owned(),
        source: source.into(),
    })?;
    Ok(config)
}

/// The service account of JobManagers in a namespace, with the rights that they need. Each object with what it is.
pub(crate) fn account(namespace: &str) -> [(ObjectRef, Value); 3] {
    let metadata = json!({"name": ACCOUNT, "namespace": namespace});
    let rule = |rule: &Rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs});
    let rules: Vec<Value> = RULES_OF_JOBS.iter().map(rule).collect();
    let api_version = format!("{RBAC}/v1");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    let role = json!({
        "apiVersion": api_version,
        "kind": "Role",
        "metadata": metadata,
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": api_version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    });
    let target = |group, kind, plural| ObjectRef {
        resource: Resource {
            group,
            version: "v1",
            kind,
            plural,
            scope: Scope::Namespaced,
        },
        namespace: namespace.to_owned(),
        name: ACCOUNT.to_owned(),
        uid: None,
    };
    [
        (target("", "ServiceAccount", "serviceaccounts"), account),
        (target(RBAC, "Role", "roles"), role),
        (target(RBAC, "RoleBinding", "rolebindings"), binding),
    ]
}
