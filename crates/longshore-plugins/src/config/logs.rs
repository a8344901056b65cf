//! Reads `plugins.logs`, and the sections `logs` of other plugins.

use longshore_proto::flyteidl2::core::task_log::{LinkType, MessageFormat};

use super::Section;
use crate::links::{
    AzureTemplate, CLOUDWATCH, KUBERNETES, KUBERNETES_URI, LinkTemplate, LogConfig, STACKDRIVER,
};

/// The whole section.
pub(crate) fn read(section: &mut Section<'_>, config: &mut LogConfig) {
    read_kubernetes(section, config);
    read_cloudwatch(section, config);
    read_stackdriver(section, config);
    section.list("azure-log-templates", |section| {
        let mut template = AzureTemplate {
            link: LinkTemplate::default(),
            query: None,
        };
        section.option("queryFormat", &mut template.query);
        read_link(section, &mut template.link);
        config.azure.push(template);
    });
    section.list("templates", |section| {
        let mut template = LinkTemplate::default();
        read_link(section, &mut template);
        config.templates.push(template);
    });
    section.sections("dynamic-log-links", |kind, section| {
        let mut template = LinkTemplate::default();
        read_link(section, &mut template);
        config.dynamic.insert(kind.to_owned(), template);
    });
}

/// One link.
pub(crate) fn read_link(section: &mut Section<'_>, link: &mut LinkTemplate) {
    section.text("displayName", &mut link.display_name);
    section.texts("templateUris", &mut link.uris);
    section.flag("showWhilePending", &mut link.show_while_pending);
    section.flag("hideOnceFinished", &mut link.hide_once_finished);
    let mut kind = String::new();
    section.text("linkType", &mut kind);
    link.link_type = LinkType::from_str_name(&kind.to_uppercase()).unwrap_or(LinkType::External);
    let mut format = String::new();
    section.text("messageFormat", &mut format);
    link.message_format = message_format(&format);
    section.unsupported("name", "the link has its display name");
    section.unsupported("scheme", "all variables are known in all links");
    section.unsupported("iconUri", "links have no icon");
    section.unsupported(
        "dynamicTemplateUris",
        "dynamic links are those of dynamic-log-links",
    );
}

/// By name, or by number.
fn message_format(text: &str) -> MessageFormat {
    let of_number = text
        .parse()
        .ok()
        .and_then(|number: i32| MessageFormat::try_from(number).ok());
    of_number
        .or_else(|| MessageFormat::from_str_name(&text.to_uppercase()))
        .unwrap_or(MessageFormat::Unknown)
}

fn read_kubernetes(section: &mut Section<'_>, config: &mut LogConfig) {
    let (mut is_enabled, mut uri, mut url) = (config.kubernetes.is_some(), None, None);
    section.flag("kubernetes-enabled", &mut is_enabled);
    section.option("kubernetes-template-uri", &mut uri);
    section.option("kubernetes-url", &mut url);
    let uri = uri.or_else(|| {
        let path = "#!/log/{{ .namespace }}/{{ .podName }}/pod?namespace={{ .namespace }}";
        url.map(|url| format!("{url}/{path}"))
    });
    let uri = uri.unwrap_or_else(|| KUBERNETES_URI.to_owned());
    config.kubernetes = is_enabled.then(|| LinkTemplate::json(KUBERNETES, uri));
}

fn read_cloudwatch(section: &mut Section<'_>, config: &mut LogConfig) {
    let (mut is_enabled, mut uri) = (false, None);
    let (mut region, mut group) = (String::new(), String::new());
    section.flag("cloudwatch-enabled", &mut is_enabled);
    section.option("cloudwatch-template-uri", &mut uri);
    section.text("cloudwatch-region", &mut region);
    section.text("cloudwatch-log-group", &mut group);
    let uri = uri.unwrap_or_else(|| {
        let stream = "var.log.containers.{{ .podName }}_{{ .namespace }}_{{ .containerName }}-{{ .containerId }}.log";
        let console = "https://console.aws.amazon.com/cloudwatch/home";
        format!("{console}?region={region}#logEventViewer:group={group};stream={stream}")
    });
    config.cloudwatch = is_enabled.then(|| LinkTemplate::json(CLOUDWATCH, uri));
}

fn read_stackdriver(section: &mut Section<'_>, config: &mut LogConfig) {
    let (mut is_enabled, mut uri) = (false, None);
    let (mut project, mut resource) = (String::new(), String::new());
    section.flag("stackdriver-enabled", &mut is_enabled);
    section.option("stackdriver-template-uri", &mut uri);
    section.text("gcp-project", &mut project);
    section.text("stackdriver-logresourcename", &mut resource);
    let uri = uri.unwrap_or_else(|| {
        let viewer = "https://console.cloud.google.com/logs/viewer";
        let page = format!("%2Flogs%2Fviewer%3Fproject%3D{project}");
        let filter = "resource.labels.pod_name%3D{{ .podName }}";
        format!("{viewer}?project={project}&angularJsUrl={page}&resource={resource}&advancedFilter={filter}")
    });
    config.stackdriver = is_enabled.then(|| LinkTemplate::json(STACKDRIVER, uri));
}
