//! Pods that have a network of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddrV4,
    path::Path,
};

use k8s_openapi::api::core::v1::{Pod, Service};
use longshore_node::{ImageMap, LogOptions, NodeConfig, PodsLifetime, Profile, StreamSet};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
};

use crate::{
    node_rig::{Rig, RunningNode, is, script},
    restarts::{parent_of, shim_of},
    shim_rig,
};

/// Images by what their entry says, with the port of a server on the host.
fn images(rig: &Rig, host_port: u16) -> ImageMap {
    let path = rig.path().join("images.yaml");
    let entries = format!(
        "pod: {{network: pod, hostPorts: [{host_port}]}}\nopen: {{network: pod, egress: host}}\n"
    );
    std::fs::write(&path, entries).expect("written");
    ImageMap::load(&path).expect("an image map")
}

/// The profiles that can make networks here, for a machine that has the language of the pods' programs.
pub(crate) fn profiles() -> Vec<Profile> {
    if !Path::new("/usr/bin/python3").exists() {
        println!("SKIPPED: this machine has no Python");
        return Vec::new();
    }
    let profiles = shim_rig::Profile::available().into_iter();
    let profiles = profiles.filter_map(|it| match it {
        shim_rig::Profile::Full => Some(Profile::Full),
        shim_rig::Profile::User => Some(Profile::User),
        shim_rig::Profile::None => None,
    });
    profiles.collect()
}

pub(crate) fn config(
    rig: &Rig,
    profile: Profile,
    lifetime: PodsLifetime,
    host_port: u16,
) -> NodeConfig {
    NodeConfig {
        profile: Some(profile),
        images: images(rig, host_port),
        ..rig.config(lifetime)
    }
}

/// A pod spec that runs a program in Python.
pub(crate) fn python(image: &str, program: &str) -> Value {
    let mut spec = script("");
    spec["containers"][0]["image"] = json!(image);
    spec["containers"][0]["command"] = json!(["/usr/bin/python3", "-u", "-c", program]);
    spec
}

/// A pod that greets everybody who connects to its port 80, or from inside of it to 81, and is ready then.
pub(crate) fn greeter(name: &str) -> Value {
    let program = format!(
        "import select, socket\n\
         servers = [socket.create_server(at) for at in [('', 80), ('127.0.0.1', 81)]]\n\
         while True:\n    for s in select.select(servers, [], [])[0]:\n        c, _ = s.accept()\n        \
         c.sendall(b'{name}')\n        c.close()\n"
    );
    let mut spec = python("pod", &program);
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 10});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}}, "spec": spec,
    })
}

pub(crate) fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// Asks each of the servers until it answers, and prints the answers.
pub(crate) fn asking(servers: &[(&str, u16)]) -> String {
    let list: Vec<String> = servers
        .iter()
        .map(|(host, port)| format!("('{host}', {port})"))
        .collect();
    format!(
        "import socket, time\n\
         for at in [{}]:\n    while True:\n        try:\n            c = socket.create_connection(at, 10)\n            \
         break\n        except OSError:\n            time.sleep(0.05)\n    print(at[0], c.makefile().read())\n",
        list.join(", ")
    )
}

/// Greets everybody who connects.
async fn greet(listener: TcpListener, greeting: &'static str) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(greeting.as_bytes()).await.expect("greets");
    }
}

async fn greeting(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("a greeting");
    text
}

fn interfaces() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/dev").expect("the interfaces");
    let names = table.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

#[tokio::test]
async fn pods_with_equal_ports_find_each_other_and_the_api_server_by_name() {
    for profile in profiles() {
        let (before, rig) = (interfaces(), Rig::new());
        let api_server = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let at = api_server.local_addr().expect("an address");
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        node.node.set_api_server(at);
        let serving = tokio::spawn(greet(api_server, "api"));
        let ports = json!([{"port": 8000, "targetPort": 80}]);
        let one = json!({"selector": {"app": "one"}, "clusterIP": "None"});
        let two = json!({"selector": {"app": "two"}, "clusterIP": "10.96.7.8", "ports": ports});
        rig.create::<Service>(service("one", &one)).await;
        rig.create::<Service>(service("two", &two)).await;
        for name in ["one", "two"] {
            rig.create::<Pod>(greeter(name)).await;
        }
        let asks = asking(&[
            ("one", 80),
            ("one.default.svc.cluster.local", 80),
            ("two", 8000),
            ("kubernetes.default.svc", 443),
        ]);
        let variables =
            "import os\nprint(os.environ['TWO_SERVICE_HOST'], os.environ['TWO_PORT'])\n";
        rig.run("asks", python("pod", &format!("{asks}{variables}")))
            .await;
        rig.until_phase("asks", "Succeeded").await;
        let log = node.log("asks", LogOptions::default()).await;
        assert_eq!(
            log,
            "one one\none.default.svc.cluster.local one\ntwo two\nkubernetes.default.svc api\n\
             10.96.7.8 tcp://10.96.7.8:8000\n",
            "{profile}"
        );
        let status = rig
            .until("one", "ready", |it| is(it, "Ready", "True"))
            .await;
        let address = status["podIP"].as_str().expect("an address");
        assert!(address.starts_with("10.244."), "{address}");
        let to: SocketAddrV4 = format!("{address}:80").parse().expect("an address");
        let stream = node.node.connect(to).await.expect("a way in");
        assert_eq!(greeting(stream).await, "one");
        let stream = node.node.connect_to_pod("default", "two", 81).await;
        assert_eq!(greeting(stream.expect("a way in")).await, "two");
        assert_eq!(interfaces(), before, "nothing is visible on the host");
        serving.abort();
        node.stop().await;
    }
}

