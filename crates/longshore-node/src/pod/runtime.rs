//! The RuntimeClass of a pod: this node has one way to run pods.

use k8s_openapi::api::{core::v1::Pod, node::v1::RuntimeClass};
use kube::{Api, Client};

use crate::refusal::Refusal;

/// The handler that the runtimes of other nodes have where nobody configures one.
const HANDLER: &str = "runc";

/// Why the pod cannot be run as its RuntimeClass says; `None` = it can.
pub(crate) async fn refusal(client: &Client, pod: &Pod) -> Option<Refusal> {
    let spec = pod.spec.as_ref();
    let name = spec.and_then(|spec| spec.runtime_class_name.as_deref())?;
    let classes = Api::<RuntimeClass>::all(client.clone());
    let handler = match classes.get_opt(name).await {
        Ok(class) => class.map(|class| class.handler),
        Err(error) => {
            let message = format!("cannot read RuntimeClass {name:?}: {error}");
            return Some(Refusal::machine(message));
        }
    };
    of_handler(name, handler.as_deref())
}

/// A pod waits as on a kubelet that cannot make its sandbox: the class, or a node that has the handler, may come.
fn of_handler(class: &str, handler: Option<&str>) -> Option<Refusal> {
    let why = match handler {
        Some(HANDLER) => return None,
        Some(other) => format!(
            "no runtime for {other:?} is configured: this node runs pods of RuntimeClasses whose handler is {HANDLER:?}, \
             and of none"
        ),
        None => format!("RuntimeClass {class:?} not found"),
    };
    Some(Refusal::machine(format!(
        "failed to get sandbox runtime: {why}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_waits_for_a_runtime_that_this_node_has_not() {
        for (handler, expected) in [
            (Some("runc"), ""),
            (Some("kata"), "no runtime for \"kata\" is configured"),
            (None, "RuntimeClass \"c\" not found"),
        ] {
            let found = of_handler("c", handler);
            let message = found.as_ref().map_or("", |it| it.message.as_str());
            assert!(message.contains(expected), "{handler:?}: {message}");
            assert_eq!(message.is_empty(), expected.is_empty(), "{handler:?}");
            let event = found.map(|it| it.event);
            assert!(event.is_none_or(|it| it == "FailedCreatePodSandBox"));
        }
    }
}
