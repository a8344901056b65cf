//! Clients inside of pods: commands beside a program, the program itself, and its ports.

use std::time::Duration;

use longshore_node::{Declared, Process, StreamError, StreamSet};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::node_rig::{PATIENCE, Rig, RunningNode, script};

pub(crate) const ALL: StreamSet = StreamSet {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(String::from).to_vec()
}

impl RunningNode {
    pub(crate) fn exec(&self, pod: &str, script: &str, streams: StreamSet) -> Process {
        self.node
            .exec("default", pod, "main", shell(script), streams)
            .expect("a process")
    }

    async fn attach(&self, pod: &str, declared: Declared, streams: StreamSet) -> Process {
        let joined = self.node.attach("default", pod, "main", declared, streams);
        joined.await.expect("a process")
    }
}

pub(crate) async fn read_all(stream: Option<Box<dyn AsyncRead + Send + Unpin>>) -> String {
    let mut stream = stream.expect("a stream");
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    read.expect("it ends").expect("reads");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until this text has come.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), expected: &str) -> String {
    let mut found = String::new();
    let read = async {
        while !found.contains(expected) {
            let mut buffer = [0; 1024];
            let n = stream.read(&mut buffer).await.expect("reads");
            assert!(n > 0, "expected {expected:?}, found {found:?}");
            found += &String::from_utf8_lossy(&buffer[..n]);
        }
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    assert!(read.is_ok(), "expected {expected:?}");
    found
}

/// A container that waits, with these fields.
fn waiting(more: &Value) -> Value {
    let mut spec = script("sleep 1000");
    for (field, value) in more.as_object().into_iter().flatten() {
        spec["containers"][0][field] = value.clone();
    }
    spec
}

#[tokio::test]
async fn a_command_in_a_container_has_streams_of_its_own_and_an_exit_code() {
    let rig = Rig::new();
    let node = rig.start().await;
    let with_env = json!({"env": [{"name": "COLOUR", "value": "blue"}]});
    rig.run("a", waiting(&with_env)).await;
    rig.until_phase("a", "Running").await;
    let script = "cat; echo $COLOUR; echo oops >&2; exit 7";
    let process = node.exec("a", script, ALL);
    let mut stdin = process.stdin.expect("an input");
    stdin.write_all(b"given\n").await.expect("writes");
    drop(stdin);
    assert_eq!(read_all(process.stdout).await, "given\nblue\n");
    assert_eq!(read_all(process.stderr).await, "oops\n");
    assert_eq!(process.exit.await.expect("an exit code"), 7);

    let missing = vec!["no-such-program".to_owned()];
    let process = node.node.exec("default", "a", "main", missing, ALL);
    let process = process.expect("a process");
    assert!(read_all(process.stderr).await.contains("no-such-program"));
    assert_eq!(process.exit.await.expect("an exit code"), 127);
    node.stop().await;
}

#[tokio::test]
async fn a_large_stream_passes_through_a_command_both_ways() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", waiting(&Value::Null)).await;
    rig.until_phase("a", "Running").await;
    let content: Vec<u8> = (0..=255).cycle().take(5_000_000).collect();
    let process = node.exec("a", "cat", ALL);
    let (mut stdin, mut stdout) = (process.stdin.expect("in"), process.stdout.expect("out"));
    let sent = content.clone();
    let write = async move {
        stdin.write_all(&sent).await.expect("writes");
        stdin.shutdown().await.expect("ends");
    };
    let mut found = Vec::new();
    let both = async { tokio::join!(write, stdout.read_to_end(&mut found)) };
    let ended = tokio::time::timeout(PATIENCE, both).await;
    assert!(ended.is_ok(), "the streams end");
    assert!(found == content, "{} bytes", found.len());
    assert_eq!(process.exit.await.expect("an exit code"), 0);
    node.stop().await;
}

/// The host's pid of a process with this command line, and that of its parent.
fn find(command: &str) -> Option<(i32, i32)> {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let read = |pid: i32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
    processes
        .filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok())
        .find_map(|pid| {
            let line = String::from_utf8_lossy(&read(pid, "cmdline")?).replace('\0', " ");
            let stat = String::from_utf8(read(pid, "stat")?).ok()?;
            let (_, after_name) = stat.rsplit_once(") ")?;
            let parent = after_name.split(' ').nth(1)?.parse().ok()?;
            (line.trim_end() == command).then_some((pid, parent))
        })
}

async fn until_found(command: &str, is_wanted: bool) {
    let found = async {
        while find(command).is_some() != is_wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    assert!(found.is_ok(), "{command}: found? {}", !is_wanted);
}

#[tokio::test]
async fn a_command_ends_with_the_process_that_started_it() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", script("exec sleep 98763")).await;
    rig.until_phase("a", "Running").await;
    until_found("sleep 98763", true).await;
    let (_, init) = find("sleep 98763").expect("the program");
    let shim = env!("CARGO_BIN_EXE_longshore-shim");
    let starter = format!("{shim} enter {init} sleep 98764; true");
    let mut starter = std::process::Command::new("sh")
        .args(["-c", &starter])
        .spawn()
        .expect("a process");
    until_found("sleep 98764", true).await;
    starter.kill().expect("it runs");
    starter.wait().expect("it ends");
    until_found("sleep 98764", false).await;
    node.stop().await;
}

