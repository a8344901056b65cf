//! Whether the API server answers this process at all.
//!
//! No request is sent to find out: [`NoteAnswers`] watches the requests that the process sends anyway. Every replica
//! with a lease renews it, or looks whether another replica does, every few seconds.
//!
//! A path to the API server may stall without being cut: then requests do not fail, and wait. So a request that is
//! under way for long counts as much as one that failed. Any answer of the API server ends the silence, a refusal too.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use tokio::time::Instant;
use tower::Service;

/// After so much silence the process doubts that it reaches the API server. API servers answer reads within a second.
const DOUBTED: Duration = Duration::from_secs(3);
/// After so much silence the process counts as cut off: longer than an API server takes that is busy, or that another
/// one replaces behind a load balancer.
pub const CUT_OFF: Duration = Duration::from_secs(10);
/// A request that was given up sooner says nothing about the API server.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the requests of a process say about the path to its API server. Clones share it; the default one has seen no
/// request, and never doubts.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<Silence>>);

/// The requests since the last answer.
#[derive(Debug, Default)]
struct Silence {
    /// Requests under way.
    n_open: usize,
    /// Since when there has always been a request under way, and none was answered.
    open_since: Option<Instant>,
    answered_at: Option<Instant>,
    /// When the first of the requests that failed was sent, and when the last one failed.
    failed: Option<(Instant, Instant)>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Its caller gave it up.
    GivenUp,
    /// There was no connection, or it broke.
    Failed,
    /// The API server answered.
    Answered,
}

impl Silence {
    fn asked(&mut self, now: Instant) {
        self.n_open += 1;
        self.open_since.get_or_insert(now);
    }

    fn ended(&mut self, asked_at: Instant, ending: Ending, now: Instant) {
        self.n_open = self.n_open.saturating_sub(1);
        match ending {
            Ending::Answered => {
                self.answered_at = Some(now);
                self.failed = None;
                self.open_since = Some(now);
            }
            Ending::GivenUp if now.duration_since(asked_at) < PATIENCE => {}
            Ending::GivenUp | Ending::Failed => {
                let since = self.answered_at.map_or(asked_at, |at| at.max(asked_at));
                let since = self.failed.map_or(since, |(first, _)| first);
                self.failed = Some((since, now));
            }
        }
        if self.n_open == 0 {
            self.open_since = None;
        }
    }

    /// For how long requests have had no answer. Time without any request does not count, unless requests failed before
    /// and after it.
    fn length(&self, now: Instant) -> Duration {
        let waits = self
            .open_since
            .filter(|since| now.duration_since(*since) >= PATIENCE);
        let failed_since = self.failed.map(|(first, _)| first);
        let Some(since) = failed_since.into_iter().chain(waits).min() else {
            return Duration::ZERO;
        };
        let until = match (waits, self.failed) {
            (None, Some((_, last))) => last,
            (Some(_), _) | (None, None) => now,
        };
        until.duration_since(since)
    }
}

impl Contact {
    /// Whether the API server has been silent for some seconds.
    pub fn is_doubted(&self) -> bool {
        self.silence() >= DOUBTED
    }

    /// Whether the API server has been silent for [`CUT_OFF`].
    pub fn is_cut_off(&self) -> bool {
        self.silence() >= CUT_OFF
    }

    fn silence(&self) -> Duration {
        self.lock().length(Instant::now())
    }

    fn asked(&self) -> Asked {
        let at = Instant::now();
        self.lock().asked(at);
        Asked {
            contact: self.clone(),
            at,
            ending: Ending::GivenUp,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Silence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
#[derive(Debug)]
struct Asked {
    contact: Contact,
    at: Instant,
    ending: Ending,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let now = Instant::now();
        self.contact.lock().ended(self.at, self.ending, now);
    }
}

/// A service that notes in a [`Contact`] which of its requests are answered.
#[derive(Clone, Debug)]
pub struct NoteAnswers<S> {
    service: S,
    contact: Contact,
}

impl<S> NoteAnswers<S> {
    /// Notes the answers of `service`, which sends to the API server and keeps no request back.
    pub fn new(service: S, contact: Contact) -> Self {
        Self { service, contact }
    }
}

impl<S, In, Out> Service<Request<In>> for NoteAnswers<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let contact = self.contact.clone();
        let answer = self.service.call(request);
        Box::pin(async move {
            // From the first poll on: the layers around this one keep requests back by not polling them.
            let mut asked = contact.asked();
            let answered = answer.await;
            asked.ending = match &answered {
                Ok(_) => Ending::Answered,
                Err(_) => Ending::Failed,
            };
            answered
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};
    use tower::service_fn;

    use super::*;

    fn request() -> Request<()> {
        Request::new(())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Sends a request that is never answered, and gives it up after this time.
    async fn unanswered(contact: &Contact, limit: Duration) {
        let silent =
            service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, ()>>());
        let mut silent = NoteAnswers::new(silent, contact.clone());
        let answer = timeout(limit, silent.call(request())).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    /// Sends a request that ends at once.
    async fn ends(contact: &Contact, answer: Result<(), ()>) {
        let service = service_fn(move |_: Request<()>| async move { answer.map(Response::new) });
        let mut service = NoteAnswers::new(service, contact.clone());
        assert_eq!(service.call(request()).await.is_ok(), answer.is_ok());
    }

    fn state(contact: &Contact) -> (bool, bool) {
        (contact.is_doubted(), contact.is_cut_off())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_one_after_the_other_cut_off_and_an_answer_ends_it() {
        let contact = Contact::default();
        for (n, expected) in [(1, (false, false)), (2, (true, false)), (3, (true, false))] {
            unanswered(&contact, seconds(2)).await;
            assert_eq!(state(&contact), expected, "after {n}");
            advance(seconds(1)).await;
        }
        unanswered(&contact, seconds(2)).await;
        assert_eq!(state(&contact), (true, true));
        ends(&contact, Ok(())).await;
        assert_eq!(state(&contact), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_counts_until_another_one_is_answered() {
        let contact = Contact::default();
        let waiting = contact.asked();
        advance(seconds(10)).await;
        assert_eq!(state(&contact), (true, true));
        ends(&contact, Ok(())).await;
        assert_eq!(state(&contact), (false, false));
        advance(seconds(4)).await;
        assert_eq!(state(&contact), (true, false), "it still waits");
        ends(&contact, Ok(())).await;
        // It counts from the last answer on, also when it fails.
        drop(waiting);
        assert_eq!(state(&contact), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_are_refused_cut_off_as_well() {
        let contact = Contact::default();
        for _ in 0..5 {
            assert!(!contact.is_cut_off());
            ends(&contact, Err(())).await;
            advance(seconds(2)).await;
        }
        ends(&contact, Err(())).await;
        assert_eq!(state(&contact), (true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_time_without_requests_nor_one_that_is_given_up_at_once_is_silence() {
        let contact = Contact::default();
        ends(&contact, Ok(())).await;
        advance(seconds(60)).await;
        assert_eq!(state(&contact), (false, false));
        unanswered(&contact, Duration::from_millis(500)).await;
        advance(seconds(60)).await;
        assert_eq!(state(&contact), (false, false));
        ends(&contact, Err(())).await;
        advance(seconds(60)).await;
        let waiting = contact.asked();
        assert_eq!(state(&contact), (false, false), "one failure, long ago");
        drop(waiting);
        assert_eq!(state(&contact), (false, false));
    }
}
