//! The pace of a request: its client has to send the body, and to take the answer, at a minimum rate.
//!
//! Whoever does neither holds a place among the requests, and memory, for as long as the connection is alive, and
//! HTTP/2 keeps it alive with pings.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tower::BoxError;

use super::{
    Limits,
    peers::{Peer, Wait},
    refusals::Limit,
    shares::Share,
};
use crate::server::{
    error::{ApiError, Result},
    http::body::ApiBody,
};

/// Bytes a second of a request body, at least.
const SENT_RATE: usize = 1024;
/// Bytes a second of an answer, at least, on average since its begin.
const TAKEN_RATE: usize = 16 * 1024;
/// An answer leaves in pieces of at most this many bytes. HTTP/2 takes a whole piece as soon as the client has room for
/// one byte, so this is what an answer can occupy that counts no more.
const PIECE: usize = 16 * 1024;

/// What a request holds until it is over: its place, and how its body comes along.
#[derive(Debug)]
pub(super) struct Ticket {
    _place: Option<Share>,
    peer: Option<Arc<Peer>>,
    n_arrived: AtomicUsize,
    /// The handler waits for more of the body.
    is_awaited: AtomicBool,
}

impl Ticket {
    pub(super) fn new(place: Option<Share>, peer: Option<Arc<Peer>>) -> Ticket {
        Ticket {
            _place: place,
            peer,
            n_arrived: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
        }
    }

    fn note(&self, limit: Limit) {
        if let Some(peer) = &self.peer {
            peer.note(limit);
        }
    }

    /// Whether so much of the body is there as should be after this time. A body that nobody waits for is not slow.
    fn keeps_pace(&self, waited: Duration) -> bool {
        !self.is_awaited.load(Ordering::Relaxed)
            || is_pace(self.n_arrived.load(Ordering::Relaxed), SENT_RATE, waited)
    }
}

/// Whether so many bytes in this time are at least the rate.
fn is_pace(n: usize, rate: usize, time: Duration) -> bool {
    n as u128 * 1000 >= rate as u128 * time.as_millis()
}

/// The body of a request, which counts what arrives.
pub(super) struct Arriving<B> {
    body: B,
    ticket: Arc<Ticket>,
}

