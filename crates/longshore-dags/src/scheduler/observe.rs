//! What a round of the scheduler reads, and what that means.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_store::{Heartbeats, StoreError};

use super::{
    board::Board,
    decide::{self, Limits},
    inbox::Batch,
};
use crate::{
    base::{position::Position, shared::Shared},
    catalog::{
        Catalog,
        due::{self, ExistingRuns},
    },
};

/// What a round reads: the facts before the board, which must not be older than they are.
pub(super) struct Loaded {
    batch: Batch,
    board: Board,
    catalog: Catalog,
    existing_runs: ExistingRuns,
    heartbeats: Arc<Heartbeats>,
}

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(super) work: decide::Observed,
    pub(super) catalog: Catalog,
    pub(super) existing_runs: ExistingRuns,
}

/// Reads memory, and the store for each run that a schedule wants.
pub(super) async fn load(shared: &Shared, now: Timestamp) -> Result<Loaded, StoreError> {
    let batch = shared.inbox.peek();
    let (board, catalog) = (shared.board(), shared.catalog());
    let mut existing_runs = ExistingRuns::new();
    for (key, logical_date) in due::candidates(&catalog, &board, now) {
        let exists = shared.store.has_run(&key, Some(logical_date)).await?;
        existing_runs.insert(key, exists);
    }
    Ok(Loaded {
        batch,
        board,
        catalog,
        existing_runs,
        heartbeats: shared.heartbeats(),
    })
}

/// What was read, as the decision needs it.
pub(super) fn assemble(loaded: Loaded, now: Timestamp, cluster: &str, limits: &Limits) -> Observed {
    let position = |reached| {
        let cluster = cluster.to_owned();
        Position { cluster, reached }.to_string()
    };
    Observed {
        work: decide::Observed {
            now,
            board: loaded.board,
            facts: loaded.batch.facts,
            watch_position: loaded.batch.position.map(position),
            store_position: false,
            limits: limits.clone(),
            heartbeats: loaded.heartbeats,
        },
        catalog: loaded.catalog,
        existing_runs: loaded.existing_runs,
    }
}
