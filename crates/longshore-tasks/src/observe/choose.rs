//! Which plugin runs a task, where connectors say that: they list the task types that they take.

use longshore_plugins::{Category, Launch, Listed, PluginState, Runner, TaskContext};

use super::Observer;
use crate::{model::Action, remote::stored};

impl Observer {
    /// The plugin of a task, and the connectors that have to list their task types before its next step, in words.
    ///
    /// A connector runs what it lists where neither a plugin nor the configuration names the task type. What has begun goes
    /// on with its plugin, whatever is listed by now.
    pub(super) fn chosen(
        &self,
        runner: Runner,
        context: &TaskContext,
        action: &Action,
    ) -> (Runner, Option<String>) {
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
            return (runner, None);
        };
        let addressee = plugin.addressee(context, state);
        let addressee = addressee.filter(|_| !status.is_terminal());
        let unlisted = unlisted.or_else(|| addressee.and_then(|to| self.connectors.awaits(&to)));
        (runner, unlisted)
    }
}

/// Whether a resource of the attempt is on record.
fn is_launched(action: &Action) -> bool {
    let status = &action.status;
    let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
    state.is_ok_and(|state| state.launch == Launch::Started)
}
