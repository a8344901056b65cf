//! The pools of a run that has no service: while it goes on, nobody can make or change one.

use longshore_dags::{Dags, PoolError, model::Dag};
use longshore_store::DEFAULT_POOL;

use super::Order;
use crate::{error::CliError, output};

/// Makes the pools that the folder of the DAG names, and refuses a DAG of which a task would wait for its pool for ever.
pub(super) async fn prepare(dags: &Dags, order: &Order) -> Result<(), CliError> {
    for (name, slots) in &order.pools {
        if dags
            .pools()
            .get(name)
            .is_some_and(|known| known.slots == *slots)
        {
            continue;
        }
        match dags.set_pool(name, *slots).await {
            // The DAG folder of a service on this data directory counts, as it does there.
            Ok(()) | Err(PoolError::InFile { .. }) => {}
            Err(error @ (PoolError::Unknown(_) | PoolError::Default | PoolError::Store(_))) => {
                return Err(CliError::in_database(error));
            }
        }
    }
    let pools = dags.pools();
    let slots = |name: &str| pools.get(name).map(|pool| pool.slots);
    check(&order.dag, slots)?;
    if let (Some(wanted), Some(slots)) = (order.parallelism, slots(DEFAULT_POOL))
        && is_bound_by(&order.dag, slots, wanted.get())
    {
        output::note(&format!(
            "{DEFAULT_POOL} has {slots} slots: no more tasks run at the same time; write `{DEFAULT_POOL}: {{slots: {wanted}}}` \
             into pools.yaml beside the DAG file for {wanted}"
        ));
    }
    Ok(())
}

/// Whether each task fits into its pool, of which `slots` tells the size; a negative one is unlimited.
fn check(dag: &Dag, slots: impl Fn(&str) -> Option<i64>) -> Result<(), CliError> {
    for (task_id, task) in &dag.tasks {
        let has = slots(&task.pool);
        if has.is_none_or(|has| has >= 0 && has < i64::from(task.pool_slots)) {
            return Err(CliError::NoSlots {
                task_id: task_id.clone(),
                pool: task.pool.clone(),
                wanted: task.pool_slots,
                has,
            });
        }
    }
    Ok(())
}

/// Whether the default pool of this size holds tasks back that `parallelism` would let run.
fn is_bound_by(dag: &Dag, slots: i64, parallelism: u32) -> bool {
    let tasks = dag.tasks.values().filter(|task| task.pool == DEFAULT_POOL);
    let wanted: i64 = tasks.map(|task| i64::from(task.pool_slots)).sum();
    slots >= 0 && slots < i64::from(parallelism) && slots < wanted
}

#[cfg(test)]
mod tests {
    use std::io;

    use longshore_dags::document;

    use super::*;

    fn dag(text: &str) -> Dag {
        let document = document::parse("dag.yaml", text).unwrap();
        let of_file = document.validate(&mut |_| Err(io::ErrorKind::NotFound.into()));
        of_file.unwrap()
    }

    const POOLED: &str = "
dag_id: pooled
tasks:
  a: {command: [x]}
  b: {command: [x], pool: db, pool_slots: 2}
";

    const WIDE: &str = "
dag_id: wide
tasks:
  a: {command: [x]}
  b: {command: [x]}
  c: {command: [x], pool_slots: 2}
";

    #[test]
    fn a_task_that_would_wait_for_its_pool_for_ever_is_refused() {
        let dag = dag(POOLED);
        for (db, is_refused) in [
            (None, true),
            (Some(0), true),
            (Some(1), true),
            (Some(2), false),
            (Some(-1), false),
        ] {
            let slots = |name: &str| match name {
                "db" => db,
                _ => Some(128),
            };
            assert_eq!(check(&dag, slots).is_err(), is_refused, "{db:?}");
        }
    }

    #[test]
    fn it_is_said_where_the_default_pool_bounds_a_run_more_than_its_parallelism() {
        let dag = dag(WIDE);
        for (slots, parallelism, is_bound) in
            [(3, 8, true), (3, 3, false), (4, 8, false), (-1, 8, false)]
        {
            assert_eq!(
                is_bound_by(&dag, slots, parallelism),
                is_bound,
                "{slots} {parallelism}"
            );
        }
    }
}
