//! kubectl inside of the pods of `longshore standalone`. It is skipped where `LONGSHORE_TEST_KUBECTL` names none.

use std::{
    cell::Cell,
    fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::service_process::{Service, until};

/// Runs a program in a terminal of its own, and ends with its exit code.
const IN_A_TERMINAL: &str = "\
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
";

/// kubectl with the kubeconfig of a service.
struct Kubectl {
    program: PathBuf,
    kubeconfig: String,
    home: PathBuf,
    n_commands: Cell<usize>,
}

impl Kubectl {
    fn given(service: &Service, home: &Path) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        let program = std::env::var_os("LONGSHORE_TEST_KUBECTL").filter(|it| !it.is_empty());
        let Some(program) = program else {
            println!("kubectl: way in: skipped, LONGSHORE_TEST_KUBECTL names none");
            return None;
        };
        Some(Self {
            program: program.into(),
            kubeconfig: service.ready("kubeconfig"),
            home: home.to_owned(),
            n_commands: Cell::new(0),
        })
    }

    fn prepared(&self, mut command: Command) -> Command {
        self.n_commands.set(self.n_commands.get() + 1);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        self.prepared(command)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it printed; it has to succeed.
    fn run(&self, arguments: &[&str]) -> String {
        succeeded(arguments, &self.output(arguments))
    }

    /// The same with this input.
    fn feed(&self, arguments: &[&str], input: &[u8]) -> String {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        succeeded(arguments, &output)
    }

    /// The same in a terminal.
    fn in_a_terminal(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("python3");
        command
            .args(["-c", IN_A_TERMINAL])
            .arg(&self.program)
            .args(arguments);
        let output = self.prepared(command).output().unwrap();
        succeeded(arguments, &output)
    }

    /// Makes a pod that runs a shell script, and waits until it is ready.
    fn pod(&self, name: &str, script: &str) {
        let image = ["run", name, "--image=any", "--restart=Never", "--command"];
        self.run(&[&image[..], &["--", "sh", "-c", script]].concat());
        let pod = format!("pod/{name}");
        self.run(&["wait", "--for=condition=Ready", &pod, "--timeout=60s"]);
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        println!("kubectl: way in: {} commands", self.n_commands.get());
    }
}

fn succeeded(arguments: &[&str], output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that runs until the end of its test.
struct Lasting {
    child: Child,
    /// Open as long as it runs: who writes into a closed pipe is killed.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Lasting {
    fn begun(kubectl: &Kubectl, arguments: &[&str]) -> Self {
        let mut child = kubectl.command(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// Where it listens, which it says after these words.
    fn near(&mut self, words: &str) -> String {
        let line = self.line();
        let near = line.strip_prefix(words).unwrap();
        near.split(' ').next().unwrap().to_owned()
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer with its head.
fn asked(near: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(near).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {near}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A service with an empty folder of DAGs, and kubectl in another folder.
fn started() -> Option<(Kubectl, Service, [TempDir; 2])> {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let service = Service::start(folders[0].path(), &[]);
    let kubectl = Kubectl::given(&service, folders[1].path())?;
    Some((kubectl, service, folders))
}

#[test]
fn kubectl_runs_commands_in_pods_and_copies_files() {
    let Some((kubectl, _service, folders)) = started() else {
        return;
    };
    kubectl.pod("p", "echo begun; sleep 1000");
    let exec = ["exec", "-i", "p", "--"];
    assert_eq!(
        kubectl.feed(&[&exec[..], &["cat"]].concat(), b"given"),
        "given"
    );
    let failed = kubectl.output(&["exec", "p", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    assert_eq!(text(&failed.stdout), "out\n");
    let said = text(&failed.stderr);
    assert!(said.contains("exit code 7"), "{said}");
    let size = kubectl.in_a_terminal(&[
        "exec",
        "-it",
        "p",
        "--",
        "sh",
        "-c",
        "test -t 0 && echo tty",
    ]);
    assert!(size.contains("tty"), "{size}");
    let missing = kubectl.output(&["exec", "q", "--", "true"]);
    let said = text(&missing.stderr);
    assert!(said.contains("pods \"q\" not found"), "{said}");

    let content: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let (sent, back) = (
        folders[1].path().join("sent"),
        folders[1].path().join("back"),
    );
    fs::write(&sent, &content).unwrap();
    let inside = format!("p:{}", folders[1].path().join("inside").display());
    kubectl.run(&["cp", sent.to_str().unwrap(), &inside]);
    kubectl.run(&["cp", &inside, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == content);
    let logs = kubectl.run(&["logs", "p", "--all-containers"]);
    assert_eq!(logs, "begun\n");
}

#[test]
fn kubectl_joins_programs() {
    let Some((kubectl, _service, _folders)) = started() else {
        return;
    };
    let run = ["--image=any", "--restart=Never", "--rm", "--command"];
    let cat = [&["run", "c", "-i"][..], &run, &["--", "cat"]].concat();
    let said = kubectl.feed(&cat, b"hello\n");
    assert!(
        said.contains("hello\n") && said.contains("deleted"),
        "{said}"
    );
    let script = "test -t 0 && test -t 1 && echo joined";
    let shell = [&["run", "t", "-it"][..], &run, &["--", "sh", "-c", script]].concat();
    let said = kubectl.in_a_terminal(&shell);
    assert!(said.contains("joined"), "{said}");

    kubectl.pod("a", "while :; do echo tick; sleep 0.1; done");
    let mut attached = Lasting::begun(&kubectl, &["attach", "a"]);
    assert_eq!(attached.line(), "tick");
}

#[test]
fn kubectl_reaches_ports_of_pods() {
    let Some((kubectl, _service, folders)) = started() else {
        return;
    };
    let folder = folders[1].path();
    fs::write(folder.join("page"), "it answers").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    kubectl.pod(
        "w",
        &format!(
            "exec python3 -m http.server {port} --bind 127.0.0.1 --directory {}",
            folder.display()
        ),
    );
    let page = format!("/api/v1/namespaces/default/pods/w:{port}/proxy/page");
    until("the pod answers", || {
        text(&kubectl.output(&["get", "--raw", &page]).stdout) == "it answers"
    });

    let arguments = ["port-forward", "pod/w", &format!(":{port}")];
    let mut forward = Lasting::begun(&kubectl, &arguments);
    let near = forward.near("Forwarding from ");
    // Several connections over one session, one after the other.
    for _ in 0..3 {
        let answer = asked(&near, "/page");
        assert!(answer.ends_with("it answers"), "{answer}");
    }

    let target = format!("--target-port={port}");
    kubectl.run(&["expose", "pod", "w", "--port=80", &target]);
    let page = "/api/v1/namespaces/default/services/w:80/proxy/page";
    until("the service answers", || {
        text(&kubectl.output(&["get", "--raw", page]).stdout) == "it answers"
    });
}

#[test]
fn kubectl_waits_for_a_job_and_shows_its_log() {
    let Some((kubectl, _service, _folders)) = started() else {
        return;
    };
    let create = ["create", "job", "j", "--image=any", "--"];
    let said = kubectl.run(&[&create[..], &["sh", "-c", "echo counted"]].concat());
    assert_eq!(said, "job.batch/j created\n");
    let wait = ["wait", "--for=condition=complete", "job/j", "--timeout=60s"];
    assert_eq!(kubectl.run(&wait), "job.batch/j condition met\n");
    assert_eq!(kubectl.run(&["logs", "job/j"]), "counted\n");
    let succeeded = kubectl.run(&["get", "job", "j", "-o", "jsonpath={.status.succeeded}"]);
    assert_eq!(succeeded, "1");
}

#[test]
fn kubectl_lets_others_ask_through_its_proxy() {
    let Some((kubectl, _service, _folders)) = started() else {
        return;
    };
    let mut proxy = Lasting::begun(&kubectl, &["proxy", "--port=0"]);
    let near = proxy.near("Starting to serve on ");
    let answer = asked(&near, "/api/v1/namespaces/default");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 OK\r\n"), "{head}");
    let namespace: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(namespace["kind"], "Namespace");
    assert_eq!(namespace["metadata"]["name"], "default");
    let answer = asked(&near, "/api/v1/namespaces/none");
    assert!(answer.contains(" 404 Not Found\r\n"), "{answer}");
    drop(proxy);
    assert!(TcpStream::connect(&near).is_err(), "it is ended");
}
