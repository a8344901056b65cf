//! Which plugin runs a task, where connectors say that: they list the task types that they take.

use longshore_plugins::{Addressee, Category, Launch, Listed, PluginState, Runner, TaskContext};

use super::Observer;
use crate::{model::Action, remote::stored};

/// What runs a task.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) runner: Runner,
    /// The connectors that have to list their task types before its next step, in words.
    pub(super) unlisted: Option<String>,
    /// The host of the questions to its connector.
    pub(super) host: String,
}

impl Observer {
    /// The plugin of a task, and its connector as far as that is known.
    ///
    /// A connector runs what it lists where neither a plugin nor the configuration names the task type. What has begun goes
    /// on with its plugin, whatever is listed by now.
    pub(super) fn chosen(&self, runner: Runner, context: &TaskContext, action: &Action) -> Chosen {
        let status = &action.status;
        let state = stored(status);
        let (runner, unlisted) = match self.plugins.of_connectors(&action.spec.task_type) {
            Some(connectors) if connectors.has_begun(state) => (Runner::Remote(connectors), None),
            Some(connectors) if !status.is_terminal() && !is_launched(action) => {
                match self.connectors.lists(&Category::of(context)) {
                    Listed::Yes => (Runner::Remote(connectors), None),
                    Listed::No => (runner, None),
                    // Nothing is made of it before that is known: it may be no pod.
                    Listed::Unknown(words) => (Runner::Remote(connectors), Some(words)),
                }
            }
            Some(_) | None => (runner, None),
        };
        let Runner::Remote(plugin) = &runner else {
            return Chosen {
                runner,
                unlisted: None,
                host: String::new(),
            };
        };
        let addressee = plugin.addressee(context, state);
        let addressee = addressee.filter(|_| !status.is_terminal());
        let awaited = || self.connectors.awaits(addressee.as_ref()?);
        let unlisted = unlisted.or_else(awaited);
        // Of a job that is being begun, no more than its category is known.
        let to = addressee.unwrap_or_else(|| Addressee {
            category: Category::of(context),
            ..Addressee::default()
        });
        Chosen {
            runner,
            unlisted,
            host: self.connectors.host(&to),
        }
    }
}

/// Whether a resource of the attempt is on record.
fn is_launched(action: &Action) -> bool {
    let status = &action.status;
    let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
    state.is_ok_and(|state| state.launch == Launch::Started)
}
