//! Which organization, project and domain the pods of a namespace may name as theirs.
//!
//! Secrets are found by labels that the author of a pod writes. A namespace is what an API server vouches for: it decides
//! which labels are believed.

use std::fmt;

use longshore_api::flyte::ORGANIZATION;

use super::{SecretError, SecretScope};

/// How namespaces belong to projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeBindings {
    /// Namespaces that have bindings of their own: a pod there has to fit one of them. Default: none.
    pub table: Vec<ScopeBinding>,
    /// The namespace of each project in its domain, for all others. Default: the peer's, `{{ project }}-{{ domain }}`.
    pub template: NamespaceTemplate,
    /// The organization of all namespaces that the template is for, unless it names `{{ org }}`. Default: `flyte`, which
    /// the executor writes to each pod.
    pub organization: String,
}

/// What the pods of a namespace may name as theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeBinding {
    /// The namespace, or several.
    pub namespace: Pattern,
    /// Label `organization`.
    pub organization: Pattern,
    /// Label `project`.
    pub project: Pattern,
    /// Label `domain`.
    pub domain: Pattern,
}

impl Default for ScopeBindings {
    fn default() -> Self {
        Self {
            table: Vec::new(),
            template: NamespaceTemplate("{{ project }}-{{ domain }}".to_owned()),
            organization: ORGANIZATION.to_owned(),
        }
    }
}

impl ScopeBindings {
    /// Whether pods of a namespace may have the secrets of a scope. Secrets are in the namespace `secrets`.
    ///
    /// A pod in that namespace needs no binding, unless there is one in the table: it may mount every Secret there by
    /// itself, whatever its labels are. This is how the peer has it, whose tasks and Secrets are in one namespace.
    ///
    /// # Errors
    /// Where the namespace is that of others.
    pub fn check(
        &self,
        namespace: &str,
        secrets: &str,
        scope: &SecretScope,
    ) -> Result<(), SecretError> {
        let own: Vec<_> = self
            .table
            .iter()
            .filter(|binding| binding.namespace.matches(namespace))
            .collect();
        let bound = if !own.is_empty() {
            if own.iter().any(|binding| binding.fits(scope)) {
                return Ok(());
            }
            let own: Vec<String> = own.iter().map(|binding| binding.words()).collect();
            format!(
                "which webhook.namespaces binds to {}",
                own.join(", and to ")
            )
        } else if namespace == secrets {
            return Ok(());
        } else {
            let expected = self.template.render(scope);
            let names_organization = self.template.placeholders().any(|name| name == ORG);
            let is_organization = names_organization || scope.org == self.organization;
            if expected == namespace && is_organization {
                return Ok(());
            }
            if is_organization {
                format!("and pods of that project and domain are in namespace {expected:?}")
            } else {
                format!(
                    "and namespaces belong to organization {:?}",
                    self.organization
                )
            }
        };
        Err(SecretError::NotBound {
            namespace: namespace.to_owned(),
            scope: scope.to_string(),
            bound,
        })
    }
}

impl ScopeBinding {
    fn fits(&self, scope: &SecretScope) -> bool {
        self.organization.matches(&scope.org)
            && self.project.matches(&scope.project)
            && self.domain.matches(&scope.domain)
    }

    fn words(&self) -> String {
        format!(
            "project {:?} in domain {:?} of organization {:?}",
            self.project.0, self.domain.0, self.organization.0
        )
    }
}

const PROJECT: &str = "project";
const DOMAIN: &str = "domain";
const ORG: &str = "org";

/// The namespace of a project in its domain, as `{{ project }}-{{ domain }}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTemplate(String);

impl fmt::Display for NamespaceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamespaceTemplate {
    /// A template; `None` where it has placeholders that mean nothing, or one without an end.
    pub fn parse(text: &str) -> Option<Self> {
        let template = Self(text.to_owned());
        let is_known = |name: &str| [PROJECT, DOMAIN, ORG].contains(&name);
        let ends = text.matches("{{").count() == text.matches("}}").count();
        let is_sound =
            !text.is_empty() && ends && template.parts().all(|(_, it)| it.is_none_or(is_known));
        is_sound.then_some(template)
    }

    fn render(&self, scope: &SecretScope) -> String {
        let mut namespace = String::new();
        for (text, placeholder) in self.parts() {
            namespace.push_str(text);
            namespace.push_str(match placeholder {
                Some(PROJECT) => &scope.project,
                Some(DOMAIN) => &scope.domain,
                Some(ORG) => &scope.org,
                _ => "",
            });
        }
        namespace
    }

    fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|(_, placeholder)| placeholder)
    }

    /// Texts, each with the placeholder that follows it.
    fn parts(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.split("}}").map(|part| match part.split_once("{{") {
            Some((text, placeholder)) => (text, Some(placeholder.trim())),
            None => (part, None),
        })
    }
}

/// A text in which `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for Pattern {
    /// The pattern `*`, which matches every text.
    fn default() -> Self {
        Self("*".to_owned())
    }
}

