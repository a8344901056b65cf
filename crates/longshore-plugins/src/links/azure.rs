//! Links to Azure's logs: the query travels packed at the end of the address.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use longshore_proto::flyteidl2::core::{TaskLog, task_log::MessageFormat};

use super::{AzureTemplate, Variables};

const NAME: &str = "Azure Logs";

/// One link for each address; none where the query cannot be packed, which memory alone can cause.
pub(super) fn links(
    template: &AzureTemplate,
    variables: &Variables,
    log_name: &str,
) -> Vec<TaskLog> {
    let default = default_query();
    let query = variables.fill(template.query.as_deref().unwrap_or(&default));
    let Some(packed) = pack(&query) else {
        return Vec::new();
    };
    let display_name = match template.link.display_name.as_str() {
        "" => NAME,
        name => name,
    };
    let links = template.link.uris.iter().map(|uri| TaskLog {
        uri: format!("{uri}{packed}"),
        name: format!("{display_name}{log_name}"),
        message_format: MessageFormat::Json.into(),
        ..TaskLog::default()
    });
    links.collect()
}

/// The lines of the container, from an hour before the pod to an hour after.
fn default_query() -> String {
    let bound = |name: &str, hours: i8, variable: &str| {
        format!("let {name} = datetime_add('hour', {hours}, datetime(\"{{{{.{variable}}}}}\"));\n")
    };
    let equal = |column: &str, variable: &str| format!(" and {column} == \"{{{{.{variable}}}}}\"");
    [
        bound("Start", -1, "podRFC3339StartTime"),
        bound("Finish", 1, "podRFC3339FinishTime"),
        "ContainerLogV2\n| where TimeGenerated between (Start .. Finish)\n".to_owned(),
        equal("ContainerName", "containerName"),
        equal("PodName", "podName"),
        equal("PodNamespace", "namespace"),
    ]
    .concat()
}

fn pack(query: &str) -> Option<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(query.as_bytes()).ok()?;
    let base64 = STANDARD.encode(encoder.finish().ok()?);
    Some(form_urlencoded::byte_serialize(base64.as_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::links::LinkTemplate;

    #[test]
    fn the_query_is_packed_with_its_variables_filled_in() {
        let mut variables = Variables::default();
        variables.pod("p", "n");
        let template = AzureTemplate {
            link: LinkTemplate::json("", "https://portal.test/query/".to_owned()),
            query: None,
        };
        let links = links(&template, &variables, " 1");
        assert_eq!(links[0].name, "Azure Logs 1");
        let packed = links[0]
            .uri
            .strip_prefix("https://portal.test/query/")
            .unwrap();
        let (base64, _) = form_urlencoded::parse(packed.as_bytes()).next().unwrap();
        let bytes = STANDARD.decode(base64.as_bytes()).unwrap();
        let mut query = String::new();
        let mut decoder = flate2::read::GzDecoder::new(bytes.as_slice());
        decoder.read_to_string(&mut query).unwrap();
        assert!(
            query.ends_with(" and PodName == \"p\" and PodNamespace == \"n\""),
            "{query}"
        );
        assert!(query.contains("{{.podRFC3339StartTime}}"), "{query}");
    }
}
