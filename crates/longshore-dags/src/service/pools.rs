//! The pools: how many slots there are for the tasks that name them.

use std::{collections::BTreeMap, sync::Arc};

use longshore_store::{DEFAULT_POOL, Pool, StoreError, TaskInstance, TaskState};

use super::Dags;
use crate::scheduler::{board::Board, limits::UNLIMITED};

/// Why a pool is not deleted.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// There is none of this name.
    #[error("there is no pool {0}")]
    Unknown(String),
    /// Tasks that name no pool need it.
    #[error("{DEFAULT_POOL} is the pool of all tasks that name none")]
    Default,
    /// The change cannot be recorded.
    #[error("the database cannot record the change of the pool")]
    Store(#[from] StoreError),
}

impl Dags {
    /// The pools by name.
    pub fn pools(&self) -> Arc<BTreeMap<String, Pool>> {
        self.shared.board().pools
    }

    /// Creates or changes a pool, while runs go on. Tasks that hold slots keep them, also where there are fewer now.
    pub async fn set_pool(&self, pool: Pool) -> Result<(), StoreError> {
        let _turn = self.pool_turns.lock().await;
        self.shared.store.set_pool(&pool).await?;
        self.change_pools(|pools| {
            pools.insert(pool.name.clone(), pool);
        });
        Ok(())
    }

    /// Deletes a pool, and returns what it was. Its tasks wait until there is one of this name again.
    pub async fn delete_pool(&self, name: &str) -> Result<Pool, PoolError> {
        let _turn = self.pool_turns.lock().await;
        if name == DEFAULT_POOL {
            return Err(PoolError::Default);
        }
        let known = self.shared.board().pools.get(name).cloned();
        let pool = known.ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
        self.shared.store.delete_pool(name).await?;
        self.change_pools(|pools| {
            pools.remove(name);
        });
        Ok(pool)
    }

    fn change_pools(&self, change: impl FnOnce(&mut BTreeMap<String, Pool>)) {
        {
            let mut board = self.shared.board_mut();
            change(Arc::make_mut(&mut board.pools));
        }
        self.shared.inbox.wake();
    }

    /// Why a task that is ready gets no slot however long it waits; `None` where it only has to wait.
    pub fn never_admitted(&self, row: &TaskInstance) -> Option<String> {
        never_admitted(&self.shared.board(), row)
    }
}

fn never_admitted(board: &Board, row: &TaskInstance) -> Option<String> {
    let (name, wanted) = (&row.pool, i64::from(row.pool_slots));
    if row.state != Some(TaskState::Scheduled) {
        return None;
    }
    match board.pools.get(name) {
        None => Some(format!(
            "pool `{name}` does not exist: make it with `longshore pools set {name} SLOTS`"
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
    use longshore_store::RunKey;
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
            let name = "db".to_owned();
            board.set_pools([Pool { name, slots }]);
            assert_eq!(reason(&board, wanted).is_some(), is_said, "{slots}");
        }
    }
}
