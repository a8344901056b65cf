//! The command line arguments of the components.

use std::path::Path;

use super::control_plane::Ports;

/// Keeps no promise about power cuts: the directory lives no longer than the cluster.
pub(super) fn etcd(folder: &Path, ports: &Ports) -> Vec<String> {
    let clients = format!("http://127.0.0.1:{}", ports.etcd);
    let peers = format!("http://127.0.0.1:{}", ports.etcd_peers);
    vec![
        "--name=etcd".to_owned(),
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=etcd={peers}"),
        "--log-level=error".to_owned(),
    ]
}

/// Without the admission of service accounts: nothing makes them, and pods do not need them here.
pub(super) fn apiserver(folder: &Path, ports: &Ports) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.apiserver),
        format!("--cert-dir={}", file("apiserver")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!(
            "--service-account-key-file={}",
            file("service-accounts.pub")
        ),
        format!(
            "--service-account-signing-key-file={}",
            file("service-accounts.key")
        ),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        // The client certificate for the logs of nodes, and their address: names of nodes are not names of hosts here.
        format!(
            "--kubelet-client-certificate={}",
            file("kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        // The credentials with which the API server calls webhooks.
        format!("--admission-control-config-file={}", file("admission.json")),
    ]
}

/// Each controller acts as its own service account, with the role that Kubernetes defines for it.
/// There are no nodes whose addresses would have to be handed out.
pub(super) fn controller_manager(folder: &Path, ports: &Ports) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut arguments = component(
        folder,
        "controller-manager.kubeconfig",
        ports.controller_manager,
    );
    arguments.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            file("service-accounts.key")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        "--controllers=*,-nodeipam,-node-route-controller,-cloud-node-lifecycle".to_owned(),
    ]);
    arguments
}

/// The scheduler.
pub(super) fn scheduler(folder: &Path, ports: &Ports) -> Vec<String> {
    component(folder, "scheduler.kubeconfig", ports.scheduler)
}

/// What both have in common; their own request limits are lifted, tests wait for them.
fn component(folder: &Path, kubeconfig: &str, port: u16) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let kubeconfig = file(kubeconfig);
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
    ]
}
