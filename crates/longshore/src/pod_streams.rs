//! Lets the embedded API server into the pods of its node.

use async_trait::async_trait;
use longshore_cluster::{PodConnection, PodStreams, Process, StreamError, StreamSet, TerminalSize};
use longshore_node::{Declared, Node};
use serde_json::Value;

/// The node's way into its pods, as the API server wants it.
pub(crate) struct NodeStreams(pub(crate) Node);

#[async_trait]
impl PodStreams for NodeStreams {
    async fn check(&self, pod: &Value, container: &str) -> Result<(), StreamError> {
        let checked = self
            .0
            .check_running(text(pod, "namespace"), text(pod, "name"), container);
        checked.map_err(|error| refusal(&error))
    }

    async fn exec(
        &self,
        pod: &Value,
        container: &str,
        command: Vec<String>,
        streams: StreamSet,
    ) -> Result<Process, StreamError> {
        let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
        let started = self
            .0
            .exec(namespace, name, container, command, wanted(streams));
        started.map(process).map_err(|error| refusal(&error))
    }

    async fn attach(
        &self,
        pod: &Value,
        container: &str,
        streams: StreamSet,
    ) -> Result<Process, StreamError> {
        let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
        let declared = declared(pod, container);
        let joined = self
            .0
            .attach(namespace, name, container, declared, wanted(streams))
            .await;
        joined.map(process).map_err(|error| refusal(&error))
    }

    async fn connect(&self, pod: &Value, port: u16) -> Result<PodConnection, StreamError> {
        let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
        match self.0.connect_to_pod(namespace, name, port).await {
            Ok(connection) => Ok(Box::new(connection)),
            Err(error) => Err(refusal(&error)),
        }
    }
}

fn text<'a>(pod: &'a Value, field: &str) -> &'a str {
    pod["metadata"][field].as_str().unwrap_or_default()
}

fn wanted(streams: StreamSet) -> longshore_node::StreamSet {
    let StreamSet {
        stdin,
        stdout,
        stderr,
        tty,
    } = streams;
    longshore_node::StreamSet {
        stdin,
        stdout,
        stderr,
        tty,
    }
}

fn process(process: longshore_node::Process) -> Process {
    let longshore_node::Process {
        stdin,
        stdout,
        stderr,
        resize,
        exit,
    } = process;
    let resize = resize.map(|resize| -> Box<dyn Fn(TerminalSize) + Send + Sync> {
        Box::new(move |size: TerminalSize| resize(size.width, size.height))
    });
    Process {
        stdin,
        stdout,
        stderr,
        resize,
        exit,
    }
}

/// What the specification of the pod says about the streams of a container.
fn declared(pod: &Value, container: &str) -> Declared {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut all = lists
        .iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten();
    let found = all.find(|it| it["name"] == container);
    let flag = |field: &str| found.is_some_and(|it| it[field] == true);
    Declared {
        stdin: flag("stdin"),
        stdin_once: flag("stdinOnce"),
        tty: flag("tty"),
    }
}

fn refusal(error: &longshore_node::StreamError) -> StreamError {
    use longshore_node::StreamError as Node;
    let text = error.to_string();
    match error {
        Node::NoPod { .. } => StreamError::NotFound(text),
        Node::NotRunning { .. } => StreamError::BadRequest(text),
        Node::Start { .. } => StreamError::Internal(text),
        Node::Connect { .. } => StreamError::Unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_declaration_is_that_of_the_container() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "init", "tty": true}],
            "containers": [{"name": "a"}, {"name": "b", "stdin": true, "stdinOnce": true}],
        }});
        for (container, stdin, stdin_once, tty) in [
            ("init", false, false, true),
            ("a", false, false, false),
            ("b", true, true, false),
            ("c", false, false, false),
        ] {
            let expected = Declared {
                stdin,
                stdin_once,
                tty,
            };
            assert_eq!(declared(&pod, container), expected, "{container}");
        }
    }
}
