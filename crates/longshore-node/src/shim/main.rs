//! The shim's loop: one `poll` over the node, the signals and the containers' pipes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use jiff::Timestamp;
use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl::set_child_subreaper,
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        stat::{Mode, umask},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    cgroup,
    container::OwnIds,
    enter::{self, ARG_ENTER, ARG_ENTER_TERMINAL, Streams},
    fork_server::{self, ARG_FORK, Forked},
    node_link::NodeLink,
    open_files,
    probe::{self, ARG_PROBE},
    protocol::{AttemptId, Command, ContainerSpec, Report},
    record::{Durability, Record, SOCKET},
    running::{OfPod, Part, Running},
    sysctls,
};
use crate::{clock, network, profile::Profile, volumes::memory_dir};

/// The shim stops its containers when the node goes away.
pub(crate) const ARG_DIE: &str = "die";
/// The shim keeps its containers when the node goes away.
pub(crate) const ARG_STAY: &str = "stay";
/// The first argument of the keeper of pods' networks.
pub(crate) const ARG_NETWORK: &str = "network";
/// Longest grace of containers whose node went away: no process waits for their end, and the next node wants to start.
const GRACE_WITHOUT_NODE: Duration = Duration::from_secs(3);
/// How long the shim waits before it tries again to write what it must not lose.
const RETRY_RECORD: Duration = Duration::from_secs(1);

/// The entry point behind the hidden subcommand of [`NodeConfig::shim_command`](crate::NodeConfig).
///
/// Arguments: `POD_DIR die|stay GRACE_SECONDS [SYSCTL=VALUE…]` with the listening socket as standard input, or
/// `fork ROOM` with a socket to the node, for a process that forks those, or `probe full|user SCRATCH_DIR`, or
/// `enter|enter-terminal INIT_PID COMMAND…`, or `network full|user die|stay [PID]`; in front of them there may be the one
/// of [`with_open_files`](super::with_open_files). Must be called before the process has a second thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Containers have this umask everywhere, whatever the umask of the process that started the
    // node. The shim's own files get their mode at creation.
    umask(Mode::from_bits_truncate(0o022));
    let mut args: Vec<OsString> = args.into_iter().collect();
    let first = args.first().and_then(|first| first.to_str());
    if first.is_some_and(open_files::limit) {
        args.remove(0);
    }
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    if let [first, init, command @ ..] = args.as_slice() {
        let streams = match first.to_str() {
            Some(ARG_ENTER) => Some(Streams::Pipes),
            Some(ARG_ENTER_TERMINAL) => Some(Streams::Terminal),
            _ => None,
        };
        if let Some(streams) = streams {
            close_inherited();
            return enter::run(&init.to_string_lossy(), command, streams);
        }
    }
    let result = match words.as_slice() {
        [ARG_PROBE, profile, scratch] => return probe::run(profile, scratch),
        [
            ARG_NETWORK,
            profile,
            on_loss @ (ARG_DIE | ARG_STAY),
            rest @ ..,
        ] => {
            close_inherited();
            let rights = if *profile == Profile::User.as_str() {
                network::Rights::User
            } else {
                network::Rights::Root
            };
            let survivor = rest.first().and_then(|pid| pid.parse().ok());
            network::keep(rights, *on_loss == ARG_STAY, survivor)
        }
        [ARG_FORK, ..] => fork_shims(),
        words => run(words, None),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&e);
            ExitCode::FAILURE
        }
    }
}

/// Standard error is the node's shims.log; if even that is gone, the error is lost.
fn say(error: &io::Error) {
    drop(writeln!(io::stderr(), "shim: {error}"));
}

/// Forks shims for a node; in each child, is the shim.
fn fork_shims() -> io::Result<()> {
    close_inherited();
    match fork_server::serve()? {
        Some(Forked { words, network }) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let result = run(&words, network);
            if let Err(e) = &result {
                say(e);
            }
            #[expect(
                unsafe_code,
                reason = "a forked child must not run the exit handlers of its parent"
            )]
            // SAFETY: `_exit` takes a number and does not return.
            unsafe {
                libc::_exit(i32::from(result.is_err()))
            }
        }
        None => Ok(()),
    }
}