/// Port 81 answers at the loopback address of the pod only.
#[tokio::test]
async fn hooks_and_commands_of_a_pod_are_in_its_network_and_know_its_aliases() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        let program = asking(&[("inner", 81)]);
        let argv = ["/usr/bin/python3", "-c", program.as_str()];
        let argv = argv.map(str::to_owned).to_vec();
        let mut pod = greeter("aliased");
        pod["spec"]["hostAliases"] = json!([{"ip": "127.0.0.1", "hostnames": ["inner"]}]);
        let hook = json!({"postStart": {"exec": {"command": argv}}});
        pod["spec"]["containers"][0]["lifecycle"] = hook;
        rig.create::<Pod>(pod).await;
        rig.until("aliased", "ready", |it| is(it, "Ready", "True"))
            .await;
        let streams = StreamSet {
            stdout: true,
            ..StreamSet::default()
        };
        let process = node.node.exec("default", "aliased", "main", argv, streams);
        let process = process.expect("a process");
        let mut said = String::new();
        let mut stdout = process.stdout.expect("a stream");
        stdout.read_to_string(&mut said).await.expect("reads");
        assert_eq!(said, "inner aliased\n", "{profile}");
        node.stop().await;
    }
}

/// The pod waits for a name that appears after the restart, and for a server of the host behind the new node.
#[tokio::test]
async fn names_and_ports_of_the_host_are_back_after_a_restart_of_the_node() {
    for profile in profiles() {
        let rig = Rig::new();
        let of_host = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = of_host.local_addr().expect("an address").port();
        let config = config(&rig, profile, PodsLifetime::OutliveNode, port);
        let first = rig.start_with(config.clone()).await;
        rig.create::<Pod>(greeter("late")).await;
        let asks = asking(&[("late", 80), ("127.0.0.1", port)]);
        rig.run("asks", python("pod", &asks)).await;
        for name in ["late", "asks"] {
            rig.until_phase(name, "Running").await;
        }
        let before = rig
            .until("late", "ready", |it| is(it, "Ready", "True"))
            .await;
        first.kill().await;
        let second = rig.start_with(config).await;
        let serving = tokio::spawn(greet(of_host, "host"));
        let late = json!({"selector": {"app": "late"}, "clusterIP": "None"});
        rig.create::<Service>(service("late", &late)).await;
        let status = rig.until_phase("asks", "Succeeded").await;
        assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
        let log = second.log("asks", LogOptions::default()).await;
        assert_eq!(log, "late late\n127.0.0.1 host\n", "{profile}");
        let after = rig.until_phase("late", "Running").await;
        assert_eq!(after["podIP"], before["podIP"]);
        serving.abort();
        for name in ["late", "asks"] {
            rig.delete(name).await;
            rig.until_gone(name).await;
        }
        second.stop().await;
    }
}

/// The processes of this rig that keep networks.
fn keepers(rig: &Rig) -> Vec<i32> {
    let log = rig.path().join("node/network/keeper.log");
    let processes = std::fs::read_dir("/proc").expect("the processes").flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid: &i32| {
            std::fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|it| it == log)
        })
        .collect()
}

