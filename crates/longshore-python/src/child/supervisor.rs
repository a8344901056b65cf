//! The supervisor of one child: one loop over everything that can happen.

use std::{future::Future, io, pin::pin, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use rmpv::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    time::{Instant, sleep_until, timeout},
};

use super::{
    Child,
    verdict::{self, Cause},
};
use crate::{
    answers::{Answer, Answers},
    end::{Ended, Exited, TooLarge, TooLong},
    frame::{Decoder, Frame, FrameError},
    keeper::{Process, Tell},
    limits::{Limits, MEMORY_INTERVAL},
    tail::Tail,
};

/// From SIGKILL to the keeper's report. A process in an uninterruptible wait may need longer; it is left to the system.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// The answers that are being made.
type Due<'a> = FuturesUnordered<BoxFuture<'a, (u64, Answer)>>;

/// What happened.
enum Event {
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Answered(u64, Answer),
    Printed(usize),
    Ended(Exited),
    Stop,
    Timer(Timer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Wall,
    Silence,
    Linger,
    Grace,
    Kill,
    Memory,
}

pub(super) struct Supervisor<'a, A> {
    process: Process,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    output: Option<pipe::Receiver>,
    limits: Limits,
    started_at: Instant,
    answers: &'a A,
    decoder: Decoder,
    /// Bytes that wait to be written.
    pending: Vec<u8>,
    /// How many of them are written.
    n_written: usize,
    tail: Tail,
    cause: Option<Cause>,
    /// When the child last said something, or got its last answer.
    heard_at: Instant,
    /// When the child closed its side.
    closed_at: Option<Instant>,
    terminated_at: Option<Instant>,
    killed_at: Option<Instant>,
    measured_at: Instant,
    chunk: Vec<u8>,
    printed: Vec<u8>,
}

impl<'a, A: Answers> Supervisor<'a, A> {
    pub(super) fn new(child: Child, answers: &'a A) -> Self {
        let (reader, writer) = UnixStream::into_split(child.frames);
        Self {
            process: child.process,
            reader,
            writer,
            output: Some(child.output),
            started_at: child.started_at,
            answers,
            decoder: Decoder::new(child.limits.frame),
            pending: Vec::new(),
            n_written: 0,
            tail: Tail::new(child.limits.output),
            limits: child.limits,
            cause: None,
            heard_at: child.started_at,
            closed_at: None,
            terminated_at: None,
            killed_at: None,
            measured_at: child.started_at,
            chunk: vec![0; CHUNK],
            printed: vec![0; 4096],
        }
    }

    pub(super) async fn run(
        mut self,
        first: Option<Value>,
        stop: impl Future<Output = ()>,
    ) -> Ended {
        let mut stop = pin!(stop);
        let mut due: Due<'a> = FuturesUnordered::new();
        let answers = self.answers;
        if let Some(first) = first {
            self.write(&Frame::new(0, first));
        }
        let exited = loop {
            while let Some(request) = self.next_request(due.len()) {
                due.push(Box::pin(answer(answers, request)));
            }
            let has_room = self.has_room(due.len());
            let (timer, at) = self.next_timer(due.is_empty());
            let event = tokio::select! {
                exited = self.process.wait() => Event::Ended(exited),
                read = self.reader.read(&mut self.chunk),
                    if self.closed_at.is_none() && self.killed_at.is_none() && has_room => Event::Read(read),
                written = self.writer.write(&self.pending[self.n_written..]), if !self.pending.is_empty() => Event::Written(written),
                Some((id, answer)) = due.next() => Event::Answered(id, answer),
                n = read_output(&mut self.output, &mut self.printed) => Event::Printed(n),
                () = &mut stop, if self.terminated_at.is_none() => Event::Stop,
                () = sleep_until(at) => Event::Timer(timer),
            };
            if let Some(exited) = self.handle(event, due.is_empty()) {
                break exited;
            }
        };
        self.finish(due, exited).await
    }

    /// Whether another request may be answered. A child that asks and never reads would fill our memory else.
    fn has_room(&self, n_due: usize) -> bool {
        n_due < self.limits.n_in_flight && self.pending.len() < CHUNK
    }

    /// The next request, where there is room for one more.
    fn next_request(&mut self, n_due: usize) -> Option<Frame> {
        if self.killed_at.is_some() || !self.has_room(n_due) {
            return None;
        }
        match self.decoder.next_frame() {
            Ok(request) => {
                if request.is_some() {
                    self.heard_at = Instant::now();
                }
                request
            }
            Err(error) => {
                self.end_for(error.into());
                None
            }
        }
    }

    /// What we wait for at most. The look at the memory comes round for ever, so there always is a next timer.
    fn next_timer(&self, is_idle: bool) -> (Timer, Instant) {
        let memory = (Timer::Memory, self.measured_at + MEMORY_INTERVAL);
        let mut timers = vec![memory];
        if let Some(at) = self.killed_at {
            timers.push((Timer::Kill, at + KILL_LIMIT));
        } else if let Some(at) = self.terminated_at {
            timers.push((Timer::Grace, at + self.limits.grace));
        } else {
            timers.extend(
                self.limits
                    .wall
                    .map(|wall| (Timer::Wall, self.started_at + wall)),
            );
            if let Some(at) = self.closed_at {
                timers.push((Timer::Linger, at + self.limits.linger));
            } else if is_idle {
                timers.extend(
                    self.limits
                        .silence
                        .map(|most| (Timer::Silence, self.heard_at + most)),
                );
            }
        }
        timers
            .into_iter()
            .min_by_key(|(_, at)| *at)
            .unwrap_or(memory)
    }

