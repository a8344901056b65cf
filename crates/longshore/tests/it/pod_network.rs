//! Pods with a network of their own on `longshore standalone`, of root and of an ordinary user: they find each other and
//! the API server, and nothing of them is visible on the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, LogParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::wait::await_condition,
};
use longshore_api::node::LABEL_NODE_PROFILE;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::service_process::{Service, until};

/// The interpreter of the pods' programs.
const PYTHON: &str = "/usr/bin/python3";
/// Serves its name at a port of all its addresses, asks another pod at the same port for its name, and the API server
/// who this pod is, with the means that every pod finds. Prints the answers, and goes on serving.
const PROGRAM: &str = "\
import json, socket, ssl, sys, threading, time, urllib.request
port, name, peer = int(sys.argv[1]), sys.argv[2], sys.argv[3]
server = socket.create_server(('', port))
def serve():
    while True:
        stream, _ = server.accept()
        stream.sendall(name.encode())
        stream.close()
threading.Thread(target=serve, daemon=True).start()
def until(ask):
    while True:
        try:
            return ask()
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(0.1)
def ask_peer():
    with socket.create_connection((peer, port), 10) as stream:
        return stream.makefile().read()
def ask_who():
    folder = '/var/run/secrets/kubernetes.io/serviceaccount/'
    review = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}
    request = urllib.request.Request(
        'https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews',
        json.dumps(review).encode(),
        {'Authorization': 'Bearer ' + open(folder + 'token').read(), 'Content-Type': 'application/json'})
    trust = ssl.create_default_context(cafile=folder + 'ca.crt')
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
        return json.load(answer)['status']['userInfo']['username']
print('peer', until(ask_peer), flush=True)
print('user', until(ask_who), flush=True)
if len(sys.argv) == 4:
    time.sleep(1000)
";

/// What a pod does when it has its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    Serve,
    End,
}

/// A pod that serves its name at a port, and asks a Service at the same port.
pub(crate) fn talking(name: &str, port: u16, peer: &str, afterwards: Afterwards) -> Value {
    let mut command = vec![PYTHON, "-u", "-c", PROGRAM];
    let text = port.to_string();
    command.extend([text.as_str(), name, peer]);
    command.extend((afterwards == Afterwards::End).then_some("end"));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "any", "command": command}],
        },
    })
}

/// A Service in front of the pods with its name as their label.
pub(crate) fn service(name: &str, port: u16, cluster_ip: Option<&str>) -> Value {
    let mut spec = json!({"selector": {"app": name}, "ports": [{"port": port}]});
    if let Some(address) = cluster_ip {
        spec["clusterIP"] = json!(address);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// A client of the user who may do everything.
pub(crate) async fn client(service: &Service) -> Client {
    let kubeconfig = Kubeconfig::read_from(service.ready("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Creates an object.
pub(crate) async fn create(client: &Client, path: &str, object: &Value) -> kube::Result<Value> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    client.request(request.unwrap()).await
}

/// Waits for the account of the pods in `default`: no pod is made without it.
pub(crate) async fn until_account(client: &Client) {
    let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
    let exists = |account: Option<&ServiceAccount>| account.is_some();
    let found = await_condition(accounts, "default", exists);
    let found = tokio::time::timeout(Duration::from_secs(30), found).await;
    found.unwrap().unwrap();
}

/// Whether pods can have a network on this machine; it says so where not.
pub(crate) async fn can_have_network(client: &Client) -> bool {
    let nodes = Api::<Node>::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let profile = nodes.items[0].labels()[LABEL_NODE_PROFILE].clone();
    let can = profile != "none" && Path::new(PYTHON).exists();
    let verb = if can { "tested" } else { "SKIPPED" };
    println!("pod network: {verb} in profile {profile}");
    can
}

/// The addresses and interfaces of a network: that of this machine at `/proc/net`.
pub(crate) fn addresses(network: &Path) -> BTreeSet<String> {
    let read = |name: &str| fs::read_to_string(network.join(name)).unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut last = String::new();
    for line in read("fib_trie").lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            address.clone_into(&mut last);
        } else if line.contains("/32 host LOCAL") {
            found.insert(last.clone());
        }
    }
    let of_ipv6 = read("if_inet6");
    found.extend(of_ipv6.lines().map(str::to_owned));
    let interfaces = read("dev");
    let interfaces = interfaces.lines().filter_map(|line| line.split_once(':'));
    found.extend(interfaces.map(|(name, _)| name.trim().to_owned()));
    found
}

/// The TCP sockets that listen in the network of this machine: addresses by inode.
fn listeners() -> BTreeMap<String, String> {
    const LISTEN: &str = "0A";
    let mut found = BTreeMap::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.split_whitespace().collect();
            if columns[3] == LISTEN {
                found.insert(format!("socket:[{}]", columns[9]), columns[1].to_owned());
            }
        }
    }
    found
}