/// The pod waits for a name that appears after the kill.
#[tokio::test]
async fn pods_that_run_are_connected_again_when_their_keeper_was_killed() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        rig.create::<Pod>(greeter("late")).await;
        rig.run("asks", python("pod", &asking(&[("late", 80)])))
            .await;
        rig.until_phase("asks", "Running").await;
        rig.until("late", "ready", |it| is(it, "Ready", "True"))
            .await;
        let killed = keepers(&rig);
        assert_eq!(killed.len(), 1, "{killed:?}");
        for pid in killed {
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
        }
        let late = json!({"selector": {"app": "late"}, "clusterIP": "None"});
        rig.create::<Service>(service("late", &late)).await;
        let status = rig.until_phase("asks", "Succeeded").await;
        assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
        let log = node.log("asks", LogOptions::default()).await;
        assert_eq!(log, "late late\n", "{profile}");
        node.stop().await;
    }
}

/// What the descriptors of a process stand for, by their numbers.
fn descriptors(pid: &str) -> BTreeMap<String, String> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
    let named = all.flatten().filter_map(|it| {
        let what = std::fs::read_link(it.path()).ok()?;
        Some((
            it.file_name().into_string().ok()?,
            what.to_str()?.to_owned(),
        ))
    });
    named.collect()
}

fn first_child(pid: &str) -> String {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("a process");
    let mut children = children.split_whitespace();
    children.next().expect("a child").to_owned()
}

/// Else a network would outlive its pod, and the node would wait for programs that have outlived their shim.
#[tokio::test]
async fn what_a_shim_is_given_is_held_by_no_other_process() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        let mut spec = script("exec sleep 600");
        spec["containers"][0]["image"] = json!("pod");
        rig.run("sleeps", spec).await;
        rig.until_phase("sleeps", "Running").await;
        let shim = shim_of(&rig.pod_dir("sleeps").await).expect("a shim");
        let server = parent_of(&shim);
        shim_rig::eventually("the server has its own streams only", || {
            descriptors(&server).len() == 3
        });
        let of_shim = descriptors(&shim);
        let is_network = |it: &String| it.starts_with("net:");
        assert!(!of_shim.values().any(is_network), "{of_shim:?}");
        let end = of_shim.get("1").expect("standard output");
        assert!(end.starts_with("pipe:"), "{end}");
        let of_program = descriptors(&first_child(&first_child(&shim)));
        assert!(!of_program.is_empty(), "its descriptors can be read");
        assert!(!of_program.values().any(|it| it == end), "{of_program:?}");
        node.stop().await;
    }
}

/// A pod spec that prints these parameters of the kernel, which it sets for itself.
fn with_sysctls(sysctls: &[(&str, &str)]) -> Value {
    let files = sysctls
        .iter()
        .map(|(name, _)| format!("/proc/sys/{}", name.replace('.', "/")));
    let mut spec = script(&format!("cat {}", files.collect::<Vec<_>>().join(" ")));
    spec["containers"][0]["image"] = json!("pod");
    let sysctls = sysctls
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    spec["securityContext"] = json!({"sysctls": sysctls.collect::<Vec<_>>()});
    spec
}

/// What a command in a pod reads that has set a parameter.
async fn read_by_a_command(rig: &Rig, node: &RunningNode, sysctl: (&str, &str)) -> String {
    let mut spec = with_sysctls(&[sysctl]);
    spec["containers"][0]["command"] = json!(["sleep", "600"]);
    rig.run("stays", spec).await;
    rig.until_phase("stays", "Running").await;
    let path = format!("/proc/sys/{}", sysctl.0.replace('.', "/"));
    let argv = vec!["cat".to_owned(), path];
    let streams = StreamSet {
        stdout: true,
        ..StreamSet::default()
    };
    let process = node.node.exec("default", "stays", "main", argv, streams);
    let process = process.expect("a process");
    let mut said = String::new();
    let mut stdout = process.stdout.expect("a stream");
    stdout.read_to_string(&mut said).await.expect("reads");
    said
}