    fn handle(&mut self, event: Event, is_idle: bool) -> Option<Exited> {
        match event {
            Event::Ended(exited) => return Some(exited),
            Event::Read(Ok(n @ 1..)) => self.decoder.push(&self.chunk[..n]),
            Event::Read(_) => self.closed_at = Some(Instant::now()),
            Event::Written(Ok(n)) => {
                self.n_written += n;
                if self.n_written == self.pending.len() {
                    self.forget_pending();
                }
                self.heard_at = Instant::now();
            }
            // The child reads no more. Whether that is wrong shows when it ends.
            Event::Written(Err(_)) => self.forget_pending(),
            Event::Answered(id, answer) => self.write(&answer.into_frame(id)),
            Event::Printed(n) => self.tail.push(&self.printed[..n]),
            Event::Stop => {
                self.cause.get_or_insert(Cause::Stop);
                self.terminated_at = Some(Instant::now());
                self.process.tell(Tell::Terminate);
            }
            Event::Timer(timer) => return self.ring(timer, is_idle),
        }
        None
    }

    fn ring(&mut self, timer: Timer, is_idle: bool) -> Option<Exited> {
        match timer {
            Timer::Memory => self.look_at_memory(),
            Timer::Kill => return Some(self.process.abandon()),
            Timer::Grace => self.kill(),
            Timer::Wall => self.end_for_time(TooLong::Wall, self.limits.wall),
            Timer::Silence if is_idle && self.pending.is_empty() => {
                self.end_for_time(TooLong::Silence, self.limits.silence);
            }
            // An answer is on its way, or the child does not read it, for which there is the limit of wall time.
            Timer::Silence => self.heard_at = Instant::now(),
            Timer::Linger => {
                let after = self.limits.linger;
                self.end_for(Cause::ClosedPipe { after });
            }
        }
        None
    }

    fn look_at_memory(&mut self) {
        self.measured_at = Instant::now();
        let found = self.process.memory();
        if let Some(max) = self.limits.memory.filter(|max| found > *max) {
            self.end_for(Cause::TooLarge(TooLarge::Memory { found, max }));
        }
    }

    fn end_for_time(&mut self, which: fn(Duration) -> TooLong, limit: Option<Duration>) {
        self.end_for(Cause::TooLong(which(limit.unwrap_or_default())));
    }

    fn end_for(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
        self.kill();
    }

    fn kill(&mut self) {
        if self.killed_at.is_none() {
            self.killed_at = Some(Instant::now());
            self.process.tell(Tell::Kill);
        }
    }

    fn forget_pending(&mut self) {
        self.pending.clear();
        self.n_written = 0;
    }

    fn write(&mut self, frame: &Frame) {
        match frame.encode(self.limits.frame) {
            Ok(mut bytes) => self.pending.append(&mut bytes),
            Err(FrameError::TooLarge { found, max }) => {
                self.end_for(Cause::TooLarge(TooLarge::Answer { found, max }));
            }
            Err(other) => self.end_for(Cause::Garbage(other)),
        }
    }

    /// The child has ended, and with it all that could write: reads what is left, and answers it for the sake of the
    /// caller, who may wait for the last word of the child.
    async fn finish(mut self, mut due: Due<'a>, exited: Exited) -> Ended {
        while let Some(n @ 1..) = self
            .output
            .as_ref()
            .and_then(|o| o.try_read(&mut self.printed).ok())
        {
            self.tail.push(&self.printed[..n]);
        }
        let rest_limit = self.limits.linger;
        let mut last = Ok(());
        if self.killed_at.is_none() {
            while let Ok(n @ 1..) = self.reader.try_read(&mut self.chunk) {
                self.decoder.push(&self.chunk[..n]);
            }
            // Nobody reads the answers any more.
            self.forget_pending();
            let answers = self.answers;
            let rest = async {
                loop {
                    while let Some(request) = self.next_request(due.len()) {
                        due.push(Box::pin(answer(answers, request)));
                    }
                    if due.next().await.is_none() {
                        break;
                    }
                }
            };
            let _ = timeout(rest_limit, rest).await;
            last = self.decoder.finish();
        }
        Ended {
            end: verdict::end(self.cause, last, exited.exit),
            output: self.tail,
            usage: exited.usage,
            n_left: exited.n_left,
        }
    }
}

async fn answer<A: Answers>(answers: &A, request: Frame) -> (u64, Answer) {
    let id = request.id;
    (id, answers.answer(request).await)
}

/// How many bytes were printed; never ready once the pipe is closed.
async fn read_output(output: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> usize {
    loop {
        match output {
            None => std::future::pending().await,
            Some(pipe) => match pipe.read(buffer).await {
                Ok(n @ 1..) => return n,
                Ok(_) | Err(_) => *output = None,
            },
        }
    }
}
