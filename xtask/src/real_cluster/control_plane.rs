//! The processes of the cluster, their files and their ports.

use std::{
    fs::{self, File},
    io::Write,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;

use super::{ClusterError, Components, arguments, certificates, ready::Probe, signals::Signals};
use crate::{
    guarded::{self, Guarded},
    kube_build::{Program, Programs},
};

/// Longest that a component may take to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Lines of a log that an error shows.
const LAST_LINES: usize = 20;

/// What shows that the controllers work, not only that the controller manager runs.
const MADE_BY_CONTROLLERS: &str = "/api/v1/namespaces/default/serviceaccounts/default";

/// Users, their groups, and the file of each. The roles of the components are Kubernetes' own.
const USERS: [(&str, &str, &str); 3] = [
    ("longshore-admin", "system:masters", "kubeconfig"),
    (
        "system:kube-controller-manager",
        "",
        "controller-manager.kubeconfig",
    ),
    ("system:kube-scheduler", "", "scheduler.kubeconfig"),
];

/// A running control plane. Dropping it ends its processes, the clients of others first, and removes its directory.
#[derive(Debug)]
pub(super) struct ControlPlane {
    processes: Vec<Guarded>,
    folder: TempDir,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        while self.processes.pop().is_some() {}
    }
}

/// Ports of one cluster.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peers: u16,
    pub(super) apiserver: u16,
    pub(super) controller_manager: u16,
    pub(super) scheduler: u16,
}

impl ControlPlane {
    /// Starts the components and waits until they are ready.
    pub(super) fn start(
        components: Components,
        programs: &Programs,
        signals: &Signals,
    ) -> Result<ControlPlane, ClusterError> {
        let folder = tempfile::Builder::new()
            .prefix("longshore-real-cluster-")
            .tempdir()
            .map_err(|source| prepare("a temporary directory", source))?;
        let ports = Ports::free()?;
        let authority = certificates::make(folder.path())?;
        let token = write_users(folder.path(), ports.apiserver)?;
        write_webhook_client(folder.path())?;
        let mut cluster = ControlPlane {
            processes: Vec::new(),
            folder,
        };
        let path = cluster.folder.path().to_owned();
        cluster.spawn(programs, Program::Etcd, &arguments::etcd(&path, &ports))?;
        cluster.spawn(
            programs,
            Program::Apiserver,
            &arguments::apiserver(&path, &ports),
        )?;
        let probe =
            Probe::new(&authority, token).map_err(|source| prepare("a TLS client", source))?;
        let apiserver = (Program::Apiserver, ports.apiserver, "/readyz");
        cluster.wait_until_ready(&probe, apiserver, signals)?;
        if components == Components::All {
            let manager = arguments::controller_manager(&path, &ports);
            cluster.spawn(programs, Program::ControllerManager, &manager)?;
            let scheduler = arguments::scheduler(&path, &ports);
            cluster.spawn(programs, Program::Scheduler, &scheduler)?;
            for component in [
                (
                    Program::ControllerManager,
                    ports.apiserver,
                    MADE_BY_CONTROLLERS,
                ),
                (Program::Scheduler, ports.scheduler, "/readyz"),
            ] {
                cluster.wait_until_ready(&probe, component, signals)?;
            }
        }
        Ok(cluster)
    }