#[tokio::test]
async fn a_pod_sets_parameters_of_the_kernel_for_itself() {
    let of_host = || std::fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").ok();
    for profile in profiles() {
        let (before, rig) = (of_host(), Rig::new());
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        let mut sysctls = vec![("net.ipv4.tcp_keepalive_time", "77")];
        let mut expected = "77\n".to_owned();
        // Older kernels let only the machine's root set it.
        if profile == Profile::Full {
            let of_ipc = ("kernel.shm_rmid_forced", "1");
            sysctls.push(of_ipc);
            expected += "1\n";
            assert_eq!(read_by_a_command(&rig, &node, of_ipc).await, "1\n");
        }
        rig.run("sets", with_sysctls(&sysctls)).await;
        rig.until_phase("sets", "Succeeded").await;
        let log = node.log("sets", LogOptions::default()).await;
        assert_eq!(log, expected, "{profile}");
        assert_eq!(of_host(), before, "{profile}");
        let forbidden = with_sysctls(&[("kernel.msgmax", "1")]);
        rig.run("forbidden", forbidden).await;
        let status = rig.until_phase("forbidden", "Failed").await;
        assert_eq!(status["reason"], "SysctlForbidden", "{status}");
        let wrong = with_sysctls(&[("net.ipv4.tcp_keepalive_time", "soon")]);
        rig.run("wrong", wrong).await;
        let said = |status: &Value| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            let message = waiting["message"].as_str().unwrap_or_default();
            message.contains("cannot set net.ipv4.tcp_keepalive_time=soon")
        };
        rig.until("wrong", "why it waits", said).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn only_a_pod_with_a_way_out_reaches_other_networks() {
    // The address of the host to the outside: no packet leaves the machine.
    let probe = UdpSocket::bind("0.0.0.0:0").await.expect("a socket");
    if probe.connect("192.0.2.1:9").await.is_err() {
        println!("SKIPPED: this machine has no address to the outside");
        return;
    }
    let host = probe.local_addr().expect("an address").ip();
    let server = TcpListener::bind((host, 0)).await.expect("a listener");
    let port = server.local_addr().expect("an address").port();
    let serving = tokio::spawn(greet(server, "outside"));
    for profile in profiles() {
        let rig = Rig::new();
        let node = rig
            .start_with(config(&rig, profile, PodsLifetime::DieWithNode, 1))
            .await;
        let host = host.to_string();
        rig.run("open", python("open", &asking(&[(host.as_str(), port)])))
            .await;
        let once = format!("import socket\nsocket.create_connection(('{host}', {port}), 30)\n");
        rig.run("shut", python("pod", &once)).await;
        rig.until_phase("open", "Succeeded").await;
        let log = node.log("open", LogOptions::default()).await;
        assert_eq!(log, format!("{host} outside\n"), "{profile}");
        rig.until_phase("shut", "Failed").await;
        let log = node.log("shut", LogOptions::default()).await;
        assert!(log.contains("Network is unreachable"), "{log}");
        node.stop().await;
    }
    serving.abort();
}

/// Answers the question for the address of `there.example`; of others it knows nothing.
async fn name(socket: UdpSocket) {
    const HEAD: usize = 12;
    let mut query = [0; 512];
    loop {
        let (n, from) = socket.recv_from(&mut query).await.expect("a query");
        let mut labels = query[HEAD..n].iter();
        let length = labels.position(|it| *it == 0).expect("an end of the name");
        let question = &query[HEAD..HEAD + length + 5];
        let is_known = question == b"\x05there\x07example\0\0\x01\0\x01";
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_known), 0, 0, 0, 0]);
        answer.extend(question);
        if is_known {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        }
        socket.send_to(&answer, from).await.expect("an answer");
    }
}

#[tokio::test]
async fn only_a_pod_with_a_way_out_resolves_names_of_other_networks() {
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let at = server.local_addr().expect("an address");
    let serving = tokio::spawn(name(server));
    for profile in profiles() {
        let rig = Rig::new();
        let node = rig
            .start_with(NodeConfig {
                name_servers: vec![at],
                ..config(&rig, profile, PodsLifetime::DieWithNode, 1)
            })
            .await;
        // The way out is opened while the first program starts.
        let patient = "import socket, time\n\
             while True:\n    try:\n        print(socket.gethostbyname('there.example'))\n        break\n    \
             except OSError:\n        time.sleep(0.05)\n";
        rig.run("open", python("open", patient)).await;
        rig.until_phase("open", "Succeeded").await;
        let log = node.log("open", LogOptions::default()).await;
        assert_eq!(log, "192.0.2.7\n", "{profile}");
        let once = "import socket\nprint(socket.gethostbyname('there.example'))\n";
        rig.run("shut", python("pod", once)).await;
        rig.until_phase("shut", "Failed").await;
        let log = node.log("shut", LogOptions::default()).await;
        assert!(log.contains("gaierror"), "{log}");
        node.stop().await;
    }
    serving.abort();
}

#[tokio::test]
async fn a_node_that_can_make_no_networks_says_so() {
    let rig = Rig::new();
    let config = NodeConfig {
        pod_network: true,
        profile: Some(Profile::None),
        ..rig.config(PodsLifetime::DieWithNode)
    };
    let node = rig.start_with(config).await;
    rig.run("waits", script("true")).await;
    let message = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().unwrap_or_default().to_owned()
    };
    let status = rig
        .until("waits", "refused", |it| !message(it).is_empty())
        .await;
    let message = message(&status);
    assert!(
        message.contains("profile none") && message.contains("--pod-network"),
        "{message}"
    );
    node.stop().await;
}
