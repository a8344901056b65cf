//! What a plugin asks to know besides its resource: inputs, PodTemplates, head pods.

use jiff::Timestamp;
use longshore_core::{Seen, Unknown};
use longshore_plugins::pod_template_name;
use serde_json::Value;

use crate::{
    model::{ActionKey, Obstacle, ObstacleKind, Task},
    observe::Observer,
};

impl Observer {
    /// Reads what the resource of an attempt is built from. `Err` says what could not be read: then it is not built.
    pub(crate) async fn learn_to_build(
        &self,
        task: &mut Task,
        now: Timestamp,
    ) -> Result<(), Unknown> {
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
            match self.data.inputs(&task.context.paths.input).await {
                Ok(inputs) => task.context.inputs = inputs,
                Err(error) => {
                    let (since, kind) = (now, ObstacleKind::NoInputs(error.why()));
                    task.obstacle = Some(Obstacle { since, kind });
                }
            }
        }
        let prefix = &task.context.paths.output_prefix;
        task.lacks_directory = self.data.lacks_directory(prefix).await;
        Ok(())
    }

    /// Reads what the resource of an attempt is judged by. `Err` says what could not be read: then it is not judged.
    pub(crate) async fn learn_to_judge(
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
