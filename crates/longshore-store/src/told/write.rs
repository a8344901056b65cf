//! The statements that write. Each of a worker ends with the condition that its try is the current one.

use jiff::Timestamp;
use uuid::Uuid;

use super::{Event, FromTry, Sealed, Shared, StoredConnection, StoredVariable, XCom, XComKey};
use crate::{
    apply::Refusal,
    engine::{Cell, Connection, EngineError},
    rows::{free_text, instant, opt_free_text, run},
};

/// Holds while the try of the worker is the current one of its task instance.
const IS_CURRENT: &str = "EXISTS (SELECT 1 FROM task_instance WHERE id = ? AND is_archived = 0)";

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// So many rows changed.
    Rows(u64),
    /// None, because no try ever had the worker's id.
    Unknown,
    /// None, because another try followed.
    Earlier,
}

/// A statement with its parameters.
struct Statement {
    sql: String,
    cells: Vec<Cell>,
}

impl Statement {
    fn new(sql: impl Into<String>, cells: impl IntoIterator<Item = Cell>) -> Self {
        Self {
            sql: sql.into(),
            cells: cells.into_iter().collect(),
        }
    }
}

/// Writes what the worker of a try says.
pub(crate) async fn tell(c: &mut Connection, id: Uuid, what: &FromTry) -> Result<Done, Refusal> {
    let Statement { sql, cells } = of_try(id, what);
    let n_rows = c.execute(sql, cells).await?;
    if n_rows > 0 {
        return Ok(Done::Rows(n_rows));
    }
    // In the same transaction: what went wrong is what the statement saw.
    let sql = "SELECT is_archived FROM task_instance WHERE id = ?";
    let rows = c.fetch(sql, [id.to_string().into()]).await?;
    let is_archived = rows.first().map(|row| row.int("is_archived"));
    Ok(match is_archived {
        None => Done::Unknown,
        Some(Ok(0)) => Done::Rows(0),
        Some(Ok(_)) => Done::Earlier,
        Some(Err(why)) => return Err(EngineError::unreadable(why).into()),
    })
}

/// Writes what is of no try.
pub(crate) async fn keep(c: &mut Connection, what: &Shared) -> Result<Done, Refusal> {
    let Statement { sql, cells } = shared(what, None);
    Ok(Done::Rows(c.execute(sql, cells).await?))
}

/// The row that refused a write.
pub(crate) fn conflict(what: &FromTry) -> String {
    match what {
        FromTry::XCom(XCom { key, .. }) | FromTry::NoXCom { key, .. } => format!("run {}", key.run),
        FromTry::RenderedFields(_)
        | FromTry::MapIndexLabel(_)
        | FromTry::State { .. }
        | FromTry::NoState(_)
        | FromTry::Shared(_) => "a value".to_owned(),
    }
}

/// About how many bytes a worker writes.
pub(crate) fn size(what: &FromTry) -> usize {
    match what {
        FromTry::XCom(xcom) => xcom.value.len(),
        FromTry::RenderedFields(value) | FromTry::State { value, .. } => value.len(),
        FromTry::Shared(what) => size_of_shared(what),
        FromTry::NoXCom { .. } | FromTry::MapIndexLabel(_) | FromTry::NoState(_) => 0,
    }
}

/// About how many bytes a user or the service writes.
pub(crate) fn size_of_shared(what: &Shared) -> usize {
    let of = |sealed: Option<&Sealed>| sealed.map_or(0, |sealed| sealed.text().len());
    match what {
        Shared::Variable(variable) => of(Some(&variable.value)),
        Shared::Connection(connection) => of(connection.extra.as_ref()),
        Shared::Event(event) => event.extra.as_ref().map_or(0, String::len),
        Shared::NoVariable(_) | Shared::NoConnection(_) => 0,
    }
}

