//! A container attempt between its fork and its record.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use nix::{
    poll::PollFlags,
    sys::{
        signal::{Signal, kill},
        wait::WaitStatus,
    },
    unistd::Pid,
};

use super::{
    cgroup,
    container::{Failure, InitReport, Launched, OwnIds, Reports, launch},
    input::Input,
    layers,
    log::{Flow, LineReader, LogFile},
    place::Place,
    protocol::{AttemptId, ContainerSpec, Exit, ExitReason, Sandbox, Started},
    record::{Durability, RECORD_FILE, Record, attempt_dir, boot_id, live_start_ticks},
};
use crate::{clock, logs::cri_content};

/// Kubernetes keeps this much of a termination message.
const MAX_MESSAGE: usize = 4096;
/// And this much of the log where it stands in for one.
const MAX_LOG_BYTES: usize = 2048;
const MAX_LOG_LINES: usize = 80;
/// Holds that many bytes of any log: at least one entry of the longest kind is in it.
const LOG_WINDOW: u64 = 64 * 1024;

/// What of a container has something to say.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Reports,
    Stdout,
    Stderr,
    Input,
}

/// What the attempts of a pod have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfPod<'a> {
    pub(super) dir: &'a Path,
    pub(super) durability: Durability,
    pub(super) own: OwnIds,
    /// What the node remembers of the pod.
    pub(super) memory: &'a str,
}

/// A live attempt.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) record: Record,
    pub(super) init: Pid,
    /// The process that gets SIGKILL: the init of a pid namespace, else the program (its init then kills the rest).
    victim: Option<Pid>,
    /// A kill that came before there was a victim.
    is_doomed: bool,
    reports: Reports,
    end: Option<InitReport>,
    input: Input,
    stdout: Option<LineReader>,
    stderr: Option<LineReader>,
    log: LogFile,
    log_path: PathBuf,
    /// Output could not be written: said once, or a full disk would get fuller by it.
    has_lost_output: bool,
    fallback_to_logs: bool,
    /// The cgroup of its memory limit.
    cgroup: Option<PathBuf>,
}

impl Running {
    /// Records the attempt, then forks it. On failure returns the record of an attempt that never ran.
    pub(super) fn start(
        id: AttemptId,
        spec: &ContainerSpec,
        pod: &OfPod<'_>,
    ) -> Result<Self, Box<Record>> {
        let record = Record {
            place: Place::of(pod.dir),
            ..Record::new(pod.dir, id, boot_id())
        };
        let scratch = attempt_dir(pod.dir, &record.id);
        let launched = make_directories(&scratch, spec)
            .and_then(|()| record.begin(pod.dir, pod.durability, pod.memory))
            .map_err(|e| format!("cannot make its directories and record: {e}"))
            .and_then(|()| {
                if let Some(memory) = &spec.memory {
                    cgroup::make(memory).map_err(|e| format!("cannot limit its memory: {e}"))?;
                }
                let launched = launch(spec, &scratch, pod.own);
                launched.map_err(|e| format!("cannot start a process: {e}"))
            });
        match launched {
            Ok(Launched {
                init,
                reports,
                input,
                stdout,
                stderr,
            }) => Ok(Self {
                record,
                init,
                victim: (!matches!(spec.sandbox, Sandbox::None)).then_some(init),
                is_doomed: false,
                reports,
                end: None,
                input,
                stdout: Some(stdout),
                stderr,
                log: LogFile::new(spec.log.clone()),
                log_path: spec.log.clone(),
                has_lost_output: false,
                fallback_to_logs: spec.termination.fallback_to_logs,
                cgroup: spec.memory.as_ref().map(|memory| memory.cgroup.clone()),
            }),
            Err(why) => {
                let message = start_error(&record.id, &why);
                let exit = Some(ended(128, None, ExitReason::StartError, None, message));
                Err(Box::new(Record { exit, ..record }))
            }
        }
    }