#[tokio::test]
async fn a_command_ends_when_its_client_leaves() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", waiting(&Value::Null)).await;
    rig.until_phase("a", "Running").await;
    let marker = "sleep 98765";
    let mut process = node.exec("a", &format!("echo begun; exec {marker}"), ALL);
    read_until(process.stdout.as_mut().expect("out"), "begun").await;
    drop(process);
    until_found(marker, false).await;
    node.stop().await;
}

#[tokio::test]
async fn a_probe_that_runs_out_of_time_leaves_nothing_behind() {
    let rig = Rig::new();
    let node = rig.start().await;
    let (child, daemon) = ("sleep 98766", "sleep 98767");
    let probe = json!({
        "exec": {"command": ["sh", "-c", format!("(setsid {daemon} &); {child}; true")]},
        "timeoutSeconds": 3, "periodSeconds": 1000,
    });
    let mut spec = waiting(&json!({"readinessProbe": probe}));
    spec["containers"][0]["command"] = json!(["sleep", "98768"]);
    rig.run("a", spec).await;
    for command in [child, daemon] {
        until_found(command, true).await;
    }
    for command in [child, daemon] {
        until_found(command, false).await;
    }
    assert!(find("sleep 98768").is_some(), "the program runs on");
    node.stop().await;
}

#[tokio::test]
async fn a_terminal_has_a_size_and_a_session_of_its_own() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", waiting(&Value::Null)).await;
    rig.until_phase("a", "Running").await;
    let script =
        "trap 'stty size; exit 3' WINCH; test -t 0 && echo ready; while :; do sleep 0.1; done";
    let terminal = StreamSet { tty: true, ..ALL };
    let process = node.exec("a", script, terminal);
    assert!(process.stderr.is_none());
    let mut stdout = process.stdout.expect("out");
    read_until(&mut stdout, "ready").await;
    let resize = process.resize.expect("a terminal");
    resize(101, 33);
    read_until(&mut stdout, "33 101").await;
    assert_eq!(process.exit.await.expect("an exit code"), 3);
    node.stop().await;
}

#[tokio::test]
async fn a_client_joins_a_program_and_the_input_ends_with_it() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("printf 'name? '; read name; echo \"hello $name\"; cat; echo over");
    for field in ["stdin", "stdinOnce"] {
        spec["containers"][0][field] = true.into();
    }
    rig.run("a", spec).await;
    rig.until_phase("a", "Running").await;
    let declared = Declared {
        stdin: true,
        stdin_once: true,
        tty: false,
    };
    let process = node.attach("a", declared, ALL).await;
    let (mut stdin, mut stdout) = (process.stdin.expect("in"), process.stdout.expect("out"));
    read_until(&mut stdout, "name? ").await;
    stdin.write_all(b"you\n").await.expect("writes");
    read_until(&mut stdout, "hello you\n").await;
    stdin.write_all(b"more\n").await.expect("writes");
    read_until(&mut stdout, "more\n").await;
    drop(stdin);
    assert_eq!(read_all(Some(stdout)).await, "over\n");
    assert_eq!(process.exit.await.expect("an end"), 0);
    rig.until_phase("a", "Succeeded").await;
    node.stop().await;
}

#[tokio::test]
async fn a_program_with_a_terminal_is_joined_through_it() {
    let rig = Rig::new();
    let node = rig.start().await;
    let mut spec = script("test -t 0 && test -t 1 && echo terminal; read line; echo \"got $line\"");
    for field in ["stdin", "stdinOnce", "tty"] {
        spec["containers"][0][field] = true.into();
    }
    rig.run("a", spec).await;
    rig.until_phase("a", "Running").await;
    let declared = Declared {
        stdin: true,
        stdin_once: true,
        tty: true,
    };
    let process = node.attach("a", declared, ALL).await;
    assert!(process.stderr.is_none() && process.resize.is_some());
    let (mut stdin, mut stdout) = (process.stdin.expect("in"), process.stdout.expect("out"));
    read_until(&mut stdout, "terminal\r\n").await;
    stdin.write_all(b"this\n").await.expect("writes");
    read_until(&mut stdout, "got this\r\n").await;
    rig.until_phase("a", "Succeeded").await;
    node.stop().await;
}

#[tokio::test]
async fn ports_of_a_pod_are_reached_and_a_closed_one_says_so() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", waiting(&Value::Null)).await;
    let status = rig.until_phase("a", "Running").await;
    let address = status["podIP"].as_str().expect("an address");
    let listener = tokio::net::TcpListener::bind((address, 0)).await;
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let connected = node.node.connect_to_pod("default", "a", port);
    let (mut client, accepted) = tokio::join!(connected, listener.accept());
    let client = client.as_mut().expect("a connection");
    let (mut server, _) = accepted.expect("a connection");
    client.write_all(b"hi").await.expect("writes");
    let mut found = [0; 2];
    server.read_exact(&mut found).await.expect("reads");
    assert_eq!(&found, b"hi");
    drop(listener);
    let refused = node.node.connect_to_pod("default", "a", port).await;
    assert!(
        matches!(refused, Err(StreamError::Connect { .. })),
        "{refused:?}"
    );
    let missing = node.node.connect_to_pod("default", "b", port).await;
    assert!(matches!(missing, Err(StreamError::NoPod { .. })));
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_does_not_run_lets_nobody_in() {
    let rig = Rig::new();
    let node = rig.start().await;
    rig.run("a", script("true")).await;
    rig.until_phase("a", "Succeeded").await;
    let refused = node.node.exec("default", "a", "main", shell("true"), ALL);
    let refused = refused.expect_err("it has ended").to_string();
    assert!(refused.contains("has ended"), "{refused}");
    node.stop().await;
}