fn of_try(id: Uuid, what: &FromTry) -> Statement {
    let try_id: Cell = id.to_string().into();
    match what {
        FromTry::XCom(xcom) => put_xcom(xcom, try_id),
        FromTry::NoXCom { key, map_index } => {
            let sql = "DELETE FROM xcom WHERE dag_id = ? AND run_id = ? AND task_id = ? AND key = ? \
                       AND map_index = ?";
            let index = [i64::from(*map_index).into(), try_id];
            let cells = xcom_cells(key).into_iter().chain(index);
            Statement::new(format!("{sql} AND {IS_CURRENT}"), cells)
        }
        FromTry::RenderedFields(fields) => put_rendered(id, "fields", (&**fields).into()),
        FromTry::MapIndexLabel(label) => put_rendered(id, "map_index_label", free_text(label)),
        FromTry::State {
            key,
            value,
            expires_at,
        } => put_state(try_id, key, value, *expires_at),
        FromTry::NoState(key) => {
            let sql = "DELETE FROM task_state WHERE (dag_id, run_id, task_id, map_index) IN (\
                       SELECT dag_id, run_id, task_id, map_index FROM task_instance \
                       WHERE id = ? AND is_archived = 0)";
            let only = if key.is_some() { " AND key = ?" } else { "" };
            let key = key.as_deref().map(free_text);
            Statement::new(format!("{sql}{only}"), [try_id].into_iter().chain(key))
        }
        FromTry::Shared(what) => shared(what, Some(try_id)),
    }
}

/// The cells of an XCom's address, without the map index.
pub(crate) fn xcom_cells(key: &XComKey) -> [Cell; 4] {
    let [dag_id, run_id] = run::key_cells(&key.run);
    [dag_id, run_id, free_text(&key.task_id), free_text(&key.key)]
}

fn put_xcom(xcom: &XCom, try_id: Cell) -> Statement {
    let sql = format!(
        "INSERT INTO xcom (dag_id, run_id, task_id, key, map_index, value, mapped_length, is_dag_result, \
         written_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE {IS_CURRENT} \
         ON CONFLICT (dag_id, run_id, task_id, key, map_index) DO UPDATE SET value = excluded.value, \
         mapped_length = excluded.mapped_length, is_dag_result = excluded.is_dag_result, \
         written_at = excluded.written_at"
    );
    let rest = [
        i64::from(xcom.map_index).into(),
        (&*xcom.value).into(),
        Cell::Int(xcom.mapped_length.map(i64::from)),
        i64::from(xcom.is_dag_result).into(),
        instant(Some(xcom.written_at)),
        try_id,
    ];
    Statement::new(sql, xcom_cells(&xcom.key).into_iter().chain(rest))
}

/// Sets one column of what people see of a try.
fn put_rendered(id: Uuid, column: &str, value: Cell) -> Statement {
    let sql = format!(
        "INSERT INTO rendered (task_instance_id, {column}) SELECT ?, ? WHERE {IS_CURRENT} \
         ON CONFLICT (task_instance_id) DO UPDATE SET {column} = excluded.{column}"
    );
    let id = id.to_string();
    Statement::new(sql, [id.as_str().into(), value, id.as_str().into()])
}

fn put_state(try_id: Cell, key: &str, value: &str, expires_at: Option<Timestamp>) -> Statement {
    let sql = "INSERT INTO task_state (dag_id, run_id, task_id, map_index, key, value, expires_at) \
               SELECT dag_id, run_id, task_id, map_index, ?, ?, ? FROM task_instance \
               WHERE id = ? AND is_archived = 0 \
               ON CONFLICT (dag_id, run_id, task_id, map_index, key) DO UPDATE SET \
               value = excluded.value, expires_at = excluded.expires_at";
    let cells = [free_text(key), value.into(), instant(expires_at), try_id];
    Statement::new(sql, cells)
}

