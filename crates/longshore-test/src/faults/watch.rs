//! Watches under faults: late, cut, expired, without bookmarks, repeated.

use std::{collections::VecDeque, future::pending, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Stream, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use super::{
    Process, WatchFault,
    layer::{Asked, FaultBody, answer, status, streamed},
};

/// Events that wait for their time at once; a server would close a slower watch.
const IN_FLIGHT: usize = 1024;

/// Connects a watch and puts the faults of the plan on its events.
pub(super) async fn connect<S, ReqBody, B>(
    process: &Process,
    asked: &Asked,
    request: Request<ReqBody>,
    inner: S,
) -> Result<Response<FaultBody>, BoxError>
where
    S: Service<Request<ReqBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let pass = match process.before(&asked.what()).await {
        Ok(pass) => pass,
        Err(injected) => return answer(injected),
    };
    if let Some(refused) = process.refuse_watch(asked, pass.point().n) {
        return refused;
    }
    let response = inner.oneshot(request).await.map_err(Into::into)?;
    if let Err(injected) = pass.after().await {
        return answer(injected);
    }
    let (parts, body) = response.into_parts();
    if !parts.status.is_success() {
        let body = body.map_err(Into::into).boxed_unsync();
        return Ok(Response::from_parts(parts, body));
    }
    let repeated = process.repeated(asked);
    let repeated = stream::iter(repeated.map(|line| Ok(Frame::data(line))));
    let delivered = Delivery::new(process, asked).through(lines(body));
    Ok(streamed(parts, repeated.chain(delivered)))
}

/// The events of a body, one line each.
fn lines<B>(body: B) -> impl Stream<Item = Result<Bytes, BoxError>> + Send
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let body = body.map_err(Into::into).boxed_unsync();
    let state = (body, BytesMut::new(), VecDeque::new());
    stream::unfold(state, |(mut body, mut rest, mut ready)| async move {
        loop {
            if let Some(line) = ready.pop_front() {
                return Some((Ok(line), (body, rest, ready)));
            }
            match body.frame().await? {
                Ok(frame) => rest.extend(frame.into_data().unwrap_or_default()),
                Err(error) => return Some((Err(error), (body, rest, ready))),
            }
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                ready.push_back(rest.split_to(end + 1).freeze());
            }
        }
    })
}

/// The faults of one connection.
struct Delivery {
    process: Process,
    resource: String,
    late: Duration,
    cut_after: Option<u32>,
    cut_every: Option<Duration>,
    is_without_bookmarks: bool,
}

impl Delivery {
    fn new(process: &Process, asked: &Asked) -> Self {
        let late = process.plan_find(|fault| match fault {
            WatchFault::Late { resource, by } => asked.is_of(resource.as_deref()).then_some(*by),
            WatchFault::CutAfter(_)
            | WatchFault::CutEvery { .. }
            | WatchFault::Outage { .. }
            | WatchFault::Expire { .. }
            | WatchFault::ExpireOnConnect { .. }
            | WatchFault::NoBookmarks
            | WatchFault::Repeat => None,
        });
        let cut_every = process.plan_find(|fault| match fault {
            WatchFault::CutEvery { resource, time } => {
                asked.is_of(resource.as_deref()).then_some(*time)
            }
            WatchFault::CutAfter(_)
            | WatchFault::Late { .. }
            | WatchFault::Outage { .. }
            | WatchFault::Expire { .. }
            | WatchFault::ExpireOnConnect { .. }
            | WatchFault::NoBookmarks
            | WatchFault::Repeat => None,
        });
        Self {
            process: process.clone(),
            resource: asked.resource.clone(),
            late: late.unwrap_or_default(),
            cut_after: process.plan_find(|fault| match fault {
                WatchFault::CutAfter(n) => Some(*n),
                WatchFault::Late { .. }
                | WatchFault::CutEvery { .. }
                | WatchFault::Outage { .. }
                | WatchFault::Expire { .. }
                | WatchFault::ExpireOnConnect { .. }
                | WatchFault::NoBookmarks
                | WatchFault::Repeat => None,
            }),
            cut_every,
            is_without_bookmarks: process.plan_has(|fault| *fault == WatchFault::NoBookmarks),
        }
    }

    fn through(
        self,
        lines: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    ) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send {
        let late = self.late;
        let end = match self.cut_every {
            Some(time) => tokio::time::sleep(time).boxed(),
            None => pending().boxed(),
        };
        // Each line is due a fixed time after its arrival, so the order is kept.
        let due = lines
            .map(move |line| {
                let at = Instant::now() + late;
                async move {
                    if !late.is_zero() {
                        tokio::time::sleep_until(at).await;
                    }
                    line
                }
            })
            .buffered(IN_FLIGHT);
        let lines: Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>> = Box::pin(due);
        let delivered = stream::unfold(
            (self, lines, 0),
            |(delivery, mut lines, mut n)| async move {
                loop {
                    if delivery.cut_after.is_some_and(|limit| n >= limit) {
                        return None;
                    }
                    let line = lines.next().await?;
                    delivery.process.live().await;
                    let line = match line {
                        Ok(line) => line,
                        Err(error) => return Some((Err(error), (delivery, lines, n))),
                    };
                    match delivery.deliver(line) {
                        Delivered::Passed(line) => {
                            n += 1;
                            return Some((Ok(Frame::data(line)), (delivery, lines, n)));
                        }
                        Delivered::Dropped => {}
                        Delivered::Lost => return None,
                        Delivered::Expired => {
                            let end = stream::empty().boxed();
                            return Some((Ok(Frame::data(expired())), (delivery, end, n)));
                        }
                    }
                }
            },
        );
        delivered.take_until(end)
    }