impl<B: Body> Arriving<B> {
    pub(super) fn new(body: B, ticket: Arc<Ticket>) -> Arriving<B> {
        Arriving { body, ticket }
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.ticket.is_awaited.store(false, Ordering::Relaxed);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Arriving<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let ticket = &self.ticket;
        ticket
            .is_awaited
            .store(frame.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let n = frame.data_ref().map_or(0, Bytes::len);
            ticket.n_arrived.fetch_add(n, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits for the answer to a request, unless that takes too long or its body comes too slowly.
pub(super) async fn in_time(
    mut answer: impl Future<Output = Result<Response<ApiBody>, Infallible>> + Unpin,
    ticket: &Ticket,
    limits: &Limits,
) -> Result<Response<ApiBody>> {
    let step = (limits.patience / 3).max(Duration::from_millis(1));
    let mut waited = Duration::ZERO;
    loop {
        let step = step.min(limits.request_timeout.saturating_sub(waited));
        if let Ok(answer) = tokio::time::timeout(step, &mut answer).await {
            let Ok(response) = answer;
            return Ok(response);
        }
        waited += step;
        if waited >= limits.request_timeout {
            return Err(ApiError::timed_out());
        }
        if !ticket.keeps_pace(waited) {
            ticket.note(Limit::Unsent);
            return Err(ApiError::body_too_slow(SENT_RATE));
        }
    }
}

/// The body of an answer. It counts as a request until it is through.
pub(super) struct Leaving {
    body: ApiBody,
    /// What the body has given and has not left yet.
    rest: Bytes,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    wait: Wait,
    /// How long the client may be slower than the rate; `None` for an answer whose source is slow.
    grace: Option<Duration>,
    begun: Option<Instant>,
    n_left: usize,
    ticket: Arc<Ticket>,
}

impl Leaving {
    /// An answer with an end, which the client takes at a minimum rate.
    pub(super) fn new(body: ApiBody, ticket: Arc<Ticket>, grace: Duration) -> Leaving {
        Leaving {
            grace: Some(grace),
            ..Leaving::live(body, ticket)
        }
    }

    /// An answer whose pieces come at any time, such as a watch: the client takes each in time.
    pub(super) fn live(body: ApiBody, ticket: Arc<Ticket>) -> Leaving {
        let peer = ticket.peer.clone();
        Leaving {
            wait: Wait::of(peer),
            ..Leaving::patient(body, ticket)
        }
    }

    /// An answer that the client may take at any pace, such as a log that somebody pages through.
    pub(super) fn patient(body: ApiBody, ticket: Arc<Ticket>) -> Leaving {
        Leaving {
            body,
            rest: Bytes::new(),
            closing: None,
            wait: Wait::of(None),
            grace: None,
            begun: None,
            n_left: 0,
            ticket,
        }
    }

    /// Ends the answer when this happens.
    pub(super) fn until(self, closing: WaitForCancellationFutureOwned) -> Leaving {
        Leaving {
            closing: Some(Box::pin(closing)),
            ..self
        }
    }

    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll_unpin(context).is_ready()
        {
            return Poll::Ready(None);
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end @ (Some(Err(_)) | None) => return Poll::Ready(end),
            }
        }
        if self.is_too_slow() {
            self.ticket.note(Limit::Untaken);
            let why = "the client took the answer more slowly than it may";
            return Poll::Ready(Some(Err(why.into())));
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.n_left += piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Whether the client has taken too little for the time since the first piece. An answer of one piece asks for no time.
    fn is_too_slow(&mut self) -> bool {
        let Some(grace) = self.grace else {
            return false;
        };
        if self.n_left == 0 && self.rest.len() <= PIECE && self.body.is_end_stream() {
            return false;
        }
        let time = self.begun.get_or_insert_with(Instant::now).elapsed();
        time > grace && !is_pace(self.n_left, TAKEN_RATE, time)
    }
}

impl Body for Leaving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // Whoever asks for the next piece has taken the last one.
        this.wait.end();
        let piece = this.poll_piece(context);
        if piece.is_ready() {
            // Also at the end: a compressed answer waits when all of it has been read.
            this.wait.begin();
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let n_rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(n_rest));
        }
        hint.set_lower(hint.lower().saturating_add(n_rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, future, stream};
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;
    use crate::server::http::body;

    fn ticket() -> Arc<Ticket> {
        Arc::new(Ticket::new(None, None))
    }

    /// Code of the answer to a request that is never ready, and the seconds until then.
    async fn given_up(ticket: &Ticket) -> (u16, u64) {
        let started = Instant::now();
        let never = future::pending::<Result<Response<ApiBody>, Infallible>>();
        let refused = in_time(never, ticket, &Limits::default())
            .await
            .unwrap_err();
        (refused.code, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_ends_the_request_before_its_time() {
        // Enough for 25 seconds, or nothing, and no more.
        let some = Bytes::from(vec![b'x'; SENT_RATE * 25]);
        for (frames, expected) in [(vec![], (408, 10)), (vec![some], (408, 30))] {
            let ticket = ticket();
            let n = frames.len();
            let frames = frames
                .into_iter()
                .map(|it| Ok::<_, Infallible>(Frame::data(it)));
            let frames = stream::iter(frames).chain(stream::pending());
            let mut arriving = Arriving::new(StreamBody::new(frames), Arc::clone(&ticket));
            for _ in 0..n {
                assert!(arriving.frame().await.unwrap().is_ok());
            }
            assert!(arriving.frame().now_or_never().is_none());
            assert_eq!(given_up(&ticket).await, expected);
        }

        // All that there was to come, and what nobody has asked for yet.
        let ticket = ticket();
        let mut all = Arriving::new(Full::new(Bytes::from_static(b"a")), Arc::clone(&ticket));
        assert_eq!(given_up(&ticket).await, (504, 60));
        while all.frame().await.is_some() {}
        assert_eq!(given_up(&ticket).await, (504, 60));
    }

    #[tokio::test]
    async fn an_answer_in_time_is_passed_on() {
        let answer = future::ready(Ok(Response::new(body::full(Bytes::from_static(b"a")))));
        let answer = in_time(answer, &ticket(), &Limits::default()).await;
        assert_eq!(answer.unwrap().status(), 200);
    }

    fn leaving(body: ApiBody) -> Leaving {
        Leaving::new(body, ticket(), Duration::from_secs(30))
    }

    #[tokio::test]
    async fn a_large_answer_leaves_in_pieces() {
        let whole = vec![b'x'; PIECE * 2 + 1];
        let mut leaving = leaving(body::full(whole.clone().into()));
        assert_eq!(leaving.size_hint().exact(), Some(whole.len() as u64));
        let mut found = Vec::new();
        while let Some(frame) = leaving.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            found.extend_from_slice(&piece);
            let n_to_come = (whole.len() - found.len()) as u64;
            assert_eq!(leaving.size_hint().exact(), Some(n_to_come));
            assert_eq!(leaving.is_end_stream(), n_to_come == 0);
        }
        assert_eq!(found, whole);
    }

    /// How many pieces a client gets that takes one in each of these times.
    async fn n_taken(mut leaving: Leaving, each: Duration) -> usize {
        let mut n = 0;
        while let Some(Ok(_)) = leaving.frame().await {
            n += 1;
            tokio::time::sleep(each).await;
        }
        n
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_taken_too_slowly_ends_after_its_grace() {
        let large = || body::full(vec![b'x'; PIECE * 100].into());
        let slow = Duration::from_secs(2);
        let fast = n_taken(leaving(large()), Duration::from_millis(900)).await;
        assert_eq!(fast, 100);
        let n = n_taken(leaving(large()), slow).await;
        assert!((15..=16).contains(&n), "{n}");
        // Who waits for a slow source is not slow.
        let source = stream::unfold(0, |n| async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            (n < 100).then_some((Ok(Bytes::from_static(b"x")), n + 1))
        });
        let log = body::stream("text/plain", source).into_body();
        assert_eq!(n_taken(Leaving::live(log, ticket()), slow).await, 100);
    }
}