/// Is the shim of a pod, in the pod's network where it has one of its own.
fn run(words: &[&str], network: Option<OwnedFd>) -> io::Result<()> {
    let [
        pod_dir,
        on_loss @ (ARG_DIE | ARG_STAY),
        grace,
        settings @ ..,
    ] = words
    else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("expected POD_DIR die|stay GRACE_SECONDS [SYSCTL=VALUE…], got {words:?}"),
        ));
    };
    let grace = grace
        .parse()
        .map_or(Duration::from_secs(30), Duration::from_secs);
    let on_loss = if *on_loss == ARG_DIE {
        OnLoss::Stop
    } else {
        OnLoss::Stay
    };
    let own = match network {
        Some(network) => in_network(network, settings)
            .inspect_err(|error| tell_failure(Path::new(pod_dir), error))?,
        None => OwnIds::current(),
    };
    Shim::new(pod_dir.into(), on_loss, grace, own)?.run()
}

fn in_network(network: OwnedFd, settings: &[&str]) -> io::Result<OwnIds> {
    let own = OwnIds::in_network(network)?;
    sysctls::set(settings)?;
    Ok(own)
}

/// Tells the node why there is no shim. Nobody shall find its socket once the node knows.
fn tell_failure(pod_dir: &Path, error: &io::Error) {
    drop(std::fs::remove_file(pod_dir.join(SOCKET)));
    if let Ok(listener) = io::stdin().as_fd().try_clone_to_owned() {
        fork_server::refuse(listener, error);
    }
}

/// What to do with the containers when the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnLoss {
    Stop,
    Stay,
}

/// Something `poll` watches.
#[derive(Clone, Debug)]
enum Source {
    Signals,
    Listener,
    Node,
    Container(AttemptId, Part),
}

struct Shim {
    pod_dir: PathBuf,
    on_loss: OnLoss,
    grace: Duration,
    own: OwnIds,
    listener: UnixListener,
    signals: SignalFd,
    node: Option<NodeLink>,
    running: BTreeMap<AttemptId, Running>,
    /// Attempts that ended but could not be recorded yet.
    unrecorded: Vec<Record>,
    /// Set when the stop of all containers begins: when they are killed, and that the shim ends with them.
    stopping: Option<Timestamp>,
    /// The cgroup in which the processes of the pod are counted.
    pod_cgroup: Option<PathBuf>,
    /// Whether a node was ever connected: the first one connects before it starts us.
    has_met_node: bool,
}