impl Pattern {
    /// Whether the pattern matches this text.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some((_, after)) = rest.split_once(part) else {
                return false;
            };
            rest = after;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> SecretScope {
        let mut parts = text.split('/').map(str::to_owned);
        SecretScope {
            org: parts.next().unwrap(),
            project: parts.next().unwrap(),
            domain: parts.next().unwrap(),
        }
    }

    fn binding(namespace: &str, text: &str) -> ScopeBinding {
        let SecretScope {
            org,
            project,
            domain,
        } = scope(text);
        ScopeBinding {
            namespace: Pattern(namespace.to_owned()),
            organization: Pattern(org),
            project: Pattern(project),
            domain: Pattern(domain),
        }
    }

    #[test]
    fn a_namespace_has_the_secrets_of_its_project_and_domain_and_no_others() {
        let default = ScopeBindings::default();
        let template = |text: &str| ScopeBindings {
            template: NamespaceTemplate::parse(text).unwrap(),
            ..ScopeBindings::default()
        };
        let table = ScopeBindings {
            table: vec![
                binding("team-a", "flyte/a/*"),
                binding("team-a", "flyte/shared/development"),
                binding("batch-*", "o/b/production"),
                binding("secrets", "flyte/s/*"),
            ],
            ..ScopeBindings::default()
        };
        for (bindings, namespace, claimed, may) in [
            // The peer's.
            (&default, "a-development", "flyte/a/development", true),
            (&default, "a-development", "flyte/b/development", false),
            (&default, "a-development", "flyte/a/production", false),
            (&default, "a-development", "other/a/development", false),
            (&default, "a-development", "flyte/A/development", false),
            (&default, "default", "flyte/a/development", false),
            (&default, "a", "flyte/a/development", false),
            // What two projects share is theirs, as the peer has it.
            (&default, "a-b-c", "flyte/a/b-c", true),
            (&default, "a-b-c", "flyte/a-b/c", true),
            (&default, "a-b-c", "flyte/b/c", false),
            // An action in the namespace of the Secrets needs no labels to read them.
            (&default, "secrets", "any/thing/here", true),
            // Other templates.
            (&template("{{project}}"), "a", "flyte/a/production", true),
            (&template("{{project}}"), "a", "flyte/b/production", false),
            (&template("x-{{ domain }}"), "x-d", "flyte/a/d", true),
            (&template("{{ org }}-{{ project }}"), "o-a", "o/a/d", true),
            (
                &template("{{ org }}-{{ project }}"),
                "o-a",
                "flyte/a/d",
                false,
            ),
            (&template("tasks"), "tasks", "flyte/a/d", true),
            (&template("tasks"), "other", "flyte/a/d", false),
            // The table wins.
            (&table, "team-a", "flyte/a/anything", true),
            (&table, "team-a", "flyte/shared/development", true),
            (&table, "team-a", "flyte/shared/production", false),
            (&table, "team-a", "flyte/team/a", false),
            (&table, "batch-7", "o/b/production", true),
            (&table, "batch-7", "flyte/b/production", false),
            (&table, "secrets", "flyte/s/d", true),
            (&table, "secrets", "flyte/a/d", false),
            (&table, "c-d", "flyte/c/d", true),
        ] {
            let found = bindings.check(namespace, "secrets", &scope(claimed));
            assert_eq!(found.is_ok(), may, "{namespace}: {claimed}: {found:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_namespace_and_what_the_labels_claim() {
        let refusal = |bindings: &ScopeBindings, namespace: &str, claimed: &str| {
            let refused = bindings.check(namespace, "secrets", &scope(claimed));
            refused.unwrap_err().to_string()
        };
        let default = ScopeBindings::default();
        let start = "the labels of the pod claim the secrets of project \"b\" in domain \"d\" of organization";
        assert_eq!(
            refusal(&default, "a-d", "flyte/b/d"),
            format!(
                "{start} \"flyte\", but the pod is in namespace \"a-d\", and pods of that project and domain are in namespace \"b-d\"; correct the labels, or bind the namespace with namespace_mapping.template or webhook.namespaces"
            )
        );
        let other = refusal(&default, "b-d", "o/b/d");
        assert!(
            other.contains("belong to organization \"flyte\""),
            "{other}"
        );
        let table = ScopeBindings {
            table: vec![binding("team", "flyte/a/*")],
            ..default
        };
        let other = refusal(&table, "team", "flyte/b/d");
        let bound = "which webhook.namespaces binds to project \"a\" in domain \"*\" of organization \"flyte\"";
        assert!(other.contains(bound), "{other}");
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "ace", true),
            ("a*c*e", "aec", false),
            ("a*a", "a", false),
            ("a*bb*b", "abbb", true),
            ("a*bb*b", "abb", false),
        ] {
            let found = Pattern(pattern.to_owned()).matches(text);
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_template_with_what_nobody_knows_is_none() {
        for text in ["", "{{ projcet }}", "{{ project", "project }}", "{{}}"] {
            assert_eq!(NamespaceTemplate::parse(text), None, "{text}");
        }
    }
}