/// `try_id` is that of the worker, where one writes.
fn shared(what: &Shared, try_id: Option<Cell>) -> Statement {
    let is_allowed = if try_id.is_some() {
        IS_CURRENT
    } else {
        "1 = 1"
    };
    let (sql, cells) = match what {
        Shared::Variable(variable) => put_variable(variable, is_allowed),
        Shared::NoVariable(key) => (
            format!("DELETE FROM variable WHERE key = ? AND {is_allowed}"),
            vec![free_text(key)],
        ),
        Shared::Connection(connection) => put_connection(connection, is_allowed),
        Shared::NoConnection(conn_id) => (
            format!("DELETE FROM connection WHERE conn_id = ? AND {is_allowed}"),
            vec![free_text(conn_id)],
        ),
        Shared::Event(event) => put_event(event, is_allowed),
    };
    Statement::new(sql, cells.into_iter().chain(try_id))
}

fn put_variable(variable: &StoredVariable, is_allowed: &str) -> (String, Vec<Cell>) {
    let sql = format!(
        "INSERT INTO variable (key, value, is_encrypted, description) SELECT ?, ?, ?, ? WHERE {is_allowed} \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value, is_encrypted = excluded.is_encrypted, \
         description = COALESCE(excluded.description, variable.description)"
    );
    let [value, is_encrypted] = sealed_cells(Some(&variable.value));
    let cells = vec![
        free_text(&variable.key),
        value,
        is_encrypted,
        opt_free_text(variable.description.as_deref()),
    ];
    (sql, cells)
}

fn put_connection(it: &StoredConnection, is_allowed: &str) -> (String, Vec<Cell>) {
    let columns = [
        "conn_type",
        "description",
        "host",
        "schema",
        "login",
        "port",
        "password",
        "is_password_encrypted",
        "extra",
        "is_extra_encrypted",
    ];
    let set = columns.map(|column| format!("{column} = excluded.{column}"));
    let sql = format!(
        "INSERT INTO connection (conn_id, {}) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE {is_allowed} \
         ON CONFLICT (conn_id) DO UPDATE SET {}",
        columns.join(", "),
        set.join(", ")
    );
    let [password, is_password_encrypted] = sealed_cells(it.password.as_ref());
    let [extra, is_extra_encrypted] = sealed_cells(it.extra.as_ref());
    let cells = vec![
        free_text(&it.conn_id),
        free_text(&it.conn_type),
        opt_free_text(it.description.as_deref()),
        opt_free_text(it.host.as_deref()),
        opt_free_text(it.schema.as_deref()),
        opt_free_text(it.login.as_deref()),
        Cell::Int(it.port),
        password,
        is_password_encrypted,
        extra,
        is_extra_encrypted,
    ];
    (sql, cells)
}

/// The text, and whether it is encrypted.
fn sealed_cells(sealed: Option<&Sealed>) -> [Cell; 2] {
    let is_encrypted = sealed.is_some_and(Sealed::is_encrypted);
    [
        opt_free_text(sealed.map(Sealed::text)),
        i64::from(is_encrypted).into(),
    ]
}

fn put_event(event: &Event, is_allowed: &str) -> (String, Vec<Cell>) {
    // The writer is alone, so that the next number is free.
    let sql = format!(
        "INSERT INTO event_log (id, at, event, dag_id, run_id, task_id, map_index, try_number, owner, extra) \
         SELECT (SELECT COALESCE(MAX(id), 0) + 1 FROM event_log), ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE {is_allowed}"
    );
    let cells = vec![
        instant(Some(event.at)),
        free_text(&event.event),
        opt_free_text(event.dag_id.as_deref()),
        opt_free_text(event.run_id.as_deref()),
        opt_free_text(event.task_id.as_deref()),
        Cell::Int(event.map_index.map(i64::from)),
        Cell::Int(event.try_number.map(i64::from)),
        opt_free_text(event.owner.as_deref()),
        opt_free_text(event.extra.as_deref()),
    ];
    (sql, cells)
}
