//! A shim under test: its directory, its process, and the node's end of the socket.

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use longshore_node::shim::protocol::{
    AttemptId, Command, ContainerSpec, Exit, Interaction, MountSpec, Report, RootSpec, Sandbox,
    Started, TerminationSpec, UserSpec,
};

/// Longer than any test takes; a test that waits for it fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Full,
    User,
    None,
}

impl Profile {
    /// The profiles that this machine allows to the user who runs the tests.
    pub(crate) fn available() -> Vec<Self> {
        let all = [("full", Self::Full), ("user", Self::User)];
        let mut available = vec![Self::None];
        for (name, profile) in all {
            let dir = scratch_dir();
            let mut probe = Process::new(env!("CARGO_BIN_EXE_longshore-shim"));
            probe.args(["probe", name]).arg(dir.path().join("0"));
            as_user_of(profile, &mut probe);
            let output = probe.output().expect("the shim starts");
            if output.status.success() {
                available.push(profile);
            } else {
                let why = String::from_utf8_lossy(&output.stderr);
                println!("SKIPPED profile {name}: this machine refuses it: {why}");
            }
        }
        available
    }
}

/// Root proves nothing about user namespaces: that profile runs as nobody when the tests run as root.
fn as_user_of(profile: Profile, command: &mut Process) {
    if profile == Profile::User && is_root() {
        command.uid(65534).gid(65534);
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn scratch_dir() -> tempfile::TempDir {
    scratch_dir_in(&std::env::temp_dir())
}

fn scratch_dir_in(parent: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(parent).expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("its mode");
    dir
}

pub(crate) struct Rig {
    pub(crate) profile: Profile,
    dir: tempfile::TempDir,
    process: Child,
    node: Option<BufReader<UnixStream>>,
}

impl Rig {
    /// Starts a shim the way the node does: connected before it runs.
    pub(crate) fn start(profile: Profile, on_loss: &str) -> Self {
        Self::start_in(&std::env::temp_dir(), profile, on_loss)
    }

    /// The same with its directory below `parent`.
    pub(crate) fn start_in(parent: &Path, profile: Profile, on_loss: &str) -> Self {
        let dir = scratch_dir_in(parent);
        let (process, node) = spawn(dir.path(), profile, on_loss);
        Self {
            profile,
            dir,
            process,
            node: Some(BufReader::new(node)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn shim_pid(&self) -> u32 {
        self.process.id()
    }

    /// What `script` needs to run in the shell.
    pub(crate) fn shell(&self, script: &str) -> ContainerSpec {
        let root = RootSpec {
            base: "/".into(),
            hostname: "box".into(),
            read_only: false,
            hide: Vec::new(),
            mounts: Vec::new(),
        };
        ContainerSpec {
            argv: ["sh", "-c", script].map(String::from).to_vec(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            workdir: "/".into(),
            log: self.log(),
            sandbox: match self.profile {
                Profile::Full => Sandbox::Full(root),
                Profile::User => Sandbox::User(root),
                Profile::None => Sandbox::None,
            },
            user: UserSpec::default(),
            termination: TerminationSpec {
                path: "/dev/termination-log".into(),
                fallback_to_logs: false,
            },
            memory: None,
            processes: None,
            interaction: Interaction::default(),
        }
    }

    /// The same with a host directory or file at `target`.
    pub(crate) fn shell_with(&self, script: &str, mount: MountSpec) -> ContainerSpec {
        let mut spec = self.shell(script);
        if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
            root.mounts.push(mount);
        }
        spec
    }

    /// Runs a script beside the program of a container, as the node does.
    pub(crate) fn enter(&self, init: i32, script: &str) -> Child {
        let mut command = Process::new(env!("CARGO_BIN_EXE_longshore-shim"));
        command.args(["enter", &init.to_string(), "sh", "-c", script]);
        as_user_of(self.profile, &mut command);
        command.spawn().expect("the command starts")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path().join("log/0.log")
    }

    /// The text of the log without times.
    pub(crate) fn output(&self) -> String {
        // A program that says nothing has no log.
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines()
            .map(|line| line.splitn(4, ' ').nth(3).unwrap_or(""))
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn send(&mut self, command: &Command) {
        let mut line = serde_json::to_vec(command).expect("JSON");
        line.push(b'\n');
        self.node
            .as_mut()
            .expect("connected")
            .get_mut()
            .write_all(&line)
            .expect("the shim reads");
    }

    pub(crate) fn run(&mut self, spec: ContainerSpec) -> AttemptId {
        let id = AttemptId {
            container: "main".into(),
            attempt: 0,
        };
        self.send(&Command::Start {
            id: id.clone(),
            spec: Box::new(spec),
            memory: String::new(),
        });
        id
    }

    /// The next report about an attempt that runs or has ended.
    pub(crate) fn report(&mut self) -> Report {
        loop {
            let mut line = String::new();
            let node = self.node.as_mut().expect("connected");
            node.read_line(&mut line).expect("a report in time");
            match serde_json::from_str(&line) {
                Ok(Report::Begun { .. } | Report::CaughtUp) => {}
                Ok(report) => return report,
                Err(e) => panic!("not a report: {line:?}: {e}"),
            }
        }
    }

    pub(crate) fn started(&mut self) -> Started {
        match self.report() {
            Report::Started { started, .. } => started,
            other @ (Report::Begun { .. }
            | Report::Exited { .. }
            | Report::CaughtUp
            | Report::NotForked { .. }) => {
                panic!("reported instead of a start: {other:?}")
            }
        }
    }

    /// The end of the attempt, whether or not its start was reported before.
    pub(crate) fn exited(&mut self) -> Exit {
        loop {
            if let Report::Exited { exit, .. } = self.report() {
                return exit;
            }
        }
    }

    pub(crate) fn run_to_end(&mut self, spec: ContainerSpec) -> Exit {
        self.run(spec);
        self.exited()
    }

    pub(crate) fn hang_up(&mut self) {
        self.node = None;
    }

    pub(crate) fn reconnect(&mut self) {
        self.node = Some(BufReader::new(connect(self.path())));
    }

    /// Kills the shim and starts another one in the same directory.
    pub(crate) fn replace_shim(&mut self) {
        self.process.kill().expect("a shim");
        self.process.wait().expect("a child");
        let (process, node) = spawn(self.dir.path(), self.profile, "stay");
        (self.process, self.node) = (process, Some(BufReader::new(node)));
    }

    /// Waits for the shim's own end.
    pub(crate) fn wait_for_shim(&mut self) {
        assert!(self.process.wait().expect("a child").success());
    }

    pub(crate) fn record(&self) -> serde_json::Value {
        let path = self.path().join("main.0/record.json");
        serde_json::from_slice(&std::fs::read(path).expect("a record")).expect("JSON")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn spawn(dir: &Path, profile: Profile, on_loss: &str) -> (Child, UnixStream) {
    let socket = dir.join("shim.sock");
    drop(std::fs::remove_file(&socket));
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).expect("its mode");
    let node = connect(dir);
    let mut command = Process::new(env!("CARGO_BIN_EXE_longshore-shim"));
    command
        .arg(dir)
        .args([on_loss, "1"])
        .stdin(Stdio::from(OwnedFd::from(listener)));
    as_user_of(profile, &mut command);
    (command.spawn().expect("the shim starts"), node)
}

fn connect(dir: &Path) -> UnixStream {
    let node = UnixStream::connect(dir.join("shim.sock")).expect("the shim listens");
    node.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    node
}

/// Waits until `what` holds; gives up (and fails) after a time that no healthy machine needs.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let mut left = PATIENCE.as_millis() / 5;
    while !holds() {
        assert!(left > 0, "never happened: {what}");
        left -= 1;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process exists and is not just waiting to be reaped.
pub(crate) fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(") ")
                .map(|(_, rest)| !rest.starts_with('Z'))
        })
        .unwrap_or(false)
}

/// How many processes have `marker` among their arguments.
pub(crate) fn n_processes(marker: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter(|entry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        command
            .split(|b| *b == 0)
            .any(|arg| arg == marker.as_bytes())
    })
    .count()
}
