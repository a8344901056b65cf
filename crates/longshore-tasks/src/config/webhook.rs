//! The section `webhook`: how secrets get into pods (task action spec §13).

use std::path::PathBuf;

use longshore_plugins::{
    NamespaceTemplate, Pattern, ScopeBinding, ScopeBindings, SecretInjection, Section,
};
use serde_json::Value;

/// The webhook that puts secrets into pods, with upstream's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookSettings {
    /// `secretName`: the Secret of its certificates. Default: `flyte-pod-webhook`.
    pub secret_name: String,
    /// `serviceName`: the Service through which API servers reach it, and the name of its configuration there. Default:
    /// `flyte-pod-webhook`.
    pub service_name: String,
    /// `servicePort` of that Service. Default: 443.
    pub service_port: u16,
    /// `listenPort`. Default: 9443.
    pub listen_port: u16,
    /// `cacheInvalidationPort`: where it is told that a secret has changed; 0 for nowhere. Default: 9444.
    pub invalidation_port: u16,
    /// `cacheInvalidationTokenFile`, which upstream does not have: the file of the bearer token that callers of that port
    /// show. Without one the webhook does not listen there.
    pub invalidation_token_file: Option<PathBuf>,
    /// Not `disableCreateMutatingWebhookConfig`: whether API servers are told of it. Default: yes.
    pub is_registered: bool,
    /// `embeddedSecretManagerConfig.k8sConfig.namespace`: where secrets are looked up. Default: `flyte`.
    pub secrets_namespace: String,
    /// `namespaces` and `organization`, with the section `namespace_mapping`: whose secrets the pods of a namespace get.
    pub bindings: ScopeBindings,
    /// What it does to pods.
    pub injection: SecretInjection,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        let name = "flyte-pod-webhook";
        Self {
            secret_name: name.to_owned(),
            service_name: name.to_owned(),
            service_port: 443,
            listen_port: 9443,
            invalidation_port: 9444,
            invalidation_token_file: None,
            is_registered: true,
            secrets_namespace: "flyte".to_owned(),
            bindings: ScopeBindings::default(),
            injection: SecretInjection::default(),
        }
    }
}

/// Managers of secrets that upstream has, beside the one that there is here.
const OTHER_MANAGERS: &str = "only secrets that Flyte's secret service keeps in Kubernetes Secrets are looked up (Embedded, of type K8s)";

impl WebhookSettings {
    pub(super) fn read(&mut self, section: &mut Section<'_>) {
        section.text("secretName", &mut self.secret_name);
        section.text("serviceName", &mut self.service_name);
        section.number("servicePort", &mut self.service_port);
        section.number("listenPort", &mut self.listen_port);
        section.number("cacheInvalidationPort", &mut self.invalidation_port);
        let mut token_file = String::new();
        section.text("cacheInvalidationTokenFile", &mut token_file);
        if !token_file.is_empty() {
            self.invalidation_token_file = Some(token_file.into());
        }
        let mut is_unregistered = !self.is_registered;
        section.flag("disableCreateMutatingWebhookConfig", &mut is_unregistered);
        self.is_registered = !is_unregistered;
        section.text("secretEnvVarPrefix", &mut self.injection.env_prefix);
        let (mut manager, mut managers) = (String::new(), Vec::new());
        section.text("secretManagerType", &mut manager);
        section.texts("secretManagerTypes", &mut managers);
        if managers.is_empty() && !manager.is_empty() {
            managers.push(manager);
        }
        for manager in managers {
            if !matches!(manager.as_str(), "Embedded" | "Global" | "4") {
                section.differs(
                    "secretManagerTypes",
                    format!("{manager} is passed over: {OTHER_MANAGERS}"),
                );
            }
        }
        section.section("embeddedSecretManagerConfig", |section| {
            self.read_embedded(section)
        });
        self.read_bindings(section);
        for key in [
            "globalSecretManagerConfig",
            "awsSecretManager",
            "gcpSecretManager",
            "azureSecretManager",
            "vaultSecretManager",
            "kubernetesSecretManager",
        ] {
            section.unsupported(key, OTHER_MANAGERS);
        }
        for key in ["localCert", "certDir"] {
            section.unsupported(
                key,
                "certificates are kept in the Secret and in memory, never in files",
            );
        }
        section.unsupported(
            "webhookTimeout",
            "upstream does not use it either; API servers wait 10 s",
        );
        section.unsupported(
            "metrics-prefix",
            "metrics have the names of the documentation",
        );
        section.unsupported("kubeClientConfig", "values are cached");
        section.unsupported(
            "namespaceSelector",
            "pods of all namespaces but kube-system that ask for secrets get them",
        );
    }

    /// Keys of our own: the peer believes the labels of every pod.
    fn read_bindings(&mut self, section: &mut Section<'_>) {
        section.text("organization", &mut self.bindings.organization);
        let table = &mut self.bindings.table;
        section.list("namespaces", |section| {
            let pattern = |text: &str| (!text.is_empty()).then(|| Pattern(text.to_owned()));
            let expected = "a name, in which * stands for any characters";
            let mut binding = ScopeBinding::default();
            section.required("namespace", &mut binding.namespace, expected, pattern);
            section.choice("organization", &mut binding.organization, expected, pattern);
            section.choice("project", &mut binding.project, expected, pattern);
            section.choice("domain", &mut binding.domain, expected, pattern);
            table.push(binding);
        });
    }

    /// The section `namespace_mapping`, which the peer's other components read too.
    pub(super) fn read_mapping(&mut self, section: &mut Section<'_>) {
        section.choice(
            "template",
            &mut self.bindings.template,
            "a text with {{ project }}, {{ domain }} or {{ org }}",
            NamespaceTemplate::parse,
        );
        for key in ["mapping", "templateData"] {
            section.unsupported(key, "namespaces follow from namespace_mapping.template");
        }
    }

    fn read_embedded(&mut self, section: &mut Section<'_>) {
        let mut kind = "K8s".to_owned();
        section.text("type", &mut kind);
        if !kind.eq_ignore_ascii_case("k8s") {
            section.differs("type", format!("{kind} is passed over: {OTHER_MANAGERS}"));
        }
        section.section("k8sConfig", |section| {
            section.text("namespace", &mut self.secrets_namespace);
            section.unsupported("kubeClientConfig", "values are cached");
        });
        section.section("fileMountInitContainer", |section| {
            section.text("image", &mut self.injection.image);
            section.text("containerName", &mut self.injection.container);
            let mut resources: Option<Value> = None;
            section.object("resources", &mut resources);
            if resources.is_some() {
                self.injection.resources = resources;
            }
        });
        for key in [
            "imagePullSecrets",
            "awsConfig",
            "gcpConfig",
            "azureConfig",
            "vaultConfig",
        ] {
            section.unsupported(key, OTHER_MANAGERS);
        }
    }
}
