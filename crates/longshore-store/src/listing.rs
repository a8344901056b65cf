//! Listings, page by page.

use crate::{
    catalog::{ListedRun, RunFilter, TaskFilter},
    changes::StoreError,
    engine::{Cell, Connection},
    model::{RunKey, RunState, StoredDocument, TaskInstance},
    query::{corrupt, fetch, read_all},
    rows::{document, instant, run, task_instance, word},
};

/// What follows `WHERE`, with its parameters.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) sql: String,
    pub(crate) cells: Vec<Cell>,
}

impl Conditions {
    /// One more condition.
    pub(crate) fn add(&mut self, sql: &str, cells: impl IntoIterator<Item = Cell>) {
        self.sql += if self.sql.is_empty() {
            " WHERE "
        } else {
            " AND "
        };
        self.sql += sql;
        self.cells.extend(cells);
    }

    /// The column has this value, where one is wanted.
    pub(crate) fn add_equal(&mut self, column: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.add(&format!("{column} = ?"), [value.as_str().into()]);
        }
    }

    /// The expression has one of these values, where some are wanted.
    pub(crate) fn add_any_of(&mut self, expression: &str, values: Vec<Cell>) {
        if !values.is_empty() {
            let marks = vec!["?"; values.len()].join(", ");
            self.add(&format!("{expression} IN ({marks})"), values);
        }
    }

    /// The rest of the statement: order and limit.
    pub(crate) fn page(mut self, order: &str, limit: Option<u32>) -> Self {
        self.sql += order;
        if let Some(limit) = limit {
            self.sql += " LIMIT ?";
            self.cells.push(i64::from(limit).into());
        }
        self
    }
}

/// The columns of a [`ListedRun`].
const LISTED: &str = "run.dag_id, run.run_id, run.run_type, run.state, run.logical_date, run.queued_at, \
     run.start_date, run.end_date, run.conf, run.reason";

const NEWEST_FIRST: &str = " ORDER BY queued_at DESC, dag_id DESC, run_id DESC";

/// Runs, newest first.
pub(crate) async fn runs(
    c: &mut Connection,
    filter: &RunFilter,
) -> Result<Vec<ListedRun>, StoreError> {
    let mut conditions = of_runs(filter);
    if let Some(before) = &filter.before {
        conditions.add(
            "(queued_at, dag_id, run_id) < (?, ?, ?)",
            [
                instant(Some(before.queued_at)),
                before.key.dag_id.as_str().into(),
                before.key.run_id.as_str().into(),
            ],
        );
    }
    let Conditions { sql, cells } = conditions.page(NEWEST_FIRST, filter.limit);
    let rows = fetch(c, format!("SELECT {LISTED} FROM run{sql}"), cells).await?;
    read_all(rows, run::read_listed)
}

/// The newest run of each known DAG: one look into an index for each, however many runs there are.
pub(crate) async fn newest_runs(c: &mut Connection) -> Result<Vec<ListedRun>, StoreError> {
    let sql = format!(
        "SELECT {LISTED} FROM dag JOIN run ON run.dag_id = dag.dag_id AND run.run_id = (\
         SELECT newest.run_id FROM run AS newest WHERE newest.dag_id = dag.dag_id \
         ORDER BY newest.queued_at DESC, newest.run_id DESC LIMIT 1) ORDER BY dag.dag_id"
    );
    read_all(fetch(c, sql, []).await?, run::read_listed)
}

/// One run.
pub(crate) async fn run(c: &mut Connection, key: &RunKey) -> Result<Option<ListedRun>, StoreError> {
    let sql = format!("SELECT {LISTED} FROM run WHERE dag_id = ? AND run_id = ?");
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    rows.first().map(run::read_listed).transpose()
}

/// The document that a run is pinned to.
pub(crate) async fn document_of(
    c: &mut Connection,
    key: &RunKey,
) -> Result<Option<StoredDocument>, StoreError> {
    let sql = "SELECT document.hash, document.body FROM run \
               JOIN document ON document.hash = run.dag_hash WHERE run.dag_id = ? AND run.run_id = ?";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    rows.first().map(document::read).transpose()
}

/// The number of runs on all pages.
pub(crate) async fn count_runs(c: &mut Connection, filter: &RunFilter) -> Result<u64, StoreError> {
    count(c, "run", of_runs(filter)).await
}