    /// The administrator's.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(USERS[0].2)
    }

    /// Fails when a component has ended.
    pub(super) fn check(&mut self) -> Result<(), ClusterError> {
        let folder = self.folder.path();
        for process in &mut self.processes {
            let program = process.name();
            let ended = process
                .ended()
                .map_err(|source| ClusterError::Start { program, source })?;
            if let Some(status) = ended {
                let log = last_lines(folder, program);
                return Err(ClusterError::Ended {
                    program,
                    status,
                    log,
                });
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        programs: &Programs,
        program: Program,
        arguments: &[String],
    ) -> Result<(), ClusterError> {
        let name = program.name();
        eprintln!("starting {name}");
        let start = || {
            let log = File::create(log_path(self.folder.path(), name))?;
            guarded::command(programs.path(program))?
                .args(arguments)
                .current_dir(self.folder.path())
                .env_remove("KUBECONFIG")
                .stdin(std::process::Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
        };
        let child = start().map_err(|source| ClusterError::Start {
            program: name,
            source,
        })?;
        self.processes.push(Guarded::new(name, child));
        Ok(())
    }

    /// Waits until a component answers at its port and path.
    fn wait_until_ready(
        &mut self,
        probe: &Probe,
        (program, port, path): (Program, u16, &str),
        signals: &Signals,
    ) -> Result<(), ClusterError> {
        let mut found = String::new();
        for _ in 0..START_TIMEOUT.as_millis() / POLL.as_millis() {
            self.check()?;
            match probe.ask(port, path) {
                Ok(()) => return Ok(()),
                Err(other) => found = other,
            }
            if signals
                .wait(Some(POLL))?
                .is_some_and(|signal| signal.ends_us())
            {
                return Err(ClusterError::Interrupted);
            }
        }
        Err(ClusterError::NotReady {
            program: program.name(),
            seconds: START_TIMEOUT.as_secs(),
            found,
            log: last_lines(self.folder.path(), program.name()),
        })
    }
}

impl Ports {
    /// Five ports that are free now. Another process may take one before the component does; then
    /// the component says so and ends.
    fn free() -> Result<Ports, ClusterError> {
        let listeners: Vec<TcpListener> = (0..5)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()
            .map_err(|source| prepare("free ports", source))?;
        // All are held until all are known: five different ones.
        let port = |at: usize| -> Result<u16, ClusterError> {
            let address = listeners[at].local_addr();
            Ok(address
                .map_err(|source| prepare("free ports", source))?
                .port())
        };
        Ok(Ports {
            etcd: port(0)?,
            etcd_peers: port(1)?,
            apiserver: port(2)?,
            controller_manager: port(3)?,
            scheduler: port(4)?,
        })
    }
}

/// A failure before anything runs.
fn prepare(what: &'static str, source: std::io::Error) -> ClusterError {
    ClusterError::Prepare { what, source }
}

/// Writes a file that only this user may read.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    let write = || {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?
            .write_all(text.as_bytes())
    };
    write().map_err(|source| prepare("the files of the cluster", source))
}

/// Writes a token for each user, and the kubeconfig that holds it. Returns the administrator's token.
fn write_users(folder: &Path, port: u16) -> Result<String, ClusterError> {
    let (mut tokens, mut administrator) = (String::new(), None);
    let authority = folder.join("ca.crt");
    for (user, groups, file) in USERS {
        let token = uuid::Uuid::new_v4().simple().to_string();
        tokens += &format!("{token},{user},{user},\"{groups}\"\n");
        write(&folder.join(file), &kubeconfig(&authority, port, &token))?;
        administrator.get_or_insert(token);
    }
    write(&folder.join("tokens.csv"), &tokens)?;
    Ok(administrator.unwrap_or_default())
}

/// Writes the client certificate that the API server shows to every webhook that requests one.
fn write_webhook_client(folder: &Path) -> Result<(), ClusterError> {
    let kubeconfig = folder.join("webhook-client.kubeconfig");
    let user = json!({
        "client-certificate": folder.join("webhook-client.crt"),
        "client-key": folder.join("webhook-client.key"),
    });
    let users =
        json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]});
    write(&kubeconfig, &users.to_string())?;
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig,
        }})
    };
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    write(&folder.join("admission.json"), &admission.to_string())
}

/// JSON is YAML.
fn kubeconfig(authority: &Path, port: u16, token: &str) -> String {
    let name = "longshore-test";
    let server = format!("https://127.0.0.1:{port}");
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server, "certificate-authority": authority,
        }}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    })
    .to_string()
}

fn log_path(folder: &Path, program: &str) -> PathBuf {
    folder.join(format!("{program}.log"))
}

/// The end of a program's log.
fn last_lines(folder: &Path, program: &str) -> String {
    let log = fs::read(log_path(folder, program)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