impl Shim {
    fn new(pod_dir: PathBuf, on_loss: OnLoss, grace: Duration, own: OwnIds) -> io::Result<Self> {
        close_inherited();
        let signals = SigSet::all();
        signals.thread_block()?;
        set_child_subreaper(true)?;
        let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
        listener.set_nonblocking(true)?;
        std::env::set_current_dir("/")?;
        Ok(Self {
            pod_dir,
            on_loss,
            grace,
            own,
            listener,
            signals: SignalFd::with_flags(
                &signals,
                SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
            )?,
            node: None,
            running: BTreeMap::new(),
            unrecorded: Vec::new(),
            stopping: None,
            pod_cgroup: None,
            has_met_node: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        while !self.is_done() {
            for source in self.wait()? {
                self.handle(source)?;
            }
            self.record_again();
            if self.stopping.is_some_and(|kill_at| clock::now() >= kill_at) {
                self.running.values_mut().for_each(Running::kill);
            }
        }
        // A node that finds no socket reads the records instead of asking.
        drop(std::fs::remove_file(self.pod_dir.join(SOCKET)));
        let memory = memory_dir(&self.uid());
        drop(std::fs::remove_file(memory.join(SOCKET)));
        // Only what is empty: the pod may have volumes in it.
        drop(std::fs::remove_dir(memory));
        if let Some(dir) = &self.pod_cgroup {
            cgroup::remove_of_pod(dir);
        }
        Ok(())
    }

    fn uid(&self) -> String {
        let name = self.pod_dir.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Says something in the log that all shims of the node share.
    fn say(&self, what: impl std::fmt::Display) {
        drop(writeln!(io::stderr(), "shim of pod {}: {what}", self.uid()));
    }

    fn durability(&self) -> Durability {
        match self.on_loss {
            OnLoss::Stop => Durability::ProcessLoss,
            OnLoss::Stay => Durability::PowerLoss,
        }
    }

    /// The shim ends after a request to stop, or when there is neither a container to watch nor a
    /// node to serve. The records hold everything then, and a node that needs a shim starts one.
    fn is_done(&self) -> bool {
        let is_alone = self.has_met_node && self.node.is_none();
        // After a request to stop, the shim does not wait for a disk: the node knows what could not
        // be recorded, or does not need it.
        let may_end = self.stopping.is_some() || (is_alone && self.unrecorded.is_empty());
        self.running.is_empty() && may_end
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let read = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = vec![read(self.signals.as_fd()), read(self.listener.as_fd())];
        if let Some(node) = &self.node {
            sources.push(Source::Node);
            polled.push(read(node.as_fd()));
        }
        for (id, running) in &self.running {
            for (part, fd, flags) in running.fds() {
                sources.push(Source::Container(id.clone(), part));
                polled.push(PollFd::new(fd, flags));
            }
        }
        match poll(&mut polled, self.timeout()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = polled.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(sources
            .into_iter()
            .zip(ready)
            .filter_map(|(s, ready)| ready.then_some(s))
            .collect())
    }

    fn timeout(&self) -> PollTimeout {
        let to_kill = self
            .stopping
            .map(|at| at.duration_since(clock::now()).unsigned_abs());
        let to_record = (!self.unrecorded.is_empty()).then_some(RETRY_RECORD);
        // A kill that is due was sent; the containers' ends wake us.
        let next = [
            to_kill.filter(|_| self.stopping.is_some_and(|at| at > clock::now())),
            to_record,
        ];
        match next.into_iter().flatten().min() {
            Some(wait) => {
                let whole = wait + Duration::from_millis(1);
                PollTimeout::try_from(whole).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        }
    }

    fn handle(&mut self, source: Source) -> io::Result<()> {
        match source {
            Source::Signals => self.on_signals(),
            Source::Listener => {
                self.on_connection();
                Ok(())
            }
            Source::Node => {
                self.on_commands();
                Ok(())
            }
            Source::Container(id, part) => {
                // The container may have ended by an event handled just before.
                if let Some(started) = self.running.get_mut(&id).and_then(|r| r.advance(part)) {
                    let running = self.running.get(&id);
                    if let Some(Err(e)) = running.map(|r| r.record.note(&self.pod_dir)) {
                        self.say(format_args!("cannot record the start of {id}: {e}"));
                    }
                    self.tell(&Report::Started { id, started });
                }
                Ok(())
            }
        }
    }

    fn on_signals(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal()? {
            match Signal::try_from(info.ssi_signo.cast_signed()) {
                Ok(Signal::SIGCHLD) => self.reap(),
                Ok(Signal::SIGTERM | Signal::SIGINT) => self.stop(self.grace),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn reap(&mut self) {
        loop {
            let (pid, status) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))) => {
                    (pid, status)
                }
                Ok(WaitStatus::StillAlive) => return,
                Err(Errno::EINTR) | Ok(_) => continue,
                Err(_) => return,
            };
            let Some(id) = self
                .running
                .iter()
                .find(|(_, r)| r.init == pid)
                .map(|(id, _)| id.clone())
            else {
                // An orphan of a container without a pid namespace whose init was killed.
                continue;
            };
            if let Some(running) = self.running.remove(&id) {
                let record = running.finish(status);
                self.record_end(record);
            }
        }
    }

    /// Writes the end of an attempt down, then reports it to the node.
    ///
    /// The space for it was reserved before the attempt began. When a disk refuses it all the same, the shim retries
    /// until the write succeeds, but the node need not wait for that: it writes the end to the API server.
    fn record_end(&mut self, mut record: Record) {
        record.was_stopped = self.stopping.is_some();
        if let Err(e) = record.end(&self.pod_dir, self.durability()) {
            let id = &record.id;
            self.say(format_args!(
                "cannot record the end of {id}, trying again: {e}"
            ));
            self.unrecorded.push(record.clone());
        }
        let id = record.id.clone();
        self.tell_record(record);
        super::running::clear_scratch(&self.pod_dir, &id);
    }

    fn record_again(&mut self) {
        let (pod_dir, durability) = (&self.pod_dir, self.durability());
        self.unrecorded
            .retain(|record| record.end(pod_dir, durability).is_err());
    }

    /// Takes a new node. Whatever fails here is the connection's trouble: the containers must not end by it.
    fn on_connection(&mut self) {
        let node = match self.listener.accept() {
            Ok((stream, _)) => NodeLink::new(stream),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Err(e) => Err(e),
        };
        // What the last node said before it died still counts, and is part of what the next one must know.
        self.on_commands();
        self.has_met_node = true;
        match node {
            Ok(node) => self.node = Some(node),
            Err(e) => return self.say(format_args!("lost a node: {e}")),
        }
        match Record::load_all(&self.pod_dir) {
            Ok(recorded) => {
                for record in recorded.into_iter().chain(self.unrecorded.clone()) {
                    self.tell_record(record);
                }
                self.tell(&Report::CaughtUp);
            }
            Err(e) => {
                // A node without all reports must not decide anything: the shim disconnects, and
                // the node connects again.
                self.say(format_args!("cannot read the records: {e}"));
                self.node_is_gone();
            }
        }
    }

    fn tell_record(&mut self, record: Record) {
        let id = record.id;
        self.tell(&match (record.exit, record.started) {
            (Some(exit), _) => Report::Exited { id, exit },
            (None, Some(started)) => Report::Started { id, started },
            (None, None) => Report::Begun { id },
        });
    }

    fn on_commands(&mut self) {
        let Some(node) = &mut self.node else { return };
        let (commands, is_open) = node.read();
        for command in commands {
            match command {
                Command::Start { id, spec, memory } => self.start(id, &spec, &memory),
                Command::Signal { id, signal } => {
                    if let (Some(running), Ok(signal)) =
                        (self.running.get(&id), Signal::try_from(signal))
                    {
                        running.signal(signal);
                    }
                }
                Command::Kill { id } => {
                    if let Some(running) = self.running.get_mut(&id) {
                        running.kill();
                    }
                }
                Command::CloseInput { id } => {
                    if let Some(running) = self.running.get_mut(&id) {
                        running.close_input();
                    }
                }
                Command::Resize { id, width, height } => {
                    if let Some(running) = self.running.get(&id) {
                        running.resize(width, height);
                    }
                }
                Command::Quit => self.stop(Duration::ZERO),
            }
        }
        if !is_open {
            self.node_is_gone();
        }
    }

    fn node_is_gone(&mut self) {
        self.node = None;
        if self.on_loss == OnLoss::Stop {
            self.stop(self.grace.min(GRACE_WITHOUT_NODE));
        }
    }

    /// Sends SIGTERM to every container, kills those that still run after `grace`, and ends the
    /// shim afterwards. Without a grace period the containers are killed at once.
    fn stop(&mut self, grace: Duration) {
        let kill_at = clock::now().saturating_add(grace).unwrap_or(Timestamp::MAX);
        if self.stopping.is_none() {
            // What has ended by now has ended by itself.
            self.reap();
        }
        if self.stopping.is_none() && !grace.is_zero() {
            self.running
                .values()
                .for_each(|r| r.signal(Signal::SIGTERM));
        }
        self.stopping = Some(self.stopping.map_or(kill_at, |before| before.min(kill_at)));
    }

    /// Runs an attempt unless it has a record: the record is on disk before the fork.
    fn start(&mut self, id: AttemptId, spec: &ContainerSpec, memory: &str) {
        if let Some(record) = self.unrecorded.iter().find(|r| r.id == id) {
            return self.tell_record(record.clone());
        }
        match Record::load(&self.pod_dir, &id) {
            Ok(Some(mut record)) => {
                if record.exit.is_none() && !self.running.contains_key(&id) {
                    record.exit = Some(record.lost());
                    self.record_end(record);
                } else {
                    self.tell_record(record);
                }
            }
            Ok(None) => {
                let pod = OfPod {
                    dir: &self.pod_dir,
                    durability: self.durability(),
                    own: self.own,
                    memory,
                };
                let processes = spec.processes.as_ref();
                self.pod_cgroup = processes.map(|processes| processes.pod.clone());
                match Running::start(id, spec, &pod) {
                    Ok(running) => drop(self.running.insert(running.record.id.clone(), running)),
                    Err(record) => self.record_end(*record),
                }
            }
            // It is not known whether the attempt ran, so it must not run: it waits for a disk that
            // can be read and for a node that sends the command again.
            Err(e) => self.say(format_args!("cannot read the record of {id}: {e}")),
        }
    }

    fn tell(&mut self, report: &Report) {
        if self
            .node
            .as_mut()
            .is_some_and(|node| node.write(report).is_err())
        {
            self.node_is_gone();
        }
    }
}

/// A caller's descriptors (a terminal, a pipe of a build) must not live as long as a pod, and are nothing for its programs.
fn close_inherited() {
    #[expect(
        unsafe_code,
        reason = "descriptors that Rust does not own can only be closed by number"
    )]
    // SAFETY: called first thing, when this process owns no descriptor above standard error.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
