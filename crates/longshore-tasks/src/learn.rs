//! What a plugin asks to know besides its resource: inputs, PodTemplates, head pods, error files.

use longshore_core::Seen;
use longshore_plugins::{ErrorFile, pod_template_name};
use serde_json::Value;

use crate::{
    data::{Outcome, Owed},
    model::{ActionKey, Task},
    observe::Observer,
};

impl Observer {
    /// Reads what the resource of an attempt is built from. `Err` says what could not be read: then it is not built.
    pub(crate) async fn learn_to_build(&self, task: &mut Task) -> Result<(), String> {
        let context = &mut task.context;
        context.takes_pod_templates = self.kinds.takes_pod_templates(task.plugin.resource());
        if let Some(name) = pod_template_name(&context.template, &self.config.k8s) {
            context.pod_template = match self.pod_templates.get(&context.namespace, name) {
                Seen::Present(template) => Some(template),
                Seen::Absent => None,
                Seen::Unknown(why) => return Err(why),
            };
        }
        if task.plugin.needs_inputs(&task.context) {
            let inputs = self.data.inputs(&task.context.paths.input).await;
            task.context.inputs = inputs.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads what the resource of an attempt is judged by. `Err` says what could not be read: then it is not judged.
    pub(crate) async fn learn_to_judge(
        &self,
        key: &ActionKey,
        task: &mut Task,
        resource: &Value,
    ) -> Result<(), String> {
        let head = task.plugin.head_pod(&task.context, resource);
        self.heads.expect(key, head.as_ref());
        if let Some(head) = head {
            task.context.head_pod = match self.kinds.head(&task.context.namespace, &head) {
                Seen::Present(pod) => Some(pod),
                Seen::Absent => None,
                Seen::Unknown(why) => return Err(why),
            };
        }
        if task.plugin.needs_error_file(resource) {
            let prefix = &task.context.paths.output_prefix;
            // Only whether there is an error counts, so nothing is owed.
            let left = self.data.outcome(prefix, Owed::Nothing).await;
            task.context.error_file = match left.map_err(|error| error.to_string())? {
                Outcome::Failed { is_recoverable, .. } => ErrorFile::Present { is_recoverable },
                Outcome::Complete | Outcome::Incomplete(_) => ErrorFile::Absent,
            };
        }
        Ok(())
    }
}
