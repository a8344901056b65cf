//! Data loading (task action spec §11.8): a helper brings the inputs into a directory before the task's container
//! starts, and another takes what it left in a second directory as outputs.

use base64::{Engine, engine::general_purpose::STANDARD};
use longshore_proto::flyteidl2::core::{
    DataLoadingConfig, TypedInterface,
    resources::{ResourceEntry, ResourceName},
    task_template::Target,
};
use prost::Message;
use serde_json::{Value, json};

use super::{build, duration::go_duration, raw::Pod};
use crate::{
    config::{CoPilot, CoPilotStorage},
    context::TaskContext,
    json::{list, object, push},
    plugin::BuildError,
};

/// The volume with the configuration of the storage, and where the helpers find it.
const STORAGE_VOLUME: &str = "flyte-copilot-storage-config";
const STORAGE_PATH: &str = "/etc/flyte/copilot";

/// Adds the helpers that the template requests.
pub(super) fn add(
    pod: &mut Pod,
    context: &TaskContext,
    config: &CoPilot,
) -> Result<(), BuildError> {
    let Some(loading) = loading(context).filter(|loading| loading.enabled) else {
        return Ok(());
    };
    let Some(primary) = build::primary(pod) else {
        return Ok(());
    };
    if let Some(security) = object(primary, "securityContext") {
        object(security, "capabilities");
    }
    let Some(interface) = &context.template.interface else {
        return Ok(());
    };
    let sides = [
        Side::inputs(loading, interface, context, config),
        Side::outputs(loading, interface, context, config),
    ];
    let [inputs, outputs] = sides;
    let secret = config.storage_secret.as_deref();
    if let Some(secret) = secret.filter(|_| inputs.is_some() || outputs.is_some()) {
        push(&mut pod.spec, "volumes", storage_volume(secret));
    }
    let size = storage_size(context);
    for side in [&inputs, &outputs].into_iter().flatten() {
        if let Some(primary) = build::primary(pod) {
            push(primary, "volumeMounts", side.mount());
        }
        let mut volume = json!({"name": side.volume, "emptyDir": {}});
        if let Some(size) = size {
            volume["emptyDir"]["sizeLimit"] = json!(size);
        }
        push(&mut pod.spec, "volumes", volume);
    }
    if let Some(inputs) = inputs {
        push(&mut pod.spec, "initContainers", inputs.helper(config)?);
    }
    if let Some(outputs) = outputs {
        let mut uploader = outputs.helper(config)?;
        uploader["restartPolicy"] = json!("Always");
        // First, so that it watches before the task's container can end.
        if let Some(list) = list(&mut pod.spec, "initContainers") {
            list.insert(0, uploader);
        }
        let grace = json!(config.timeout.as_secs());
        pod.spec
            .insert("terminationGracePeriodSeconds".into(), grace);
    }
    Ok(())
}

fn loading(context: &TaskContext) -> Option<&DataLoadingConfig> {
    match context.template.target.as_ref()? {
        Target::Container(container) => container.data_config.as_ref(),
        Target::K8sPod(pod) => pod.data_config.as_ref(),
        Target::Sql(_) => None,
    }
}

/// The inputs of a task, or its outputs.
struct Side<'a> {
    volume: &'a str,
    path: &'a str,
    helper: &'static str,
    args: Vec<String>,
}

impl<'a> Side<'a> {
    fn inputs(
        loading: &'a DataLoadingConfig,
        interface: &TypedInterface,
        context: &TaskContext,
        config: &'a CoPilot,
    ) -> Option<Self> {
        let inputs = interface
            .inputs
            .as_ref()
            .filter(|map| !map.variables.is_empty())?;
        let path = or(&loading.input_path, &config.input_path);
        let options = [
            ("--from-remote", context.paths.input.clone()),
            ("--to-output-prefix", context.paths.output_prefix.clone()),
            ("--to-local-dir", path.to_owned()),
            ("--format", loading.format().as_str_name().to_owned()),
            (
                "--file-input-layout",
                loading.file_input_layout().as_str_name().to_owned(),
            ),
            ("--input-interface", STANDARD.encode(inputs.encode_to_vec())),
        ];
        Some(Self {
            volume: &config.input_volume,
            path,
            helper: "downloader",
            args: arguments("download", options),
        })
    }