/// Those of them that processes of the service hold.
fn listeners_of(service: &Service) -> BTreeSet<String> {
    let all = listeners();
    let folders = service
        .all_processes()
        .into_iter()
        .filter_map(|id| fs::read_dir(format!("/proc/{id}/fd")).ok());
    let sockets = folders
        .flatten()
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    sockets
        .filter_map(|socket| all.get(socket.to_str()?).cloned())
        .collect()
}

/// A port that nobody has.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The addresses of this machine at which others could reach a port: loopback, and the outer one, where there is one.
fn own_addresses() -> Vec<IpAddr> {
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    // No packet leaves the machine.
    let outer = probe
        .connect("192.0.2.1:9")
        .and_then(|()| probe.local_addr());
    let mut all = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
    match outer {
        Ok(outer) => all.push(outer.ip()),
        Err(error) => println!("pod network: no outer address ({error})"),
    }
    all
}

/// Whether a pod has printed what [`PROGRAM`] prints when it has its answers.
pub(crate) async fn has_answers(client: &Client, pod: &str, peer: &str) -> bool {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let log = pods.logs(pod, &LogParams::default()).await;
    let log = log.unwrap_or_default();
    let expected = [
        format!("peer {peer}"),
        "user system:serviceaccount:default:default".to_owned(),
    ];
    expected.iter().all(|line| log.lines().any(|it| it == line))
}

/// Two pods at the same port: each asks the Service of the other, one with a cluster address and one without.
fn equal_ports_talk_and_nothing_is_visible(service: &Service) {
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(client(service));
    if !runtime.block_on(can_have_network(&client)) {
        return;
    }
    let port = free_port();
    let of_machine = Path::new("/proc/net");
    let before = (addresses(of_machine), listeners_of(service));
    assert!(!before.0.is_empty() && !before.1.is_empty(), "{before:?}");
    runtime.block_on(async {
        until_account(&client).await;
        let of_services = "/api/v1/namespaces/default/services";
        let one = self::service("one", port, None);
        let two = self::service("two", port, Some("None"));
        for object in [one, two] {
            create(&client, of_services, &object).await.unwrap();
        }
        for (name, peer) in [("one", "two"), ("two", "one")] {
            let pod = talking(name, port, peer, Afterwards::Serve);
            let path = "/api/v1/namespaces/default/pods";
            create(&client, path, &pod).await.unwrap();
        }
    });
    for (name, peer) in [("one", "two"), ("two", "one")] {
        until(&format!("pod {name} has its answers"), || {
            runtime.block_on(has_answers(&client, name, peer))
        });
    }
    let with_pods = (addresses(of_machine), listeners_of(service));
    assert_eq!(with_pods, before, "addresses, interfaces and listeners");
    let hexadecimal = format!(":{port:04X}");
    let all = listeners();
    let at_port = all.values().find(|it| it.ends_with(&hexadecimal));
    assert_eq!(at_port, None, "somebody listens at the port of the pods");
    for address in own_addresses() {
        let at = SocketAddr::new(address, port);
        let answer = TcpStream::connect_timeout(&at, Duration::from_secs(2));
        assert!(answer.is_err(), "{at} answers");
    }
    runtime.block_on(async {
        let pods = Api::<Pod>::default_namespaced(client.clone());
        for name in ["one", "two"] {
            pods.delete(name, &DeleteParams::default()).await.unwrap();
        }
    });
    until("no process of a pod is left", || service.n_processes() == 0);
}

#[test]
fn pods_with_equal_ports_talk_by_name_and_the_host_shows_nothing() {
    let dags = TempDir::new().unwrap();
    let service = Service::start(dags.path(), &["--pod-network"]);
    equal_ports_talk_and_nothing_is_visible(&service);
}

/// The user of the test is an ordinary one where it is not root.
#[test]
fn so_do_those_of_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let service = Service::start_as_nobody(&["--pod-network"]);
    equal_ports_talk_and_nothing_is_visible(&service);
}
