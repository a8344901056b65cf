//! Authentication of the callers of a webhook: by a token in the path, or by a client certificate
//! where an authority is configured.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longshore_core::{ObjectRef, error::chain};
use longshore_kit::{Clock, Requests};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use crate::{kept::Kept, token::Token, tokens::Tokens};

/// Another replica may have made a token that this process has not read yet. The process reads the
/// Secret at most this often, however many callers name unknown tokens.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the Secret may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Callers with unknown tokens that wait for the Secret at the same time; further ones are refused at once.
const MAX_WAITING: usize = 256;
/// How often the log says that callers were refused: a line for each would be an attack on the log.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Decides about each request before anything of its body is read. Clones share it.
#[derive(Clone)]
pub struct Callers(Arc<Inner>);

struct Inner {
    requests: Requests,
    clock: Arc<dyn Clock>,
    /// The Secret of the tokens.
    secret: ObjectRef,
    /// Callers show a certificate, and tokens mean nothing.
    needs_certificate: bool,
    tokens: RwLock<Option<Tokens>>,
    /// When the Secret was last read because of an unknown token.
    looked: tokio::sync::Mutex<Option<Instant>>,
    waiting: Semaphore,
    refused: Mutex<Refused>,
    is_given_up: AtomicBool,
    given_up: Notify,
}

/// Refused callers that the log has not reported yet.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    said_at: Option<Instant>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    pub(crate) fn new(
        requests: Requests,
        clock: Arc<dyn Clock>,
        secret: ObjectRef,
        needs_certificate: bool,
    ) -> Self {
        Self(Arc::new(Inner {
            requests,
            clock,
            secret,
            needs_certificate,
            tokens: RwLock::default(),
            looked: tokio::sync::Mutex::default(),
            waiting: Semaphore::new(MAX_WAITING),
            refused: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            given_up: Notify::new(),
        }))
    }

    /// Accepts what the Secret says from now on.
    pub(crate) fn load(&self, tokens: Option<&Tokens>) {
        let mut known = self
            .0
            .tokens
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = tokens.cloned();
    }

    /// Whether a request comes from an API server.
    pub(crate) async fn admit(&self, token: Option<&str>, has_certificate: bool) -> bool {
        if self.0.needs_certificate {
            return has_certificate;
        }
        let Some(token) = token.filter(|token| Token::is_possible(token)) else {
            return false;
        };
        self.knows(token) || (self.look().await && self.knows(token))
    }

    fn knows(&self, token: &str) -> bool {
        let tokens = self.0.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.now();
        tokens
            .as_ref()
            .is_some_and(|tokens| tokens.accept(token, now))
    }

    /// Reads the Secret after the arrival of an unknown token. All callers that wait share one read.
    async fn look(&self) -> bool {
        let arrived_at = Instant::now();
        let Ok(_waiting) = self.0.waiting.try_acquire() else {
            return false;
        };
        let mut looked = self.0.looked.lock().await;
        if let Some(at) = *looked {
            if at > arrived_at {
                return true;
            }
            tokio::time::sleep_until(at + LOOK_AGAIN).await;
        }
        *looked = Some(Instant::now());
        let read = tokio::time::timeout(READ_TIMEOUT, self.0.requests.get(&self.0.secret)).await;
        match read {
            Ok(Ok(found)) => {
                // The controller that keeps a Secret makes a missing one anew; the known tokens
                // stay valid until then.
                if let Some(kept) = found.as_ref().and_then(Kept::of) {
                    self.load(kept.tokens.as_ref());
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %chain(&error), "the tokens of the webhook cannot be read");
            }
            Err(_) => tracing::debug!("the tokens of the webhook cannot be read in time"),
        }
        true
    }

    /// Logs that requests were refused: once a minute, with their number. `webhook` is the part of the path that is no
    /// secret.
    pub(crate) fn refused(&self, webhook: &'static str) {
        tracing::debug!(webhook, "a request without credentials was refused");
        let mut refused = lock(&self.0.refused);
        refused.count += 1;
        let is_due = refused.said_at.is_none_or(|at| at.elapsed() >= SAID_EVERY);
        if is_due {
            let count = std::mem::take(&mut refused.count);
            refused.said_at = Some(Instant::now());
            tracing::warn!(count, webhook, "requests without credentials were refused");
        }
    }

    /// Notes that a caller with the token gave its request up: an API server then shows its client the whole path.
    pub(crate) fn gave_up(&self) {
        self.0.is_given_up.store(true, Ordering::Relaxed);
        self.0.given_up.notify_one();
    }

    /// Whether a caller gave a request up since the last call of this function.
    pub(crate) fn take_given_up(&self) -> bool {
        self.0.is_given_up.swap(false, Ordering::Relaxed)
    }

    /// Waits until it happens.
    pub(crate) async fn until_given_up(&self) {
        self.0.given_up.notified().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
