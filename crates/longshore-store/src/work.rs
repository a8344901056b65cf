//! What the writer is asked to write.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    apply::{self, Refusal},
    changes::{Changes, StoreError},
    conflict,
    engine::{Connection, EngineError},
    heartbeats::{self, Heartbeat},
    model::Pool,
    told::{
        FromTry, Shared,
        write::{self, Done},
    },
};

/// Requests in one transaction at most: bounds how long the first one waits for the others.
pub(crate) const MAX_GROUP: usize = 256;

/// Bytes of told values in one transaction, unless one alone has more: bounds how long a commit waits for it.
pub(crate) const MAX_TOLD: usize = 1024 * 1024;

/// The content of a request.
#[derive(Debug)]
pub(crate) enum Work {
    /// A set of changes.
    Changes(Box<Changes>),
    /// A pool.
    Pool(Pool),
    /// The name of a pool that is deleted.
    NoPool(String),
    /// What the worker of this try says.
    Tell(Uuid, FromTry),
    /// What users and the service say.
    Keep(Shared),
    /// When workers were heard.
    Heartbeats(Vec<Heartbeat>),
    /// What signs the tokens of workers, unless there is such a secret already.
    TokenSecret(String),
}

impl Work {
    /// Writes it, in a transaction that the caller began.
    pub(crate) async fn apply(&self, c: &mut Connection) -> Result<Done, Refusal> {
        match self {
            Self::Changes(changes) => apply::apply(c, changes).await?,
            Self::Pool(pool) => apply::apply_pool(c, pool).await?,
            Self::NoPool(name) => apply::delete_pool(c, name).await?,
            Self::Tell(id, what) => return write::tell(c, *id, what).await,
            Self::Keep(what) => return write::keep(c, what).await,
            Self::Heartbeats(heartbeats) => return heartbeats::write(c, heartbeats).await,
            Self::TokenSecret(secret) => apply::offer_token_secret(c, secret).await?,
        }
        Ok(Done::Rows(0))
    }

    /// How many bytes it has, where it waits for the others.
    pub(crate) fn told(&self) -> Option<usize> {
        match self {
            Self::Changes(_) | Self::Pool(_) | Self::NoPool(_) | Self::TokenSecret(_) => None,
            Self::Tell(_, what) => Some(write::size(what)),
            Self::Keep(what) => Some(write::size_of_shared(what)),
            Self::Heartbeats(heartbeats) => Some(size_of_val(&**heartbeats)),
        }
    }

    /// What refused it, after the rollback.
    pub(crate) async fn find_conflict(&self, c: &mut Connection) -> Result<String, EngineError> {
        Ok(match self {
            Self::Changes(changes) => conflict::find(c, changes).await?,
            Self::Pool(Pool { name, .. }) | Self::NoPool(name) => format!("pool {name}"),
            Self::Tell(_, what) => write::conflict(what),
            Self::Keep(_) | Self::Heartbeats(_) => "a value".to_owned(),
            Self::TokenSecret(_) => "the secret of tokens".to_owned(),
        })
    }
}

/// A request to the writer, which sends the result once the effect is on the disk.
#[derive(Debug)]
pub(crate) struct Request {
    /// The changes to write.
    pub(crate) work: Work,
    /// The channel to the caller that waits.
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// The result of a request.
pub(crate) type Answer = Result<Done, StoreError>;

/// The told values of the next transaction.
pub(crate) fn first_told(told: &mut VecDeque<Request>) -> Vec<Request> {
    let mut n_bytes = 0;
    let mut group = Vec::new();
    while let Some(request) = told.pop_front() {
        n_bytes += request.work.told().unwrap_or(0);
        let is_full = n_bytes > MAX_TOLD || group.len() == MAX_GROUP;
        if is_full && !group.is_empty() {
            told.push_front(request);
            break;
        }
        group.push(request);
    }
    group
}
