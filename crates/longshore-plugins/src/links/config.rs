//! The configuration of links: `plugins.logs`, and the sections `logs` of other plugins.

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::core::task_log::{LinkType, MessageFormat};

/// Where the logs of tasks can be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `kubernetes-enabled`, `kubernetes-template-uri`, `kubernetes-url`. Default: a dashboard on port 30082.
    pub kubernetes: Option<LinkTemplate>,
    /// `cloudwatch-enabled`, `cloudwatch-template-uri` or region and log group. Default: none.
    pub cloudwatch: Option<LinkTemplate>,
    /// `stackdriver-enabled`, `stackdriver-template-uri` or project and resource name. Default: none.
    pub stackdriver: Option<LinkTemplate>,
    /// `azure-log-templates`.
    pub azure: Vec<AzureTemplate>,
    /// `templates`: the configured links.
    pub templates: Vec<LinkTemplate>,
    /// `dynamic-log-links`: by kind, for tasks that ask for them.
    pub dynamic: BTreeMap<String, LinkTemplate>,
}

/// A link, with variables in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTemplate {
    /// `displayName`.
    pub display_name: String,
    /// `templateUris`.
    pub uris: Vec<String>,
    /// `messageFormat`: of what is behind the link.
    pub message_format: MessageFormat,
    /// `linkType`: what the link leads to.
    pub link_type: LinkType,
    /// `showWhilePending`: whether it can be looked at before the task runs.
    pub show_while_pending: bool,
    /// `hideOnceFinished`: whether there is nothing to see after its end.
    pub hide_once_finished: bool,
}

/// A link to Azure's logs, whose query is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureTemplate {
    /// Name and addresses, to which the query is added.
    pub link: LinkTemplate,
    /// `queryFormat`; `None` selects the lines of the container around the time of the pod.
    pub query: Option<String>,
}

/// Upstream's names of the links that have a switch of their own.
pub(crate) const KUBERNETES: &str = "Kubernetes Logs";
pub(crate) const CLOUDWATCH: &str = "Cloudwatch Logs";
pub(crate) const STACKDRIVER: &str = "Google Cloud Logs";

/// Where upstream's own dashboard is.
pub(crate) const KUBERNETES_URI: &str =
    "http://localhost:30082/#!/log/{{ .namespace }}/{{ .podName }}/pod?namespace={{ .namespace }}";

impl LogConfig {
    /// No links at all.
    pub(crate) const NONE: Self = Self {
        kubernetes: None,
        cloudwatch: None,
        stackdriver: None,
        azure: Vec::new(),
        templates: Vec::new(),
        dynamic: BTreeMap::new(),
    };
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            kubernetes: Some(LinkTemplate::json(KUBERNETES, KUBERNETES_URI.to_owned())),
            ..Self::NONE
        }
    }
}

impl LinkTemplate {
    /// A link to lines of JSON, as upstream's own are.
    pub(crate) fn json(display_name: &str, uri: String) -> Self {
        Self {
            display_name: display_name.to_owned(),
            uris: vec![uri],
            message_format: MessageFormat::Json,
            ..Self::default()
        }
    }
}

impl Default for LinkTemplate {
    fn default() -> Self {
        Self {
            display_name: String::new(),
            uris: Vec::new(),
            message_format: MessageFormat::Unknown,
            link_type: LinkType::External,
            show_while_pending: false,
            hide_once_finished: false,
        }
    }
}
