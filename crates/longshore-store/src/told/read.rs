//! The queries. Each reads the columns that are asked for, and nothing else.

use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Event, EventFilter, JsonText, MappedLength, Rendered, Sealed, StoredConnection, StoredEvent,
    StoredVariable, VariableKeys, XComKey, write::xcom_cells,
};
use crate::{
    changes::StoreError,
    engine::{Cell, Connection, Row},
    listing::Conditions,
    model::{RunKey, TaskKey},
    query::{fetch, read_all},
    rows::{
        Unreadable, free_text, instant, read_instant, read_int, read_opt_int, read_row, run,
        task_instance,
    },
};

/// A value of a task instance.
pub(crate) async fn xcom(
    c: &mut Connection,
    key: &XComKey,
    map_index: i32,
) -> Result<Option<JsonText>, StoreError> {
    let sql = "SELECT value FROM xcom WHERE dag_id = ? AND run_id = ? AND task_id = ? AND key = ? \
               AND map_index = ?";
    let index: [Cell; 1] = [i64::from(map_index).into()];
    first_value(c, sql, xcom_cells(key).into_iter().chain(index)).await
}

/// The same of this run, or else of the latest earlier one by logical date that has it.
pub(crate) async fn xcom_of_this_or_earlier_runs(
    c: &mut Connection,
    key: &XComKey,
    map_index: i32,
) -> Result<Option<JsonText>, StoreError> {
    if let Some(value) = xcom(c, key, map_index).await? {
        return Ok(Some(value));
    }
    // CROSS JOIN means the same, but makes SQLite go from run to run, latest first, and stop at the first value.
    let sql = "SELECT xcom.value FROM run CROSS JOIN xcom WHERE run.dag_id = ? \
               AND run.logical_date < (SELECT own.logical_date FROM run AS own \
               WHERE own.dag_id = ? AND own.run_id = ?) \
               AND xcom.dag_id = run.dag_id AND xcom.run_id = run.run_id \
               AND xcom.task_id = ? AND xcom.key = ? AND xcom.map_index = ? \
               ORDER BY run.logical_date DESC LIMIT 1";
    let [dag_id, run_id, task_id, name] = xcom_cells(key);
    let index = i64::from(map_index).into();
    let cells = [dag_id.clone(), dag_id, run_id, task_id, name, index];
    first_value(c, sql, cells).await
}

/// How many instances of a task have such a value.
pub(crate) async fn count_xcoms(c: &mut Connection, key: &XComKey) -> Result<u64, StoreError> {
    let sql = "SELECT COUNT(*) AS n FROM xcom \
               WHERE dag_id = ? AND run_id = ? AND task_id = ? AND key = ?";
    count(c, sql, xcom_cells(key)).await
}

/// Such values in the order of the map indexes.
pub(crate) async fn xcoms(
    c: &mut Connection,
    key: &XComKey,
    from: u64,
    limit: u32,
) -> Result<Vec<JsonText>, StoreError> {
    let sql = "SELECT value FROM xcom WHERE dag_id = ? AND run_id = ? AND task_id = ? AND key = ? \
               ORDER BY map_index LIMIT ? OFFSET ?";
    let page = page(from, limit);
    let rows = fetch(c, sql, xcom_cells(key).into_iter().chain(page)).await?;
    read_all(rows, read_value)
}

/// The keys of all values of a task instance.
pub(crate) async fn xcom_keys(
    c: &mut Connection,
    key: &TaskKey,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT key FROM xcom \
               WHERE dag_id = ? AND run_id = ? AND task_id = ? AND map_index = ? ORDER BY key";
    let rows = fetch(c, sql, task_instance::key_cells(key)).await?;
    read_all(rows, |row| read_row("an XCom", || row.text("key")))
}

/// All lengths over which tasks of a run map.
pub(crate) async fn mapped_lengths(
    c: &mut Connection,
    run: &RunKey,
) -> Result<Vec<MappedLength>, StoreError> {
    let sql = "SELECT task_id, map_index, key, mapped_length FROM xcom \
               WHERE dag_id = ? AND run_id = ? AND mapped_length IS NOT NULL \
               ORDER BY task_id, map_index, key";
    let rows = fetch(c, sql, run::key_cells(run)).await?;
    let read = |row: &Row| {
        read_row("an XCom", || {
            Ok(MappedLength {
                task_id: row.text("task_id")?,
                map_index: read_int(row, "map_index")?,
                key: row.text("key")?,
                length: read_int(row, "mapped_length")?,
            })
        })
    };
    read_all(rows, read)
}

/// What people see of a try.
pub(crate) async fn rendered(c: &mut Connection, id: Uuid) -> Result<Rendered, StoreError> {
    let sql = "SELECT fields, map_index_label FROM rendered WHERE task_instance_id = ?";
    let rows = fetch(c, sql, [id.to_string().into()]).await?;
    let read = |row: &Row| {
        read_row("rendered fields", || {
            Ok(Rendered {
                fields: row.opt_text("fields")?.map(JsonText::from),
                map_index_label: row.opt_text("map_index_label")?,
            })
        })
    };
    let found = rows.first().map(read).transpose()?;
    Ok(found.unwrap_or_default())
}

/// A variable.
pub(crate) async fn variable(
    c: &mut Connection,
    key: &str,
) -> Result<Option<StoredVariable>, StoreError> {
    let sql = "SELECT key, value, is_encrypted, description FROM variable WHERE key = ?";
    let rows = fetch(c, sql, [free_text(key)]).await?;
    let read = |row: &Row| {
        read_row("a variable", || {
            let is_encrypted = row.int("is_encrypted")? != 0;
            Ok(StoredVariable {
                key: row.text("key")?,
                value: sealed(row.text("value")?, is_encrypted),
                description: row.opt_text("description")?,
            })
        })
    };
    rows.first().map(read).transpose()
}