    /// Delivers an event to the client, or drops or changes it as the plan says.
    fn deliver(&self, line: Bytes) -> Delivered {
        if is_bookmark(&line) {
            if self.is_without_bookmarks {
                return Delivered::Dropped;
            }
            return Delivered::Passed(line);
        }
        let seen = self.process.count_event(&self.resource, &line);
        let end = self.process.plan_find(|fault| match fault {
            WatchFault::Expire { resource, n } if *resource == self.resource && *n == seen => {
                Some(Delivered::Expired)
            }
            WatchFault::Outage { resource, n, time }
                if *resource == self.resource && *n == seen =>
            {
                self.process.begin_outage(&self.resource, *time);
                Some(Delivered::Lost)
            }
            WatchFault::Late { .. }
            | WatchFault::Outage { .. }
            | WatchFault::CutAfter(_)
            | WatchFault::CutEvery { .. }
            | WatchFault::Expire { .. }
            | WatchFault::ExpireOnConnect { .. }
            | WatchFault::NoBookmarks
            | WatchFault::Repeat => None,
        });
        match end {
            None => Delivered::Passed(line),
            Some(end) => {
                self.process.faults.strike();
                self.process
                    .note(format!("{} event #{seen}: {end:?}", self.resource));
                end
            }
        }
    }
}

/// What happened to an event.
#[derive(Debug)]
enum Delivered {
    Passed(Bytes),
    Dropped,
    /// It and the watch are gone, without a word.
    Lost,
    /// It is replaced by an in-stream 410, which ends the watch.
    Expired,
}

fn expired() -> Bytes {
    let event = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected: too old resource version", "reason": "Expired", "code": 410,
    }});
    format!("{event}\n").into()
}

fn is_bookmark(line: &[u8]) -> bool {
    let head = line.get(..40).unwrap_or(line);
    head.windows(10).any(|part| part == b"\"BOOKMARK\"")
}

impl Process {
    fn plan_has(&self, is_wanted: impl Fn(&WatchFault) -> bool) -> bool {
        self.faults.shared.plan.watches.iter().any(is_wanted)
    }

    fn plan_find<T>(&self, wanted: impl Fn(&WatchFault) -> Option<T>) -> Option<T> {
        self.faults.shared.plan.watches.iter().find_map(wanted)
    }

    /// The answer in place of a watch: none yet in an outage, 410 after it.
    fn refuse_watch(
        &self,
        asked: &Asked,
        connection: u32,
    ) -> Option<Result<Response<FaultBody>, BoxError>> {
        let mut state = self.faults.state();
        let until = state.outages.get(&asked.resource).copied();
        if until.is_some_and(|until| Instant::now() < until) {
            return Some(status(503, "ServiceUnavailable", "injected outage", 0));
        }
        let is_over = state.outages.remove(&asked.resource).is_some();
        drop(state);
        let is_expired = self.plan_has(|fault| {
            matches!(fault, WatchFault::ExpireOnConnect { resource, n }
                if *resource == asked.resource && *n == connection)
        });
        (is_over || is_expired).then(|| {
            self.faults.strike();
            self.note(format!(
                "watch {} #{connection}: 410 on connect",
                asked.resource
            ));
            status(410, "Expired", "injected: too old resource version", 0)
        })
    }

    fn begin_outage(&self, resource: &str, time: Duration) {
        let mut state = self.faults.state();
        let until = Instant::now() + time;
        state.outages.insert(resource.to_owned(), until);
    }

    fn note(&self, line: String) {
        self.faults.note(line);
    }

    fn count_event(&self, resource: &str, line: &Bytes) -> u32 {
        let mut state = self.faults.state();
        let n = state.watch_events.entry(resource.to_owned()).or_insert(0);
        *n += 1;
        let n = *n;
        state.log.push(format!("{resource} event #{n}"));
        state.last_events.insert(resource.to_owned(), line.clone());
        n
    }

    /// A watch that starts at a list repeats no event, because no API server sends what is older than the list.
    pub(super) fn forget_events(&self, listed: &Asked) {
        self.faults.state().last_events.remove(&listed.resource);
    }

    /// The event that is sent again at the start of a resumed watch.
    fn repeated(&self, asked: &Asked) -> impl Iterator<Item = Bytes> + Send + use<> {
        let is_resumed = asked
            .version
            .as_deref()
            .is_some_and(|version| version != "0");
        let wanted = is_resumed && self.plan_has(|fault| *fault == WatchFault::Repeat);
        let state = self.faults.state();
        let last = state.last_events.get(&asked.resource).cloned();
        last.filter(|_| wanted).into_iter()
    }
}
