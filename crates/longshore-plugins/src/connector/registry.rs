//! Which connector runs which task.

use std::collections::BTreeMap;

use longshore_proto::flyteidl2::connector::Connector;

use super::config::{ConnectorConfig, Deployment};
use crate::remote::{Addressee, Category, Teller};

/// The name of the default connector.
const DEFAULT: &str = "defaultConnector";
/// So many connectors that have not listed their task types are named at most.
const NAMED: usize = 3;

/// Connectors by the task types that they take, by their last lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connectors {
    /// By project, domain, task type and version, to the name of the deployment.
    by_category: BTreeMap<(String, String, String, i32), String>,
    /// Those that may take any task of their scope, in the order of their names.
    unlisted: Vec<Unlisted>,
}

/// A connector that has not listed its task types yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unlisted {
    /// Its name in the configuration.
    name: String,
    /// The project whose tasks it takes; empty for all.
    project: String,
    /// The domain whose tasks it takes; empty for all.
    domain: String,
    /// What is known of its list, in words.
    why: String,
}

/// The connector of a task, as far as the lists say.
#[derive(Clone, Debug, PartialEq)]
pub enum Route<'a> {
    /// This one.
    To(Teller, &'a Deployment),
    /// None: why, in words.
    Nobody(String),
    /// Perhaps one that has not listed its task types yet: which one, in words.
    Unlisted(String),
}

/// Whether a connector takes a task type by its own list, or by `connectorForTaskTypes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// One does.
    Yes,
    /// None does.
    No,
    /// Perhaps one that has not listed its task types yet: which one, in words.
    Unknown(String),
}

/// How narrow a scope is that a task is in: the narrowest one is the least.
type Rank = u8;

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

    /// Records that a deployment has not listed its task types yet.
    pub fn not_heard(&mut self, name: &str, deployment: &Deployment, why: &str) {
        self.unlisted.push(Unlisted {
            name: name.to_owned(),
            project: deployment.project.clone(),
            domain: deployment.domain.clone(),
            why: why.to_owned(),
        });
    }

    /// The connector of a task: the one that has its job, by the record; else the configured one for its type; else the one
    /// that lists it for its project and domain, for its domain, for all; else the default one.
    ///
    /// A connector that lists the type goes before those that have not listed theirs yet, unless one of them is of a
    /// narrower scope. A job whose connector is not on record is that of the only connector that may have begun it.
    pub fn of<'a>(&self, to: &Addressee, config: &'a ConnectorConfig) -> Route<'a> {
        let category = &to.category;
        let on_record = to.connector.as_deref();
        let on_record = on_record.and_then(|name| config.deployment(name));
        if let Some((teller, deployment)) = on_record.or_else(|| config.configured(category)) {
            return Route::To(teller, deployment);
        }
        let heard = self.heard_of(category);
        let waited_for = self.unlisted_before(category, heard.map(|(rank, _)| rank));
        let heard = heard.and_then(|(_, name)| config.deployment(name));
        let default = config.deployment(DEFAULT);
        let fallback = heard.or(default);
        let is_fallback =
            |it: &Unlisted| fallback.as_ref().is_some_and(|(by, _)| by.name == it.name);
        let only = match waited_for.as_slice() {
            // Whatever the default connector lists: it takes what no other one does.
            [one] if is_fallback(one) => fallback,
            [one] if fallback.is_none() && to.is_begun => config.deployment(&one.name),
            [] => fallback,
            unlisted => return Route::Unlisted(in_words(unlisted)),
        };
        if let Some((teller, deployment)) = only {
            return Route::To(teller, deployment);
        }
        let (task_type, version) = (&category.task_type, category.version);
        Route::Nobody(format!(
            "no connector takes task type {task_type:?} in version {version}, and there is no default connector"
        ))
    }

    /// Whether a connector takes tasks of this category by its own list, or by `connectorForTaskTypes`.
    pub fn lists(&self, category: &Category, config: &ConnectorConfig) -> Listed {
        if self.heard_of(category).is_some() || config.configured(category).is_some() {
            return Listed::Yes;
        }
        match self.unlisted_before(category, None).as_slice() {
            [] => Listed::No,
            unlisted => Listed::Unknown(in_words(unlisted)),
        }
    }

    /// The connector that lists a category for the narrowest scope.
    fn heard_of(&self, category: &Category) -> Option<(Rank, &str)> {
        let scopes = [
            (category.project.as_str(), category.domain.as_str()),
            ("", &category.domain),
            ("", ""),
        ];
        let names = scopes.into_iter().map(|(project, domain)| {
            let key = (
                project.to_owned(),
                domain.to_owned(),
                category.task_type.clone(),
                category.version,
            );
            self.by_category.get(&key).map(String::as_str)
        });
        let mut ranked = (0..).zip(names);
        ranked.find_map(|(rank, name)| Some((rank, name?)))
    }

    /// The connectors that have not listed their task types yet, and would take a task of this category before the one that
    /// lists it for a scope of this rank.
    fn unlisted_before(&self, category: &Category, heard: Option<Rank>) -> Vec<&Unlisted> {
        let unlisted = self.unlisted.iter();
        let may_take = |it: &&Unlisted| {
            let own = it.rank_of(category);
            own.is_some_and(|own| heard.is_none_or(|heard| own < heard))
        };
        unlisted.filter(may_take).collect()
    }
}

impl Unlisted {
    /// How narrow the scope is for which it takes a category; `None` where it does not.
    fn rank_of(&self, category: &Category) -> Option<Rank> {
        let (project, domain) = (self.project.as_str(), self.domain.as_str());
        if project == category.project && domain == category.domain {
            Some(0)
        } else if project.is_empty() && domain == category.domain {
            Some(1)
        } else if project.is_empty() && domain.is_empty() {
            Some(2)
        } else {
            None
        }
    }
}

/// Which connectors have not listed their task types, and what is known of that.
fn in_words(unlisted: &[&Unlisted]) -> String {
    let words = unlisted.iter().take(NAMED).map(|it| {
        let Unlisted { name, why, .. } = it;
        format!("connector {name} may take it, and has not listed its task types yet: {why}")
    });
    let words: Vec<String> = words.collect();
    let more = match unlisted.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    format!("{}{more}", words.join("; "))
}

impl ConnectorConfig {
    /// The connector that `connectorForTaskTypes` names for a category.
    fn configured(&self, category: &Category) -> Option<(Teller, &Deployment)> {
        let name = self.for_task_types.get(&category.task_type)?;
        self.deployment(name)
    }

    /// A deployment by its name.
    fn deployment(&self, name: &str) -> Option<(Teller, &Deployment)> {
        let connector = self.connectors.get(name).map(|found| (found, false));
        let app = || self.apps.get(name).map(|found| (found, true));
        let default = || {
            let default = &self.default_connector;
            let is_default = name == DEFAULT && !default.endpoint.is_empty();
            is_default.then_some((default, false))
        };
        let (found, is_app) = connector.or_else(app).or_else(default)?;
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

#[cfg(test)]
mod tests;