/// The names of variables that begin so.
pub(crate) async fn variable_keys(
    c: &mut Connection,
    prefix: &str,
    from: u64,
    limit: u32,
) -> Result<VariableKeys, StoreError> {
    // The cast is for Postgres, whose `substr` takes no BIGINT.
    const BEGINS_SO: &str = "FROM variable WHERE substr(key, 1, CAST(? AS INTEGER)) = ?";
    let n_characters = i64::from(i32::try_from(prefix.chars().count()).unwrap_or(i32::MAX));
    let begins_so: [Cell; 2] = [n_characters.into(), free_text(prefix)];
    let n_all = count(
        c,
        format!("SELECT COUNT(*) AS n {BEGINS_SO}"),
        begins_so.clone(),
    )
    .await?;
    let sql = format!("SELECT key {BEGINS_SO} ORDER BY key LIMIT ? OFFSET ?");
    let rows = fetch(c, sql, begins_so.into_iter().chain(page(from, limit))).await?;
    let keys = read_all(rows, |row| read_row("a variable", || row.text("key")))?;
    Ok(VariableKeys { keys, n_all })
}

/// A connection.
pub(crate) async fn connection(
    c: &mut Connection,
    conn_id: &str,
) -> Result<Option<StoredConnection>, StoreError> {
    let sql = "SELECT * FROM connection WHERE conn_id = ?";
    let rows = fetch(c, sql, [free_text(conn_id)]).await?;
    let read = |row: &Row| {
        read_row("a connection", || {
            let is_encrypted = row.int("is_password_encrypted")? != 0;
            let password = row.opt_text("password")?;
            let password = password.map(|text| sealed(text, is_encrypted));
            let is_encrypted = row.int("is_extra_encrypted")? != 0;
            let extra = row.opt_text("extra")?;
            let extra = extra.map(|text| sealed(text, is_encrypted));
            Ok(StoredConnection {
                conn_id: row.text("conn_id")?,
                conn_type: row.text("conn_type")?,
                description: row.opt_text("description")?,
                host: row.opt_text("host")?,
                schema: row.opt_text("schema")?,
                login: row.opt_text("login")?,
                port: row.opt_int("port")?,
                password,
                extra,
            })
        })
    };
    rows.first().map(read).transpose()
}

fn sealed(text: String, is_encrypted: bool) -> Sealed {
    if is_encrypted {
        Sealed::encrypted(text)
    } else {
        Sealed::plain(text)
    }
}

/// A value that the task instance of a try keeps, unless it has expired.
pub(crate) async fn task_state(
    c: &mut Connection,
    id: Uuid,
    key: &str,
    now: Timestamp,
) -> Result<Option<JsonText>, StoreError> {
    let sql = "SELECT task_state.value FROM task_instance JOIN task_state \
               ON task_state.dag_id = task_instance.dag_id \
               AND task_state.run_id = task_instance.run_id \
               AND task_state.task_id = task_instance.task_id \
               AND task_state.map_index = task_instance.map_index \
               WHERE task_instance.id = ? AND task_state.key = ? \
               AND (task_state.expires_at IS NULL OR task_state.expires_at > ?)";
    let cells = [id.to_string().into(), free_text(key), instant(Some(now))];
    first_value(c, sql, cells).await
}

/// What happened, latest first.
pub(crate) async fn events(
    c: &mut Connection,
    filter: &EventFilter,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut conditions = Conditions::default();
    conditions.add_equal("dag_id", filter.dag_id.as_ref());
    conditions.add_equal("run_id", filter.run_id.as_ref());
    conditions.add_equal("task_id", filter.task_id.as_ref());
    if let Some(before) = filter.before {
        conditions.add("id < ?", [before.into()]);
    }
    let Conditions { sql, cells } = conditions.page(" ORDER BY id DESC", Some(filter.limit));
    let rows = fetch(c, format!("SELECT * FROM event_log{sql}"), cells).await?;
    read_all(rows, |row| read_row("an event", || read_event(row)))
}

fn read_event(row: &Row) -> Result<StoredEvent, Unreadable> {
    Ok(StoredEvent {
        id: row.int("id")?,
        event: Event {
            at: read_instant(row, "at")?,
            event: row.text("event")?,
            dag_id: row.opt_text("dag_id")?,
            run_id: row.opt_text("run_id")?,
            task_id: row.opt_text("task_id")?,
            map_index: read_opt_int(row, "map_index")?,
            try_number: read_opt_int(row, "try_number")?,
            owner: row.opt_text("owner")?,
            extra: row.opt_text("extra")?,
        },
    })
}

fn page(from: u64, limit: u32) -> [Cell; 2] {
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    [i64::from(limit).into(), from.into()]
}

async fn first_value(
    c: &mut Connection,
    sql: &'static str,
    cells: impl IntoIterator<Item = Cell>,
) -> Result<Option<JsonText>, StoreError> {
    let rows = fetch(c, sql, cells).await?;
    rows.first().map(read_value).transpose()
}

fn read_value(row: &Row) -> Result<JsonText, StoreError> {
    read_row("a value", || Ok(row.text("value")?.into()))
}

/// The number in column `n`.
async fn count(
    c: &mut Connection,
    sql: impl Into<std::borrow::Cow<'static, str>>,
    cells: impl IntoIterator<Item = Cell>,
) -> Result<u64, StoreError> {
    let rows = fetch(c, sql, cells).await?;
    let n_rows = rows.first().map_or(Ok(0), |row| row.int("n"));
    read_row("a count", || n_rows).map(i64::unsigned_abs)
}
