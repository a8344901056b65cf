//! Links to logs and dashboards of a task, made from templates (task action spec §14).

mod azure;
mod config;
mod variables;

use longshore_proto::flyteidl2::core::{
    TaskLog, TaskTemplate,
    task_log::{LinkType, MessageFormat},
};

pub use config::{AzureTemplate, LinkTemplate, LogConfig};
pub(crate) use config::{CLOUDWATCH, KUBERNETES, KUBERNETES_URI, STACKDRIVER};
pub(crate) use variables::Variables;

/// The kind of dynamic link that a task gets which serves an editor.
const EDITOR: &str = "vscode";
/// Key of a template's config: the kinds of dynamic links that the task wants, with commas between.
const LINK_TYPE: &str = "link_type";

impl LogConfig {
    /// The links, in upstream's order: the task's own, the configured ones, and the dynamic ones
    /// that it requests. `log_name` is added to their names, to distinguish the pods of a task.
    pub(crate) fn links(
        &self,
        template: &TaskTemplate,
        variables: &Variables,
        log_name: &str,
        serves_editor: bool,
    ) -> Vec<TaskLog> {
        let mut links = links_of_template(template, variables, log_name);
        let first = [&self.kubernetes, &self.cloudwatch, &self.stackdriver];
        for template in first.into_iter().flatten() {
            links.extend(template.links(variables, log_name));
        }
        for template in &self.azure {
            links.extend(azure::links(template, variables, log_name));
        }
        for template in &self.templates {
            links.extend(template.links(variables, log_name));
        }
        for kind in dynamic_kinds(template, serves_editor) {
            if let Some(link) = self.dynamic.get(kind) {
                links.extend(link.dynamic_links(kind, template, variables, log_name));
            }
        }
        links
    }
}

impl LinkTemplate {
    /// One link for each address.
    pub(crate) fn links(&self, variables: &Variables, log_name: &str) -> Vec<TaskLog> {
        let name = variables.fill(&self.display_name) + &variables.fill(log_name);
        self.uris
            .iter()
            .map(|uri| self.link(variables.fill(uri), name.clone()))
            .collect()
    }

    fn dynamic_links(
        &self,
        kind: &str,
        template: &TaskTemplate,
        variables: &Variables,
        log_name: &str,
    ) -> Vec<TaskLog> {
        let mut variables = variables.clone();
        for (key, value) in &template.config {
            variables.set(&format!("taskConfig.{key}"), value);
        }
        let links = self.uris.iter().map(|uri| {
            let mut link = self.link(
                variables.fill(uri),
                format!("{}{log_name}", self.display_name),
            );
            link.set_message_format(MessageFormat::Json);
            if kind == EDITOR {
                link.set_link_type(LinkType::Ide);
            }
            link
        });
        links.collect()
    }

    fn link(&self, uri: String, name: String) -> TaskLog {
        TaskLog {
            uri,
            name,
            message_format: self.message_format.into(),
            show_while_pending: self.show_while_pending,
            hide_once_finished: self.hide_once_finished,
            link_type: self.link_type.into(),
            ready: true,
            ..TaskLog::default()
        }
    }
}

/// What the author of the task wants to be shown.
fn links_of_template(
    template: &TaskTemplate,
    variables: &Variables,
    log_name: &str,
) -> Vec<TaskLog> {
    let metadata = template.metadata.as_ref();
    let own = metadata.map_or(&[][..], |metadata| &metadata.log_links);
    own.iter()
        .flat_map(|link| {
            let own = LinkTemplate {
                display_name: link.name.clone(),
                uris: vec![link.uri.clone()],
                message_format: link.message_format(),
                link_type: LinkType::Dashboard,
                ..LinkTemplate::default()
            };
            own.links(variables, log_name)
        })
        .collect()
}

/// Sorted, each once.
fn dynamic_kinds(template: &TaskTemplate, serves_editor: bool) -> Vec<&str> {
    let asked_for = template.config.get(LINK_TYPE).map_or("", String::as_str);
    let mut kinds: Vec<&str> = asked_for
        .split(',')
        .filter(|kind| !kind.is_empty())
        .collect();
    if serves_editor {
        kinds.push(EDITOR);
    }
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests;
