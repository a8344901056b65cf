//! Puts a secret into a pod, as a variable or as a file (task action spec §13).
//!
//! Where the Kubernetes Secret is in the pod's own namespace, the pod refers to it, and its value stands nowhere else.
//! A pod cannot refer to a Secret of another namespace: there, its value is written into the pod.

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_proto::flyteidl2::core::{Secret, secret::MountType};
use serde_json::{Map, Value, json};

use super::SecretError;

/// Variable: how the names of secrets' variables begin.
const ENV_PREFIX: &str = "FLYTE_SECRETS_ENV_PREFIX";
/// Variable: where secrets' files are.
const ENV_DIRECTORY: &str = "FLYTE_SECRETS_DEFAULT_DIR";
/// Variable: how the names of secrets' files begin.
const ENV_FILE_PREFIX: &str = "FLYTE_SECRETS_FILE_PREFIX";
/// Variable of the container that writes the files: a line `<name>=<base 64>` each.
const ENV_FILES: &str = "SECRETS";
const VOLUME: &str = "embedded-secret-vol";
const DIRECTORY: &str = "/etc/flyte/secrets";
/// Writes the files. The padding of base 64 is why lines are not split by `read`.
const SCRIPT: &str = r#"set -e
printf '%s' "$SECRETS" | while IFS= read -r line; do
  printf '%s' "${line#*=}" | base64 -d > "/etc/flyte/secrets/${line%%=*}"
done
"#;

/// How secrets are put into pods: the part of section `webhook` that is used.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretInjection {
    /// `secretEnvVarPrefix`. Default: `_UNION_`.
    pub env_prefix: String,
    /// `embeddedSecretManagerConfig.fileMountInitContainer`: its name. Default: `init-embedded-secret`.
    pub container: String,
    /// The image of the init container that writes the files; it needs `sh` and `base64`. Default: `busybox:1.28`.
    pub image: String,
    /// The resources of that container. Default: none.
    pub resources: Option<Value>,
}

/// A secret that was found.
#[derive(Clone, Copy, Debug)]
pub struct SecretValue<'a> {
    /// The value of the secret.
    pub bytes: &'a [u8],
    /// Where a pod can refer to it; `None` where it cannot.
    pub reference: Option<SecretReference<'a>>,
}

/// A value in a Kubernetes Secret of the pod's own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretReference<'a> {
    /// The name of the Secret.
    pub secret: &'a str,
    /// The key of the value in it.
    pub key: &'a str,
}

impl Default for SecretInjection {
    fn default() -> Self {
        Self {
            env_prefix: "_UNION_".to_owned(),
            container: "init-embedded-secret".to_owned(),
            image: "busybox:1.28".to_owned(),
            resources: None,
        }
    }
}

impl SecretInjection {
    /// Puts a secret into a pod. What the pod says itself of a variable that a secret brings is replaced.
    ///
    /// # Errors
    /// Where the secret cannot take the requested form; the pod is unchanged then.
    pub fn inject(
        &self,
        pod: &mut Value,
        secret: &Secret,
        value: SecretValue<'_>,
    ) -> Result<(), SecretError> {
        if secret.key.is_empty() {
            return Err(SecretError::NoKey);
        }
        match MountType::try_from(secret.mount_requirement) {
            Ok(MountType::Any | MountType::EnvVar) => self.as_variable(pod, secret, value),
            Ok(MountType::File) => self.as_file(pod, secret, value),
            Err(_) => Err(SecretError::UnknownMount {
                key: secret.key.clone(),
                found: secret.mount_requirement,
            }),
        }
    }

    fn as_variable(
        &self,
        pod: &mut Value,
        secret: &Secret,
        value: SecretValue<'_>,
    ) -> Result<(), SecretError> {
        // Containers with another value do not start, whichever way they get it.
        let text =
            str::from_utf8(value.bytes).map_err(|_| SecretError::NoText(secret.key.clone()))?;
        let name = match secret.env_var.as_str() {
            "" => format!("{}{}", self.env_prefix, secret.key.to_uppercase()),
            name => name.to_owned(),
        };
        let variable = match value.reference {
            Some(SecretReference { secret, key }) => {
                json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
            }
            None => plain(&name, text),
        };
        let variables = [plain(ENV_PREFIX, &self.env_prefix), variable];
        each_container(pod, |container| set_variables(container, &variables));
        Ok(())
    }