fn of_runs(filter: &RunFilter) -> Conditions {
    let mut conditions = Conditions::default();
    let is_unfinished = |state: &RunState| !state.is_finished();
    if !filter.states.is_empty() && filter.states.iter().all(is_unfinished) {
        // In the words of the index `run_unfinished`, which holds few rows, however long the history; an index of the runs
        // of one DAG does not.
        conditions.add("state IN ('queued', 'running')", []);
        conditions.add_equal("dag_id || ''", filter.dag_id.as_ref());
    } else {
        conditions.add_equal("dag_id", filter.dag_id.as_ref());
    }
    conditions.add_any_of("state", filter.states.iter().map(word).collect());
    conditions
}

/// Current tries, in the order of their keys.
pub(crate) async fn task_instances(
    c: &mut Connection,
    filter: &TaskFilter,
) -> Result<Vec<TaskInstance>, StoreError> {
    let mut conditions = of_task_instances(filter);
    if let Some(after) = &filter.after {
        conditions.add(
            "(dag_id, run_id, task_id, map_index) > (?, ?, ?, ?)",
            task_instance::key_cells(after),
        );
    }
    let order = " ORDER BY dag_id, run_id, task_id, map_index";
    let Conditions { sql, cells } = conditions.page(order, filter.limit);
    let rows = fetch(c, format!("SELECT * FROM task_instance{sql}"), cells).await?;
    read_all(rows, task_instance::read)
}

/// How many task instances all pages have.
pub(crate) async fn count_task_instances(
    c: &mut Connection,
    filter: &TaskFilter,
) -> Result<u64, StoreError> {
    count(c, "task_instance", of_task_instances(filter)).await
}

fn of_task_instances(filter: &TaskFilter) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.add("is_archived = 0", []);
    conditions.add_equal("dag_id", filter.dag_id.as_ref());
    conditions.add_equal("run_id", filter.run_id.as_ref());
    conditions.add_equal("task_id", filter.task_id.as_ref());
    let states = filter.states.iter();
    let states = states.map(|state| state.as_ref().map_or("".into(), word));
    conditions.add_any_of("COALESCE(state, '')", states.collect());
    conditions
}

async fn count(c: &mut Connection, table: &str, conditions: Conditions) -> Result<u64, StoreError> {
    let Conditions { sql, cells } = conditions;
    let sql = format!("SELECT COUNT(*) AS n_rows FROM {table}{sql}");
    let rows = fetch(c, sql, cells).await?;
    let n_rows = rows.first().map_or(Ok(0), |row| row.int("n_rows"));
    let n_rows = n_rows.map_err(|why| corrupt("a count", why))?;
    Ok(n_rows.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    /// How the list of runs, and their number, is found.
    async fn plans(store: &Store, filter: RunFilter) -> Vec<String> {
        let plans = store.show(async move |c: &mut Connection| {
            let page = of_runs(&filter).page(NEWEST_FIRST, Some(50));
            let mut plans = Vec::new();
            for (what, conditions) in [(LISTED, page), ("count(*)", of_runs(&filter))] {
                let Conditions { sql, cells } = conditions;
                let sql = format!("EXPLAIN QUERY PLAN SELECT {what} FROM run{sql}");
                let rows = fetch(c, sql, cells).await?;
                plans.extend(rows.iter().map(|row| row.text("detail").unwrap()));
            }
            Ok(plans)
        });
        plans.await.unwrap()
    }

    #[tokio::test]
    async fn unfinished_runs_are_found_without_a_look_at_the_others() {
        use RunState::{Failed, Queued, Running};
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.db")).await.unwrap();
        for (dag_id, states, is_short) in [
            (None, vec![Queued], true),
            (None, vec![Running, Queued], true),
            (Some("a"), vec![Queued], true),
            (None, vec![Queued, Failed], false),
            (None, vec![], false),
        ] {
            let filter = RunFilter {
                dag_id: dag_id.map(str::to_owned),
                states,
                ..RunFilter::default()
            };
            let plans = plans(&store, filter.clone()).await;
            let by_index = |plan: &String| plan.contains("run_unfinished");
            assert_eq!(plans.len(), 2, "{plans:?}");
            assert!(
                plans.iter().all(|plan| by_index(plan) == is_short),
                "{filter:?}: {plans:?}"
            );
        }
    }
}
