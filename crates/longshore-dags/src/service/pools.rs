//! The pools: how many slots there are for the tasks that name them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_kit::Gate;
use longshore_store::{DEFAULT_POOL, Pool, StoreError, TaskInstance, TaskState};
use tokio::sync::{Mutex, watch};

use super::Dags;
use crate::{
    base::shared::Shared,
    catalog::pools::{FolderPools, PoolChange, changes},
    scheduler::{board::Board, limits::UNLIMITED},
};

/// The wait after a change of pools that the database could not record.
const RETRY: Duration = Duration::from_secs(5);

/// Why a pool is not changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// There is none of this name.
    #[error("there is no pool {0}")]
    Unknown(String),
    /// Tasks that name no pool need it.
    #[error("{DEFAULT_POOL} is the pool of all tasks that name none")]
    Default,
    /// A file of the DAG folder names it, and would set it back.
    #[error("pool {pool} is named by {file} in the DAG folder")]
    InFile {
        /// The pool.
        pool: String,
        /// The file, relative to the folder.
        file: String,
    },
    /// The change cannot be recorded.
    #[error("the database cannot record the change of the pool")]
    Store(#[from] StoreError),
}

impl Dags {
    /// The pools by name.
    pub fn pools(&self) -> Arc<BTreeMap<String, Pool>> {
        self.shared.board().pools
    }

    /// Creates a pool with so many slots (-1: no limit), or changes its slots and nothing else, while runs go on. Tasks that
    /// hold slots keep them, also where there are fewer now.
    ///
    /// # Errors
    /// A file of the DAG folder names the pool, or the database cannot record the change.
    pub async fn set_pool(&self, name: &str, slots: i64) -> Result<(), PoolError> {
        let _turn = self.pool_turns.lock().await;
        let known = self.shared.board().pools.get(name).cloned();
        let known = known.map(of_users).transpose()?;
        let pool = Pool {
            slots,
            ..known.unwrap_or_else(|| Pool::new(name, slots))
        };
        record(&self.shared, PoolChange::Set(pool)).await?;
        Ok(())
    }

    /// Deletes a pool, and returns what it was. Its tasks wait until there is one of this name again.
    pub async fn delete_pool(&self, name: &str) -> Result<Pool, PoolError> {
        let _turn = self.pool_turns.lock().await;
        if name == DEFAULT_POOL {
            return Err(PoolError::Default);
        }
        let known = self.shared.board().pools.get(name).cloned();
        let pool = of_users(known.ok_or_else(|| PoolError::Unknown(name.to_owned()))?)?;
        record(&self.shared, PoolChange::Delete(name.to_owned())).await?;
        Ok(pool)
    }

    /// Makes the pools what the DAG folder says, until shutdown.
    pub(super) fn follow_pools(&self, said: watch::Receiver<FolderPools>) {
        let follower = PoolFollower {
            shared: Arc::clone(&self.shared),
            turns: Arc::clone(&self.pool_turns),
            gate: self.gate.clone(),
        };
        let shutdown = self.tasks.shutdown();
        self.tasks.spawn("dags.pools", async move {
            shutdown.run_until_cancelled(follower.run(said)).await;
        });
    }

    /// Why a task that is ready gets no slot however long it waits; `None` where it only has to wait.
    pub fn never_admitted(&self, row: &TaskInstance) -> Option<String> {
        never_admitted(&self.shared.board(), row)
    }
}

/// A pool that no file names.
fn of_users(pool: Pool) -> Result<Pool, PoolError> {
    match pool.file {
        None => Ok(pool),
        Some(file) => Err(PoolError::InFile {
            pool: pool.name,
            file: file.name,
        }),
    }
}

/// Records a change of a pool, and then lets it take effect. To be called in turns.
async fn record(shared: &Shared, change: PoolChange) -> Result<(), StoreError> {
    match &change {
        PoolChange::Set(pool) => shared.store.set_pool(pool).await?,
        PoolChange::Delete(name) => shared.store.delete_pool(name).await?,
    }
    {
        let mut board = shared.board_mut();
        let pools = Arc::make_mut(&mut board.pools);
        match change {
            PoolChange::Set(pool) => {
                pools.insert(pool.name.clone(), pool);
            }
            PoolChange::Delete(name) => {
                pools.remove(&name);
            }
        }
    }
    shared.inbox.wake();
    Ok(())
}

/// What makes the pools what the DAG folder says.
struct PoolFollower {
    shared: Arc<Shared>,
    turns: Arc<Mutex<()>>,
    gate: Gate,
}

impl PoolFollower {
    async fn run(self, mut said: watch::Receiver<FolderPools>) {
        loop {
            let wanted = said.borrow_and_update().clone();
            match self.apply(&wanted).await {
                Ok(()) => {
                    if said.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the pools of the DAG folder cannot be recorded; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn apply(&self, wanted: &FolderPools) -> Result<(), StoreError> {
        let _turn = self.turns.lock().await;
        let pools = self.shared.board().pools;
        for change in changes(&pools, wanted) {
            if self.gate.check().is_err() {
                return Ok(());
            }
            tracing::info!(?change, "the DAG folder changes a pool");
            record(&self.shared, change).await?;
        }
        Ok(())
    }
}

fn never_admitted(board: &Board, row: &TaskInstance) -> Option<String> {
    let (name, wanted) = (&row.pool, i64::from(row.pool_slots));
    if row.state != Some(TaskState::Scheduled) {
        return None;
    }
    match board.pools.get(name) {
        None => Some(format!(
            "pool `{name}` does not exist: make it with `longshore pools set {name} SLOTS`, or in `pools.yaml` of the DAG \
             folder"
        )),
        Some(Pool {
            slots,
            file: Some(file),
            ..
        }) if *slots != UNLIMITED && *slots < wanted => Some(format!(
            "pool `{name}` has {slots} slots, and the task takes {wanted}: change `{}` in the DAG folder",
            file.name
        )),
        Some(pool) if pool.slots != UNLIMITED && pool.slots < wanted => Some(format!(
            "pool `{name}` has {} slots, and the task takes {wanted}: `longshore pools set {name} {wanted}`",
            pool.slots
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use longshore_store::{PoolFile, RunKey};
    use uuid::Uuid;

    use super::*;
    use crate::test_rows::queued;

    #[test]
    fn a_task_says_that_its_pool_will_never_have_room() {
        let run = RunKey {
            dag_id: "d".to_owned(),
            run_id: "r".to_owned(),
        };
        let mut board = Board::default();
        let reason = |board: &Board, slots: u32| {
            let row = TaskInstance {
                state: Some(TaskState::Scheduled),
                pool: "db".to_owned(),
                pool_slots: slots,
                ..queued(Uuid::nil(), &run, "t")
            };
            never_admitted(board, &row)
        };
        let missing = reason(&board, 1).unwrap();
        assert!(missing.starts_with("pool `db` does not exist"), "{missing}");
        for (slots, wanted, is_said) in [(2, 2, false), (2, 3, true), (0, 1, true), (-1, 9, false)]
        {
            board.set_pools([Pool::new("db", slots)]);
            assert_eq!(reason(&board, wanted).is_some(), is_said, "{slots}");
        }
        let file = PoolFile {
            name: "pools.yaml".to_owned(),
            slots_before: None,
        };
        board.set_pools([Pool {
            file: Some(file),
            ..Pool::new("db", 2)
        }]);
        assert_eq!(reason(&board, 2), None);
        let small = reason(&board, 3).unwrap();
        assert!(
            small.ends_with("change `pools.yaml` in the DAG folder"),
            "{small}"
        );
    }
}
