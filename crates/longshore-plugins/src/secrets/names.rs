//! The names under which the peer's secret service keeps secrets.

use std::fmt;

use longshore_api::flyte::{LABEL_DOMAIN, LABEL_ORGANIZATION, LABEL_PROJECT};
use md5::{Digest, Md5};
use serde_json::Value;

use super::SecretError;

/// Between the parts of a secret's name.
const SEPARATOR: &str = "__";

/// Whose secrets are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretScope {
    /// Label `organization` of the pod.
    pub org: String,
    /// Label `project` of the pod.
    pub project: String,
    /// Label `domain` of the pod.
    pub domain: String,
}

impl SecretScope {
    /// The scope of a pod.
    ///
    /// # Errors
    /// Where the pod lacks a label, or one could be read as another scope: a secret of another scope must not be taken for
    /// its own.
    pub fn of(pod: &Value) -> Result<Self, SecretError> {
        let label = |label: &'static str| {
            let value = pod["metadata"]["labels"][label].as_str();
            let value = value.filter(|value| !value.is_empty());
            let value = value.ok_or(SecretError::NoLabel(label))?;
            if value.contains(SEPARATOR) {
                return Err(SecretError::Ambiguous(label));
            }
            Ok(value.to_owned())
        };
        Ok(Self {
            org: label(LABEL_ORGANIZATION)?,
            project: label(LABEL_PROJECT)?,
            domain: label(LABEL_DOMAIN)?,
        })
    }

    /// The Kubernetes Secrets that may hold a key: of the project in its domain, of the domain, of the organisation.
    /// The first one that exists is it.
    pub fn names(&self, key: &str) -> [String; 3] {
        [
            secret_name(&self.org, &self.domain, &self.project, key),
            secret_name(&self.org, &self.domain, "", key),
            secret_name(&self.org, "", "", key),
        ]
    }
}

impl fmt::Display for SecretScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            org,
            project,
            domain,
        } = self;
        write!(
            f,
            "project {project:?} in domain {domain:?} of organization {org:?}"
        )
    }
}

/// The name of a Kubernetes Secret; an empty project or domain is any.
pub fn secret_name(org: &str, domain: &str, project: &str, key: &str) -> String {
    let id = format!("u__org__{org}__domain__{domain}__project__{project}__key__{key}");
    let hash = Md5::digest(id.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_narrowest_scope_comes_first() {
        let labels = json!({"organization": "o", "project": "p", "domain": "d"});
        let scope = SecretScope::of(&json!({"metadata": {"labels": labels}})).unwrap();
        let [project, domain, org] = scope.names("k");
        assert_eq!(project, secret_name("o", "d", "p", "k"));
        assert_eq!(domain, secret_name("o", "d", "", "k"));
        assert_eq!(org, secret_name("o", "", "", "k"));
        // MD5 of u__org__o__domain__d__project__p__key__k
        assert_eq!(project, "3a3fe298b048d52fde27310e90dac569");
    }

    #[test]
    fn a_label_that_could_be_read_as_another_scope_is_refused() {
        let labels = json!({"organization": "o", "project": "p", "domain": "d__project__q"});
        let error = SecretScope::of(&json!({"metadata": {"labels": labels}})).unwrap_err();
        assert_eq!(error, SecretError::Ambiguous("domain"));
    }

    #[test]
    fn a_pod_without_a_label_has_no_secrets() {
        let labels = json!({"organization": "o", "project": "", "domain": "d"});
        let error = SecretScope::of(&json!({"metadata": {"labels": labels}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the pod has no label project, by which its secrets are found"
        );
    }
}
