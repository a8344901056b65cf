//! The ports of the host that pods of this node take for themselves. No two pods have the same: a kubelet rejects the later
//! one, where nothing else has kept it from the node.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use longshore_k8s::HostPort;

use crate::refusal::Refusal;

/// `status.reason` of a rejected pod.
const REASON: &str = "NodePorts";
const MESSAGE: &str =
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

/// The taken ports, by the uid of the pod. Most pods take none.
#[derive(Debug, Default)]
pub(crate) struct HostPorts(Mutex<BTreeMap<String, Vec<HostPort>>>);

impl HostPorts {
    /// Takes the ports of a pod that has begun, whoever else has them.
    pub(crate) fn keep(&self, uid: &str, pod: &Pod) {
        let ports = of(pod);
        if !ports.is_empty() {
            self.taken().insert(uid.to_owned(), ports);
        }
    }

    /// Takes the ports of a new pod, or says why it cannot have them.
    pub(crate) fn take(&self, uid: &str, pod: &Pod) -> Result<(), Refusal> {
        let ports = of(pod);
        if ports.is_empty() {
            return Ok(());
        }
        let mut taken = self.taken();
        let mut others = taken.iter().filter(|(other, _)| *other != uid);
        let clashes = |port: &HostPort| ports.iter().any(|own| own.clashes_with(port));
        if others.any(|(_, ports)| ports.iter().any(clashes)) {
            return Err(Refusal::rejection(REASON, MESSAGE));
        }
        taken.insert(uid.to_owned(), ports);
        Ok(())
    }

    /// Gives back the ports of a pod.
    pub(crate) fn release(&self, uid: &str) {
        self.taken().remove(uid);
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, Vec<HostPort>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports of its containers and sidecars. On the network of the host, the API server has made each port of a container
/// one of the node.
fn of(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&spec.containers).flat_map(|it| &it.ports);
    let read = |port: &ContainerPort| {
        let (ip, protocol) = (port.host_ip.as_deref(), port.protocol.as_deref());
        HostPort::read(ip, protocol, port.host_port)
    };
    ports.flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(containers: &Value) -> Pod {
        let ports = |of: &Value| json!({"name": "c", "ports": of});
        let containers = containers.as_array().unwrap().iter().map(ports);
        let containers: Vec<Value> = containers.collect();
        from_value(json!({"spec": {"containers": containers}})).unwrap()
    }

    #[test]
    fn a_pod_is_rejected_whose_port_another_pod_has() {
        let port = json!({"containerPort": 1, "hostPort": 80});
        let local = json!({"containerPort": 1, "hostPort": 80, "hostIP": "127.0.0.1"});
        let udp = json!({"containerPort": 1, "hostPort": 80, "protocol": "UDP"});
        let own = json!({"containerPort": 80});
        for (first, second, is_taken) in [
            (json!([[port]]), json!([[port]]), true),
            (json!([[port]]), json!([[own], [local]]), true),
            (json!([[own], [own, local]]), json!([[port]]), true),
            (json!([[port]]), json!([[udp, own]]), false),
            (json!([[own]]), json!([[own]]), false),
            (json!([[own]]), json!([[port]]), false),
        ] {
            let ports = HostPorts::default();
            assert_eq!(ports.take("first", &pod(&first)), Ok(()));
            let expected = if is_taken {
                Err(Refusal::rejection(REASON, MESSAGE))
            } else {
                Ok(())
            };
            let second = pod(&second);
            assert_eq!(
                ports.take("second", &second),
                expected,
                "{first} {second:?}"
            );
            ports.release("first");
            assert_eq!(ports.take("second", &second), Ok(()), "{first} {second:?}");
        }
    }

    #[test]
    fn a_pod_that_has_begun_keeps_its_ports_and_its_own_are_no_clash() {
        let ports = HostPorts::default();
        let pod = pod(&json!([[{"containerPort": 1, "hostPort": 80}]]));
        ports.keep("first", &pod);
        ports.keep("second", &pod);
        assert!(ports.take("third", &pod).is_err());
        ports.release("first");
        assert!(ports.take("third", &pod).is_err());
        assert_eq!(ports.take("second", &pod), Ok(()));
    }

    #[test]
    fn init_containers_take_ports_only_where_they_run_beside_the_others() {
        for (policy, n_ports) in [(json!("Always"), 2), (Value::Null, 1)] {
            let ports = |number: u16| json!([{"containerPort": 1, "hostPort": number}]);
            let pod = from_value(json!({"spec": {
                "initContainers": [{"name": "i", "restartPolicy": policy, "ports": ports(80)}],
                "containers": [{"name": "c", "ports": ports(81)}],
            }}));
            assert_eq!(of(&pod.unwrap()).len(), n_ports, "{policy}");
        }
    }
}