    fn as_file(
        &self,
        pod: &mut Value,
        secret: &Secret,
        value: SecretValue<'_>,
    ) -> Result<(), SecretError> {
        let key = &secret.key;
        // Volumes refuse what begins with two dots.
        if key.contains(['/', '=', '\n']) || key == "." || key.starts_with("..") {
            return Err(SecretError::NoFileName(key.clone()));
        }
        match value.reference {
            Some(reference) => mount(pod, key, reference),
            None => self.write(pod, key, value.bytes),
        }
        if !secret.env_var.is_empty() {
            let path = format!("{DIRECTORY}/{key}");
            let variables = [plain(&secret.env_var, &path)];
            each_container(pod, |container| set_variables(container, &variables));
        }
        Ok(())
    }

    /// A file that is written before all containers run.
    fn write(&self, pod: &mut Value, key: &str, value: &[u8]) {
        let line = format!("{key}={}\n", BASE64_STANDARD.encode(value));
        let writers = list(&mut pod["spec"], "initContainers");
        let writer = writers.iter_mut().find(|it| it["name"] == self.container);
        let lines = writer.and_then(|writer| {
            let mut variables = writer["env"].as_array_mut()?.iter_mut();
            let lines = variables.find(|it| it["name"] == ENV_FILES)?;
            Some(&mut lines["value"])
        });
        match lines {
            Some(lines) => *lines = (lines.as_str().unwrap_or_default().to_owned() + &line).into(),
            None => self.add_writer(pod, line),
        }
    }

    /// Adds the container that writes the files, before all others, and what the others need to find them.
    fn add_writer(&self, pod: &mut Value, lines: String) {
        show_files(pod);
        let mut writer = json!({
            "name": self.container,
            "image": self.image,
            "command": ["sh", "-c", SCRIPT],
            "env": [{"name": ENV_FILES, "value": lines}],
            "volumeMounts": [{"name": VOLUME, "mountPath": DIRECTORY}],
        });
        if let Some(resources) = &self.resources {
            writer["resources"] = resources.clone();
        }
        let spec = &mut pod["spec"];
        list(spec, "initContainers").insert(0, writer);
        let volumes = list(spec, "volumes");
        if !volumes.iter().any(|it| it["name"] == VOLUME) {
            volumes.push(json!({"name": VOLUME, "emptyDir": {"medium": "Memory"}}));
        }
    }
}

/// A file that its node takes from the Secret.
fn mount(pod: &mut Value, path: &str, SecretReference { secret, key }: SecretReference<'_>) {
    let volumes = list(&mut pod["spec"], "volumes");
    // Ours has this name, whatever the pod says of it.
    volumes.retain(|it| it["name"] != VOLUME || it["projected"].is_object());
    if !volumes.iter().any(|it| it["name"] == VOLUME) {
        volumes.push(json!({"name": VOLUME, "projected": {"sources": []}}));
    }
    for volume in volumes.iter_mut().filter(|it| it["name"] == VOLUME) {
        let sources = list(&mut volume["projected"], "sources");
        sources.retain(|source| source["secret"]["items"][0]["path"] != path);
        sources.push(json!({"secret": {"name": secret, "items": [{"key": key, "path": path}]}}));
    }
    show_files(pod);
}

/// Where the files are, in each container, and what tasks need to find them.
fn show_files(pod: &mut Value) {
    let variables = [plain(ENV_DIRECTORY, DIRECTORY), plain(ENV_FILE_PREFIX, "")];
    each_container(pod, |container| {
        let mounts = list(container, "volumeMounts");
        if !mounts.iter().any(|it| it["name"] == VOLUME) {
            mounts.push(json!({"name": VOLUME, "mountPath": DIRECTORY, "readOnly": true}));
        }
        set_variables(container, &variables);
    });
}