    /// The descriptors to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = (Part, BorrowedFd<'_>, PollFlags)> {
        let read = PollFlags::POLLIN;
        let reports = self
            .end
            .is_none()
            .then(|| (Part::Reports, self.reports.socket.as_fd(), read));
        let stdout = self.stdout.as_ref();
        let stdout = stdout.map(|r| (Part::Stdout, r.as_fd(), read));
        let stderr = self.stderr.as_ref();
        let stderr = stderr.map(|r| (Part::Stderr, r.as_fd(), read));
        let input = self.input.fd().map(|(fd, flags)| (Part::Input, fd, flags));
        [reports, stdout, stderr, input].into_iter().flatten()
    }

    /// Reads what one part has to report; returns the start when it has just become known.
    pub(super) fn advance(&mut self, part: Part) -> Option<Started> {
        match part {
            Part::Reports => return self.take_reports(),
            Part::Stdout | Part::Stderr => self.drain(part),
            Part::Input => self.input.advance(),
        }
        None
    }

    /// Moves some of what a stream holds into the log: not all that a container in flood can give, or nothing else would
    /// get its turn.
    fn drain(&mut self, part: Part) {
        let reader = match part {
            Part::Stdout => &mut self.stdout,
            Part::Stderr => &mut self.stderr,
            Part::Reports | Part::Input => return,
        };
        let Some(open) = reader else { return };
        match open.drain(&mut self.log) {
            Ok(Flow::Open) => {}
            Ok(Flow::Ended) => *reader = None,
            Err(e) if !self.has_lost_output => {
                self.has_lost_output = true;
                drop(writeln!(
                    io::stderr(),
                    "shim of pod {}: lost output of {}: {e}",
                    self.record.pod,
                    self.record.id
                ));
            }
            Err(_) => {}
        }
    }

    pub(super) fn close_input(&mut self) {
        self.input.close();
    }

    pub(super) fn resize(&self, width: u16, height: u16) {
        self.input.resize(width, height);
    }

    pub(super) fn signal(&self, signal: Signal) {
        // An init that has just ended needs no signal; its SIGCHLD is on the way.
        let _ = kill(self.init, signal);
    }

    pub(super) fn kill(&mut self) {
        self.is_doomed = true;
        if let Some(victim) = self.victim {
            let _ = kill(victim, Signal::SIGKILL);
        }
    }

    /// Completes the record once the init is reaped.
    pub(super) fn finish(mut self, status: WaitStatus) -> Record {
        self.take_reports();
        self.drain(Part::Stdout);
        self.drain(Part::Stderr);
        for reader in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            drop(reader.finish(&mut self.log));
        }
        let started_at = self.record.started.as_ref().map(|s| s.at);
        let exit = match self.end.take() {
            Some(InitReport::Failed(Failure { code, message })) => {
                let message = start_error(&self.record.id, &message);
                ended(code, None, ExitReason::StartError, None, message)
            }
            Some(InitReport::Signalled(signal)) => ended(
                128 + signal,
                Some(signal),
                ExitReason::Error,
                started_at,
                String::new(),
            ),
            Some(InitReport::Exited(0)) => {
                ended(0, None, ExitReason::Completed, started_at, String::new())
            }
            Some(InitReport::Exited(code)) => {
                ended(code, None, ExitReason::Error, started_at, String::new())
            }
            // The init itself was killed, and every process with it.
            Some(InitReport::Started(_)) | None => {
                let (code, signal) = match status {
                    WaitStatus::Exited(_, code) => (code, None),
                    WaitStatus::Signaled(_, signal, _) => {
                        (128 + signal as i32, Some(signal as i32))
                    }
                    WaitStatus::Stopped(..)
                    | WaitStatus::PtraceEvent(..)
                    | WaitStatus::PtraceSyscall(_)
                    | WaitStatus::Continued(_)
                    | WaitStatus::StillAlive => (137, Some(9)),
                };
                ended(code, signal, ExitReason::Error, started_at, String::new())
            }
        };
        let has_run_out = self.leave_cgroup();
        let exit = Exit {
            message: self.message(&exit),
            reason: if has_run_out && exit.reason == ExitReason::Error {
                ExitReason::OomKilled
            } else {
                exit.reason
            },
            ..exit
        };
        Record {
            exit: Some(exit),
            ..self.record
        }
    }

    /// Removes the cgroup of a container in which nothing runs any more. Returns whether it has run out of memory.
    fn leave_cgroup(&self) -> bool {
        let Some(cgroup) = &self.cgroup else {
            return false;
        };
        let has_run_out = cgroup::has_run_out(cgroup);
        cgroup::remove(cgroup);
        has_run_out
    }

    fn take_reports(&mut self) -> Option<Started> {
        let mut news = None;
        for report in self.reports.read() {
            match report {
                InitReport::Started(program) => {
                    self.victim = self.victim.or(Some(Pid::from_raw(program)));
                    let started = Started {
                        at: clock::now(),
                        pid: self.init.as_raw(),
                    };
                    self.record.start_ticks = live_start_ticks(started.pid);
                    self.record.started = Some(started.clone());
                    news = Some(started);
                    if self.is_doomed {
                        self.kill();
                    }
                }
                end
                @ (InitReport::Failed(_) | InitReport::Exited(_) | InitReport::Signalled(_)) => {
                    self.end = Some(end);
                }
            }
        }
        news
    }

    fn message(&self, exit: &Exit) -> String {
        if exit.reason == ExitReason::StartError {
            return exit.message.clone();
        }
        let mut bytes = Vec::new();
        // The file is the container's: it may be of any size, and hold anything.
        if let Some(file) = &self.reports.message {
            drop(file.take(MAX_MESSAGE as u64).read_to_end(&mut bytes));
        }
        if bytes.is_empty() && exit.code != 0 && self.fallback_to_logs {
            return end_of_log(&self.log_path).unwrap_or_default();
        }
        let mut message = String::from_utf8_lossy(&bytes).into_owned();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message
    }
}

