//! How many bytes of the bodies of responses are in memory while they are read, whatever foreign systems send.
//!
//! A small body is read at once. A larger one waits for room: in that of its client, so that a foreign system which sends
//! much leaves room for others, and in that of the process. Whoever waits reads nothing, so that the sender waits, too. A
//! body that has room has to end in time.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::operator::RequestError;

/// For all large bodies that are being read, in bytes.
const ALL_BODIES: usize = 64 << 20;
/// For those of one client.
const BODIES_OF_CLIENT: usize = ALL_BODIES / 4;
/// A body of no more than these bytes waits for no room.
const SMALL_BODY: usize = 16 << 10;
/// How long a body that has room may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

static ROOM: Semaphore = Semaphore::const_new(ALL_BODIES);

/// The room for the bodies that one client reads. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyRoom {
    own: Arc<Semaphore>,
}

/// Room for one body, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reserved<'r> {
    _own: Option<SemaphorePermit<'r>>,
    _all: Option<SemaphorePermit<'static>>,
}

/// A body, and what came behind it.
#[derive(Debug, Default)]
pub struct WholeBody {
    /// All of its bytes.
    pub data: BytesMut,
    /// Its trailers; none where there were none.
    pub trailers: HeaderMap,
}

/// A body that was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It was not read any further.
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    /// It had room, and did not end.
    #[error("its end did not come within {0:?}")]
    TooSlow(Duration),
    /// The connection broke.
    #[error(transparent)]
    Broken(RequestError),
}

impl Default for BodyRoom {
    fn default() -> Self {
        let own = Arc::new(Semaphore::new(BODIES_OF_CLIENT));
        Self { own }
    }
}

impl BodyRoom {
    /// Waits for room for a body of so many bytes. A small one needs none.
    ///
    /// *Cancellation*: a dropped call reserves nothing.
    pub async fn reserve(&self, n_bytes: usize) -> Reserved<'_> {
        if n_bytes <= SMALL_BODY {
            return Reserved {
                _own: None,
                _all: None,
            };
        }
        let n = u32::try_from(n_bytes.min(BODIES_OF_CLIENT)).unwrap_or(u32::MAX);
        // Neither is ever closed.
        let own = self.own.acquire_many(n).await.ok();
        let all = ROOM.acquire_many(n).await.ok();
        Reserved {
            _own: own,
            _all: all,
        }
    }

    /// Reads a body of at most `most` bytes. `declared` says of the beginning of a body how many bytes it has in all, where
    /// that says so: then no more room is reserved.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn read<B>(
        &self,
        mut body: B,
        most: usize,
        declared: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Result<WholeBody, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
        RequestError: From<B::Error>,
    {
        let exact = body.size_hint().exact();
        let exact = exact.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if exact.is_some_and(|n| n > most) {
            return Err(BodyError::TooLarge(most));
        }
        let mut whole = WholeBody::default();
        let n_small = SMALL_BODY.min(most);
        while whole.data.len() <= n_small {
            let Some(frame) = body.frame().await else {
                return Ok(whole);
            };
            whole.take(frame, most)?;
        }
        let n_read = whole.data.len();
        let size = exact.or_else(|| declared(&whole.data));
        let size = size.filter(|size| (n_read..=most).contains(size));
        let size = size.unwrap_or(most);
        let _room = self.reserve(size).await;
        let rest = async {
            while let Some(frame) = body.frame().await {
                whole.take(frame, size)?;
            }
            Ok(whole)
        };
        let read = timeout(BODY_TIMEOUT, rest).await;
        read.unwrap_or(Err(BodyError::TooSlow(BODY_TIMEOUT)))
    }
}

impl WholeBody {
    fn take<E>(&mut self, frame: Result<Frame<Bytes>, E>, most: usize) -> Result<(), BodyError>
    where
        RequestError: From<E>,
    {
        let frame = frame.map_err(|error| BodyError::Broken(error.into()))?;
        match frame.into_data() {
            Ok(data) => self.data.extend_from_slice(&data),
            Err(frame) => self
                .trailers
                .extend(frame.into_trailers().unwrap_or_default()),
        }
        if self.data.len() > most {
            return Err(BodyError::TooLarge(most));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::time::Instant;

    use super::*;

    const MIB: usize = 1 << 20;

    impl From<Infallible> for RequestError {
        fn from(error: Infallible) -> Self {
            match error {}
        }
    }

    /// A body of so many KiB, which ends or goes on without an end.
    struct Sent {
        n_kib: usize,
        ends: bool,
    }

    impl Body for Sent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.n_kib > 0 {
                self.n_kib -= 1;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 1024])))));
            }
            if self.ends {
                return Poll::Ready(None);
            }
            Poll::Pending
        }
    }

    async fn read(room: &BodyRoom, n_bytes: usize, ends: bool) -> Result<usize, BodyError> {
        let n_kib = n_bytes / 1024;
        let whole = room.read(Sent { n_kib, ends }, 8 * MIB, |_| None).await;
        whole.map(|whole| whole.data.len())
    }

    // One test: all share the room of the process.
    #[tokio::test(start_paused = true)]
    async fn however_many_bodies_are_sent_their_bytes_have_a_bound_and_small_ones_never_wait() {
        let clients: Vec<_> = (0..6).map(|_| BodyRoom::default()).collect();
        let begun = Instant::now();
        let waiting = clients
            .iter()
            .flat_map(|client| (0..10).map(move |_| read(client, MIB, false)));
        let waiting = futures_of(waiting);
        let beside = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(ROOM.available_permits(), 0, "eight of 8 MiB");
            let small = read(&clients[0], SMALL_BODY, true).await;
            assert_eq!(small.unwrap(), SMALL_BODY);
            assert_eq!(begun.elapsed(), Duration::from_secs(1));
            // It has its turn once others have had their time.
            let large = read(&BodyRoom::default(), MIB, true).await;
            assert_eq!(large.unwrap(), MIB);
        };
        let (ends, ()) = tokio::join!(waiting, beside);
        for end in ends {
            let error = end.unwrap_err();
            assert!(matches!(error, BodyError::TooSlow(BODY_TIMEOUT)), "{error}");
        }
        assert_eq!(ROOM.available_permits(), ALL_BODIES);
        let declared = clients[0].read(
            Sent {
                n_kib: 20,
                ends: true,
            },
            8 * MIB,
            |_| Some(18_000),
        );
        let error = declared.await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge(18_000)), "{error}");
        let much = read(&clients[0], 9 * MIB, true).await.unwrap_err();
        assert_eq!(much.to_string(), "it has more than 8388608 bytes");
    }

    /// All of them, at the same time.
    async fn futures_of<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
        let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
        std::future::poll_fn(|context| {
            for (one, done) in &mut all {
                if done.is_none()
                    && let Poll::Ready(value) = one.as_mut().poll(context)
                {
                    *done = Some(value);
                }
            }
            if all.iter().all(|(_, done)| done.is_some()) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        all.into_iter().filter_map(|(_, done)| done).collect()
    }
}