/// A variable with this value.
fn plain(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// All containers of a pod, also those that run first.
fn each_container(pod: &mut Value, mut change: impl FnMut(&mut Value)) {
    for kind in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(kind).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(&mut change);
    }
}

/// Sets variables at the beginning, the last one first: later ones may refer to them.
fn set_variables(container: &mut Value, variables: &[Value]) {
    let env = list(container, "env");
    for variable in variables {
        env.retain(|it| it["name"] != variable["name"]);
        env.insert(0, variable.clone());
    }
}

/// A list in an object, which is made where there is none.
fn list<'a>(object: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let list = &mut object[field];
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    #[expect(clippy::expect_used, reason = "made above where it was none")]
    list.as_array_mut().expect("a list")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: &str, mount: MountType, env_var: &str) -> Secret {
        Secret {
            key: key.to_owned(),
            mount_requirement: mount.into(),
            env_var: env_var.to_owned(),
            ..Secret::default()
        }
    }

    fn pod() -> Value {
        json!({"spec": {
            "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "main", "env": [{"name": "A", "value": "1"}, {"name": "_UNION_K", "value": "own"}]},
                {"name": "side"},
            ],
        }})
    }

    fn of_elsewhere(bytes: &[u8]) -> SecretValue<'_> {
        SecretValue {
            bytes,
            reference: None,
        }
    }

    fn inject(pod: &mut Value, secret: &Secret, value: &[u8]) {
        SecretInjection::default()
            .inject(pod, secret, of_elsewhere(value))
            .unwrap();
    }

    #[test]
    fn a_pod_beside_its_secrets_refers_to_them_and_holds_no_value() {
        let value = |secret| SecretValue {
            bytes: b"canary",
            reference: Some(SecretReference { secret, key: "at" }),
        };
        let mut pod = pod();
        let injection = SecretInjection::default();
        let asked = [
            (secret("k", MountType::EnvVar, ""), "s0"),
            (secret("File", MountType::File, "WHERE"), "s1"),
            (secret("other", MountType::File, ""), "s2"),
            // Requested twice.
            (secret("other", MountType::File, ""), "s2"),
        ];
        for (secret, name) in &asked {
            injection.inject(&mut pod, secret, value(name)).unwrap();
        }
        let text = pod.to_string();
        let encoded = BASE64_STANDARD.encode("canary");
        assert!(
            !text.contains("canary") && !text.contains(&encoded),
            "{text}"
        );
        let spec = &pod["spec"];
        // The injection adds no init container that writes files.
        assert_eq!(spec["initContainers"].as_array().unwrap().len(), 1);
        let source = |name: &str, path: &str| json!({"secret": {"name": name, "items": [{"key": "at", "path": path}]}});
        assert_eq!(
            spec["volumes"],
            json!([{"name": VOLUME, "projected": {"sources": [source("s1", "File"), source("s2", "other")]}}])
        );
        for container in [&spec["initContainers"][0], &spec["containers"][1]] {
            let mount = json!([{"name": VOLUME, "mountPath": DIRECTORY, "readOnly": true}]);
            assert_eq!(container["volumeMounts"], mount);
            let env = container["env"].as_array().unwrap();
            for variable in [
                json!({"name": "_UNION_K", "valueFrom": {"secretKeyRef": {"name": "s0", "key": "at"}}}),
                plain("WHERE", "/etc/flyte/secrets/File"),
                plain(ENV_DIRECTORY, DIRECTORY),
                plain(ENV_PREFIX, "_UNION_"),
            ] {
                let n = env.iter().filter(|it| **it == variable).count();
                assert_eq!(n, 1, "{variable}: {env:?}");
            }
        }
    }

    #[test]
    fn a_variable_is_set_in_every_container_and_wins() {
        for mount in [MountType::Any, MountType::EnvVar] {
            let mut pod = pod();
            inject(&mut pod, &secret("k", mount, ""), b"v");
            let ours = json!([
                {"name": "_UNION_K", "value": "v"},
                {"name": "FLYTE_SECRETS_ENV_PREFIX", "value": "_UNION_"},
            ]);
            assert_eq!(pod["spec"]["initContainers"][0]["env"], ours);
            assert_eq!(pod["spec"]["containers"][1]["env"], ours);
            let mut main = ours.as_array().unwrap().clone();
            main.push(json!({"name": "A", "value": "1"}));
            assert_eq!(pod["spec"]["containers"][0]["env"], Value::Array(main));
        }
        let mut pod = pod();
        inject(&mut pod, &secret("k", MountType::EnvVar, "MINE"), b"v");
        assert_eq!(pod["spec"]["containers"][1]["env"][0]["name"], "MINE");
    }

    #[test]
    fn files_are_written_by_one_container_before_all_others() {
        let mut pod = pod();
        inject(&mut pod, &secret("Key", MountType::File, "WHERE"), b"v");
        inject(&mut pod, &secret("b", MountType::File, ""), &[255, 0]);
        let spec = &pod["spec"];
        let writers = spec["initContainers"].as_array().unwrap();
        assert_eq!(
            (writers.len(), &writers[0]["name"]),
            (2, &json!("init-embedded-secret"))
        );
        let lines = writers[0]["env"].as_array().unwrap();
        let lines = lines.iter().find(|it| it["name"] == "SECRETS").unwrap();
        assert_eq!(lines["value"], "Key=dg==\nb=/wA=\n");
        assert_eq!(
            spec["volumes"],
            json!([{"name": VOLUME, "emptyDir": {"medium": "Memory"}}])
        );
        for container in [&writers[1], &spec["containers"][1]] {
            let mount = json!([{"name": VOLUME, "mountPath": DIRECTORY, "readOnly": true}]);
            assert_eq!(container["volumeMounts"], mount);
            let env = json!([
                {"name": "WHERE", "value": "/etc/flyte/secrets/Key"},
                {"name": "FLYTE_SECRETS_FILE_PREFIX", "value": ""},
                {"name": "FLYTE_SECRETS_DEFAULT_DIR", "value": "/etc/flyte/secrets"},
            ]);
            assert_eq!(container["env"], env);
        }
    }

    #[test]
    fn the_script_writes_what_it_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let script = SCRIPT.replace(DIRECTORY, directory.path().to_str().unwrap());
        let mut pod = pod();
        for (key, value) in [("one", &b"v"[..]), ("two", b"a=b\n\xff"), ("three", b"")] {
            inject(&mut pod, &secret(key, MountType::File, ""), value);
        }
        let lines = &pod["spec"]["initContainers"][0]["env"][0]["value"];
        let status = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("SECRETS", lines.as_str().unwrap())
            .status()
            .unwrap();
        assert!(status.success());
        for (key, value) in [("one", &b"v"[..]), ("two", b"a=b\n\xff"), ("three", b"")] {
            assert_eq!(std::fs::read(directory.path().join(key)).unwrap(), value);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let table = [
            (secret("", MountType::Any, ""), &b"v"[..], "has no key"),
            (secret("k", MountType::EnvVar, ""), &[255], "no UTF-8"),
            (
                secret("../k", MountType::File, ""),
                b"v",
                "no name of a file",
            ),
            (
                secret("..k", MountType::File, ""),
                b"v",
                "no name of a file",
            ),
            (
                secret("a=b", MountType::File, ""),
                b"v",
                "no name of a file",
            ),
            (
                Secret {
                    mount_requirement: 9,
                    ..secret("k", MountType::Any, "")
                },
                b"v",
                "found 9",
            ),
        ];
        for (secret, value, expected) in table {
            let mut changed = pod();
            let refused =
                SecretInjection::default().inject(&mut changed, &secret, of_elsewhere(value));
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(changed, pod());
        }
    }
}