/// Makes the directory of the attempt, and that of its log.
fn make_directories(scratch: &Path, spec: &ContainerSpec) -> io::Result<()> {
    fs::create_dir_all(scratch)?;
    spec.log.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Removes what an ended attempt wrote into its private layers, and all that was made for it but its record.
pub(super) fn clear_scratch(pod_dir: &Path, id: &AttemptId) {
    let scratch = attempt_dir(pod_dir, id);
    layers::remove(&scratch);
    for entry in fs::read_dir(&scratch).into_iter().flatten().flatten() {
        if entry.file_name() == RECORD_FILE {
            continue;
        }
        // What cannot be removed now goes with the pod's directory.
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            drop(longshore_files::remove_tree(&entry.path()));
        } else {
            drop(fs::remove_file(entry.path()));
        }
    }
}

fn ended(
    code: i32,
    signal: Option<i32>,
    reason: ExitReason,
    started_at: Option<jiff::Timestamp>,
    message: String,
) -> Exit {
    Exit {
        code,
        signal,
        reason,
        started_at,
        finished_at: clock::now(),
        message,
    }
}

fn start_error(id: &AttemptId, why: &str) -> String {
    format!("cannot start container {}: {why}", id.container)
}

/// The last lines of a log, of which no more is read than can be needed.
fn end_of_log(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(LOG_WINDOW);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(LOG_WINDOW).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line of the window has lost its head.
    let lines = text.lines().skip(usize::from(skipped > 0));
    let lines: Vec<&str> = lines.map(cri_content).collect();
    let mut tail = lines[lines.len().saturating_sub(MAX_LOG_LINES)..].join("\n");
    let mut cut = tail.len().saturating_sub(MAX_LOG_BYTES);
    while !tail.is_char_boundary(cut) {
        cut += 1;
    }
    Ok(tail.split_off(cut))
}