    fn outputs(
        loading: &'a DataLoadingConfig,
        interface: &TypedInterface,
        context: &TaskContext,
        config: &'a CoPilot,
    ) -> Option<Self> {
        interface
            .outputs
            .as_ref()
            .filter(|map| !map.variables.is_empty())?;
        let path = or(&loading.output_path, &config.output_path);
        let options = [
            ("--timeout", go_duration(config.timeout)),
            ("--to-raw-output", context.paths.raw_output_prefix.clone()),
            ("--to-output-prefix", context.paths.output_prefix.clone()),
            ("--from-local-dir", path.to_owned()),
            ("--interface", STANDARD.encode(interface.encode_to_vec())),
        ];
        Some(Self {
            volume: &config.output_volume,
            path,
            helper: "uploader",
            args: arguments("sidecar", options),
        })
    }

    fn mount(&self) -> Value {
        json!({"name": self.volume, "mountPath": self.path})
    }

    fn helper(&self, config: &CoPilot) -> Result<Value, BuildError> {
        let mut mounts = vec![self.mount()];
        if config.storage_secret.is_some() {
            mounts
                .push(json!({"name": STORAGE_VOLUME, "mountPath": STORAGE_PATH, "readOnly": true}));
        }
        let resources = json!({"cpu": config.cpu, "memory": config.memory});
        Ok(json!({
            "name": format!("{}{}", config.name_prefix, self.helper),
            "image": config.image,
            "command": command(config)?,
            "args": self.args,
            "workingDir": "/",
            "resources": {"limits": resources, "requests": resources},
            "volumeMounts": mounts,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "imagePullPolicy": "IfNotPresent",
        }))
    }
}

fn arguments<const N: usize>(verb: &str, options: [(&str, String); N]) -> Vec<String> {
    let options = options.into_iter();
    let options = options.flat_map(|(option, value)| [option.to_owned(), value]);
    std::iter::once(verb.to_owned()).chain(options).collect()
}

/// The command line by which the helpers find the storage. It does not repeat what a secret holds:
/// readers of the pod could read it there.
fn command(config: &CoPilot) -> Result<Vec<String>, BuildError> {
    let storage: &CoPilotStorage = &config.storage;
    let mut command = vec![
        "/bin/flyte-copilot".to_owned(),
        "--storage.limits.maxDownloadMBs=0".to_owned(),
        format!("--logger.level={}", config.log_level),
    ];
    if storage.is_multi_container {
        command.push("--storage.enable-multicontainer".to_owned());
    }
    if !storage.container.is_empty() {
        command.push(format!("--storage.container={}", storage.container));
    }
    command.push(format!("--storage.type={}", storage.kind));
    if config.storage_secret.is_some() {
        command.extend(["--config".to_owned(), format!("{STORAGE_PATH}/*.yaml")]);
        if !config.is_storage_overridden {
            return Ok(command);
        }
    }
    if storage.stow_config.is_empty() || storage.stow_kind.is_empty() {
        return Err(BuildError::bad_specification(
            "the template asks for data loading, and the executor is not configured for it: storage.stow.kind and storage.stow.config are needed",
        ));
    }
    for (key, value) in &storage.stow_config {
        command.extend(["--storage.stow.config".to_owned(), format!("{key}={value}")]);
    }
    command.push(format!("--storage.stow.kind={}", storage.stow_kind));
    Ok(command)
}

/// Readable by all users: the helpers run as the user that the pod specifies.
fn storage_volume(secret: &str) -> Value {
    json!({
        "name": STORAGE_VOLUME,
        "projected": {"sources": [{"secret": {"name": secret}}], "defaultMode": 0o444},
    })
}

/// How much a container's template allows for its data.
fn storage_size(context: &TaskContext) -> Option<&str> {
    let Some(Target::Container(container)) = &context.template.target else {
        return None;
    };
    let resources = container.resources.as_ref()?;
    let is_storage = |entry: &&ResourceEntry| entry.name() == ResourceName::Storage;
    let mut entries = resources.limits.iter().chain(&resources.requests);
    entries.find(is_storage).map(|entry| entry.value.as_str())
}

fn or<'a>(own: &'a str, default: &'a str) -> &'a str {
    if own.is_empty() { default } else { own }
}
