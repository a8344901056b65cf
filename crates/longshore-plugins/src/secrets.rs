//! How a template's secrets are described to the webhook that injects them (task action spec §13), and what that does.

mod binding;
mod decode;
mod inject;
mod names;

use std::{collections::BTreeMap, fmt::Write};

use longshore_api::flyte;
use longshore_proto::flyteidl2::core::{Secret, TaskTemplate, secret::MountType};

use crate::{names::base32, plugin::BuildError};

pub use binding::{NamespaceTemplate, Pattern, ScopeBinding, ScopeBindings};
pub use decode::requested_secrets;
pub use inject::{SecretInjection, SecretReference, SecretValue};
pub use names::{SecretScope, secret_name};

/// A secret that does not come into a pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The pod's annotation is not what the executor writes.
    #[error("expected a flyteidl2.core.Secret in annotation {annotation}: {why}")]
    BadAnnotation {
        /// The name of the annotation.
        annotation: String,
        /// What is wrong with the annotation.
        why: String,
    },
    /// The pod does not say whose it is.
    #[error("the pod has no label {0}, by which its secrets are found")]
    NoLabel(&'static str),
    /// The labels name a scope whose parts cannot be separated.
    #[error("expected label {0} without \"__\", which is between the parts of a secret's name")]
    Ambiguous(&'static str),
    /// The pod is in a namespace of others.
    #[error(
        "the labels of the pod claim the secrets of {scope}, but the pod is in namespace {namespace:?}, {bound}; correct the labels, or bind the namespace with namespace_mapping.template or webhook.namespaces"
    )]
    NotBound {
        /// The pod's.
        namespace: String,
        /// The scope that the labels of the pod claim.
        scope: String,
        /// The scope to which the namespace is bound, or the namespace that would be right.
        bound: String,
    },
    /// The secret is not named.
    #[error("a secret has no key")]
    NoKey,
    /// The value of the secret cannot be a variable's.
    #[error("secret {0:?} is no UTF-8, and cannot be a variable; ask for it as a file")]
    NoText(String),
    /// The key of the secret cannot be a file's name.
    #[error("the key of secret {0:?} is no name of a file; ask for it as a variable")]
    NoFileName(String),
    /// The mount requirement is none that this code knows.
    #[error(
        "expected mount requirement 0 (any), 1 (variable) or 2 (file) of secret {key:?}, found {found}"
    )]
    UnknownMount {
        /// The key of the secret.
        key: String,
        /// The mount requirement that was found.
        found: i32,
    },
}

/// Whether a template requests secrets.
pub(crate) fn has_secrets(template: &TaskTemplate) -> bool {
    !secrets(template).is_empty()
}

/// One annotation for each secret.
pub(crate) fn annotations(template: &TaskTemplate) -> Result<BTreeMap<String, String>, BuildError> {
    secrets(template)
        .iter()
        .enumerate()
        .map(|(at, secret)| {
            let text = to_text(secret)?;
            let annotation = format!("{}{at}", flyte::ANNOTATION_SECRET_PREFIX);
            Ok((annotation, base32(text.as_bytes())))
        })
        .collect()
}

fn secrets(template: &TaskTemplate) -> &[Secret] {
    template
        .security_context
        .as_ref()
        .map_or(&[], |context| &context.secrets)
}

/// The message in protobuf's text format, as upstream's writer has it: one field a line, empty fields left out.
fn to_text(secret: &Secret) -> Result<String, BuildError> {
    let mount = MountType::try_from(secret.mount_requirement).map_err(|_| {
        let (key, number) = (&secret.key, secret.mount_requirement);
        BuildError::bad_specification(format!(
            "secret {key:?} asks for the unknown mount requirement {number}; expected 0 (any), 1 (variable) or 2 (file)"
        ))
    })?;
    let mut text = String::new();
    for (field, value) in [
        ("group", &secret.group),
        ("group_version", &secret.group_version),
        ("key", &secret.key),
    ] {
        push_field(&mut text, field, value);
    }
    if mount != MountType::Any {
        text += "mount_requirement: ";
        text += mount.as_str_name();
        text.push('\n');
    }
    push_field(&mut text, "env_var", &secret.env_var);
    Ok(text)
}

fn push_field(text: &mut String, field: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    text.push_str(field);
    text.push_str(": \"");
    for byte in value.bytes() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(byte)),
            // Writing to a text cannot fail.
            _ => drop(write!(text, "\\{byte:03o}")),
        }
    }
    text.push_str("\"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_printable_is_escaped() {
        let secret = Secret {
            key: "é\"\n".to_owned(),
            ..Secret::default()
        };
        assert_eq!(to_text(&secret).unwrap(), "key: \"\\303\\251\\\"\\n\"\n");
    }

    #[test]
    fn an_unknown_mount_requirement_is_refused() {
        let secret = Secret {
            mount_requirement: 9,
            ..Secret::default()
        };
        let error = to_text(&secret).unwrap_err();
        assert_eq!(error.code, "BadTaskSpecification");
    }
}
