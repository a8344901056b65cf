//! What a plugin asks to know besides its resource: inputs, PodTemplates, head pods.

use longshore_core::{Asked, Seen, Unknown};
use longshore_plugins::pod_template_name;
use serde_json::Value;

use crate::{
    model::{ActionKey, Task},
    observe::Observer,
    questions::Known,
};

impl Observer {
    /// Reads what the resource of an attempt is built from. `Err` says what could not be read: then it is not built.
    pub(crate) fn learn_to_build(&self, task: &mut Task, known: Known<'_>) -> Result<(), Unknown> {
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
            let inputs = known.inputs();
            if let Asked::Answered { answer, .. } = &inputs {
                task.context.inputs = answer.as_deref().cloned();
            }
            task.inputs = without_answer(inputs);
        }
        let prefix = &task.context.paths.output_prefix;
        let has_directories = self.data.has_directories(prefix);
        task.directory = has_directories.then(|| known.directory(prefix));
        Ok(())
    }

    /// Reads what the resource of an attempt is judged by. `Err` says what could not be read: then it is not judged.
    pub(crate) fn learn_to_judge(
        &self,
        key: &ActionKey,
        task: &mut Task,
        resource: &Value,
    ) -> Result<(), Unknown> {
        let head = task.plugin.head_pod(&task.context, resource);
        self.heads.expect(key, head.as_ref());
        if let Some(head) = head {
            task.context.head_pod = match self.kinds.head(&task.context.namespace, &head) {
                Seen::Present(pod) => Some(pod),
                Seen::Absent => None,
                Seen::Unknown(why) => return Err(why),
            };
        }
        Ok(())
    }
}

/// Whether there is an answer, without it.
pub(crate) fn without_answer<T>(asked: Asked<T>) -> Asked<()> {
    match asked {
        Asked::NotAsked => Asked::NotAsked,
        Asked::AskedByAnother => Asked::AskedByAnother,
        Asked::UnderWay { since } => Asked::UnderWay { since },
        Asked::Answered { at, .. } => Asked::Answered { at, answer: () },
        Asked::Failed { at, why, message } => Asked::Failed { at, why, message },
    }
}
