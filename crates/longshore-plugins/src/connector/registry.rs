//! Which connector runs which task.

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::connector::Connector;

use super::config::{ConnectorConfig, Deployment};
use crate::remote::{Category, Teller};

/// Connectors by the task types that they take, by their last answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connectors {
    /// By project, domain, task type and version, to the name of the deployment.
    by_category: BTreeMap<(String, String, String, i32), String>,
}

impl Connectors {
    /// Records the task types that a deployment takes. Of several deployments, the first one recorded has a task type.
    pub fn heard(&mut self, name: &str, deployment: &Deployment, connectors: &[Connector]) {
        for category in connectors.iter().flat_map(|c| &c.supported_task_categories) {
            let key = (
                deployment.project.clone(),
                deployment.domain.clone(),
                category.name.clone(),
                category.version,
            );
            self.by_category
                .entry(key)
                .or_insert_with(|| name.to_owned());
        }
    }

    /// The connector of a task: of its project and domain, of its domain, of all; else the configured one for its type,
    /// else the default one.
    ///
    /// # Errors
    /// What no connector takes.
    pub fn of<'a>(
        &self,
        category: &Category,
        config: &'a ConnectorConfig,
    ) -> Result<(Teller, &'a Deployment), String> {
        let (task_type, version) = (&category.task_type, category.version);
        let scopes = [
            (category.project.as_str(), category.domain.as_str()),
            ("", &category.domain),
            ("", ""),
        ];
        let heard = scopes.into_iter().find_map(|(project, domain)| {
            let key = (
                project.to_owned(),
                domain.to_owned(),
                task_type.clone(),
                version,
            );
            self.by_category.get(&key)
        });
        let name = config.for_task_types.get(task_type).or(heard);
        if let Some(found) = name.and_then(|name| config.deployment(name)) {
            return Ok(found);
        }
        let default = &config.default_connector;
        if default.endpoint.is_empty() {
            Err(format!(
                "no connector takes task type {task_type:?} in version {version}, and there is no default connector"
            ))
        } else {
            Ok((teller("defaultConnector", default, false), default))
        }
    }
}

impl ConnectorConfig {
    /// A deployment by its name.
    fn deployment(&self, name: &str) -> Option<(Teller, &Deployment)> {
        let connector = self.connectors.get(name).map(|found| (found, false));
        let (found, is_app) =
            connector.or_else(|| self.apps.get(name).map(|found| (found, true)))?;
        Some((teller(name, found, is_app), found))
    }
}

fn teller(name: &str, deployment: &Deployment, is_app: bool) -> Teller {
    Teller {
        name: name.to_owned(),
        endpoint: deployment.endpoint.clone(),
        is_app,
    }
}
