//! Tables `bundle`, `dag_version`, `import_error`, `reschedule` and `deferral`, and the columns of `task_instance` that
//! only DAGs from Python use.

use jiff::SignedDuration;
use serde_json::Value;
use uuid::Uuid;

use super::{
    Table, Unreadable, free_text, instant, json, opt_free_text, parse_json, read_instant, read_int,
    read_opt_instant, read_row, read_uuid,
};
use crate::{
    changes::StoreError,
    engine::{Cell, Row},
    model::{
        AirflowTask, Bundle, BundleVersion, DagVersion, Deferral, DocumentHash, FileKey,
        ImportError, Looks, Reschedule, Trigger, WorkerProcess,
    },
};

/// Table `bundle`.
pub(crate) const BUNDLE: Table = Table {
    name: "bundle",
    columns: &[
        "name",
        "bundle_version",
        "refreshed_at",
        "is_active",
        "version",
    ],
    key: &["name"],
    fixed: &[],
    addressable: "",
};

/// The cells of a bundle, with this row version.
pub(crate) fn bundle_cells(bundle: &Bundle, version: i64) -> [Cell; 5] {
    [
        bundle.name.as_str().into(),
        bundle.bundle_version.clone().into(),
        instant(bundle.refreshed_at),
        i64::from(bundle.is_active).into(),
        version.into(),
    ]
}

/// A bundle from its row.
pub(crate) fn read_bundle(row: &Row) -> Result<Bundle, StoreError> {
    read_row("a bundle", || {
        Ok(Bundle {
            name: row.text("name")?,
            bundle_version: row.opt_text("bundle_version")?,
            refreshed_at: read_opt_instant(row, "refreshed_at")?,
            is_active: row.int("is_active")? != 0,
            version: row.int("version")?,
        })
    })
}

/// Table `dag_version`.
pub(crate) const DAG_VERSION: Table = Table {
    name: "dag_version",
    columns: &[
        "id",
        "dag_id",
        "number",
        "content_hash",
        "document_hash",
        "source_hash",
        "bundle_name",
        "bundle_version",
        "file",
        "created_at",
        "version",
    ],
    key: &["id"],
    fixed: &[
        "dag_id",
        "number",
        "content_hash",
        "document_hash",
        "created_at",
    ],
    addressable: "",
};

/// The cells of a DAG version, with this row version.
pub(crate) fn dag_version_cells(it: &DagVersion, version: i64) -> [Cell; 11] {
    let bundle = it.bundle.as_ref();
    let bundle_version = bundle.and_then(|bundle| bundle.version.clone());
    [
        it.id.to_string().into(),
        it.dag_id.as_str().into(),
        i64::from(it.number).into(),
        it.content_hash.as_str().into(),
        it.document.as_str().into(),
        Cell::Text(it.source.as_ref().map(ToString::to_string)),
        Cell::Text(bundle.map(|bundle| bundle.name.clone())),
        bundle_version.into(),
        it.file.as_str().into(),
        instant(Some(it.created_at)),
        version.into(),
    ]
}

/// A DAG version from its row.
pub(crate) fn read_dag_version(row: &Row) -> Result<DagVersion, StoreError> {
    read_row("a DAG version", || {
        let name = row.opt_text("bundle_name")?;
        let version = row.opt_text("bundle_version")?;
        Ok(DagVersion {
            id: read_uuid(&row.text("id")?, "id")?,
            dag_id: row.text("dag_id")?,
            number: read_int(row, "number")?,
            content_hash: row.text("content_hash")?,
            document: DocumentHash::stored(row.text("document_hash")?),
            source: row.opt_text("source_hash")?.map(DocumentHash::stored),
            bundle: name.map(|name| BundleVersion { name, version }),
            file: row.text("file")?,
            created_at: read_instant(row, "created_at")?,
            version: row.int("version")?,
        })
    })
}

/// Table `import_error`.
pub(crate) const IMPORT_ERROR: Table = Table {
    name: "import_error",
    columns: &["bundle_name", "file", "error", "seen_at", "version"],
    key: &["bundle_name", "file"],
    fixed: &[],
    addressable: "",
};

/// The cells of an import error, with this row version.
pub(crate) fn import_error_cells(it: &ImportError, version: i64) -> [Cell; 5] {
    let [bundle, file] = file_cells(&it.key);
    [
        bundle,
        file,
        free_text(&it.error),
        instant(Some(it.seen_at)),
        version.into(),
    ]
}

/// The cells of a file's address.
pub(crate) fn file_cells(key: &FileKey) -> [Cell; 2] {
    [key.bundle.as_str().into(), key.file.as_str().into()]
}

/// An import error from its row.
pub(crate) fn read_import_error(row: &Row) -> Result<ImportError, StoreError> {
    read_row("an import error", || {
        Ok(ImportError {
            key: FileKey {
                bundle: row.text("bundle_name")?,
                file: row.text("file")?,
            },
            error: row.text("error")?,
            seen_at: read_instant(row, "seen_at")?,
            version: row.int("version")?,
        })
    })
}

/// Table `reschedule`. Its rows are never changed.
pub(crate) const RESCHEDULE: Table = Table {
    name: "reschedule",
    columns: &[
        "task_instance_id",
        "number",
        "start_date",
        "end_date",
        "reschedule_date",
    ],
    key: &["task_instance_id", "number"],
    fixed: &[],
    addressable: "",
};

/// The cells of a reschedule.
pub(crate) fn reschedule_cells(it: &Reschedule) -> [Cell; 5] {
    [
        it.task_instance_id.to_string().into(),
        i64::from(it.number).into(),
        instant(Some(it.start_date)),
        instant(Some(it.end_date)),
        instant(Some(it.reschedule_date)),
    ]
}

/// A reschedule from its row.
pub(crate) fn read_reschedule(row: &Row) -> Result<Reschedule, StoreError> {
    read_row("a reschedule", || {
        Ok(Reschedule {
            task_instance_id: read_uuid(&row.text("task_instance_id")?, "task_instance_id")?,
            number: read_int(row, "number")?,
            start_date: read_instant(row, "start_date")?,
            end_date: read_instant(row, "end_date")?,
            reschedule_date: read_instant(row, "reschedule_date")?,
        })
    })
}

/// The cells of a deferral: the try, class, arguments and queue of the trigger, arguments of the method.
pub(crate) fn deferral_cells(it: &Deferral) -> [Cell; 5] {
    let trigger = it.trigger.as_ref();
    [
        it.task_instance_id.to_string().into(),
        opt_free_text(trigger.map(|trigger| trigger.classpath.as_str())),
        trigger.map_or(Cell::Text(None), |trigger| json(&trigger.kwargs)),
        opt_free_text(trigger.and_then(|trigger| trigger.queue.as_deref())),
        json(&it.next_kwargs),
    ]
}

/// A deferral from its row.
pub(crate) fn read_deferral(row: &Row) -> Result<Deferral, StoreError> {
    read_row("a deferral", || {
        let classpath = row.opt_text("classpath")?;
        let kwargs = row.opt_text("trigger_kwargs")?;
        let kwargs = kwargs.map(|text| parse_json(&text, "trigger_kwargs"));
        let kwargs = kwargs.transpose()?.unwrap_or(Value::Null);
        let queue = row.opt_text("queue")?;
        Ok(Deferral {
            task_instance_id: read_uuid(&row.text("task_instance_id")?, "task_instance_id")?,
            trigger: classpath.map(|classpath| Trigger {
                classpath,
                kwargs,
                queue,
            }),
            next_kwargs: parse_json(&row.text("next_kwargs")?, "next_kwargs")?,
        })
    })
}

/// The cells of the columns of a task instance that only DAGs from Python use.
pub(crate) fn task_cells(task: Option<&AirflowTask>) -> [Cell; 11] {
    let process = task.and_then(|task| task.process.as_ref());
    let looks = task.and_then(|task| task.looks);
    let delay = task.and_then(|task| task.retry_delay);
    let method = task.and_then(|task| task.next_method.as_deref());
    let reason = task.and_then(|task| task.retry_reason.as_deref());
    [
        Cell::Text(task.map(|task| task.dag_version.to_string())),
        opt_free_text(process.map(|process| process.hostname.as_str())),
        opt_free_text(process.map(|process| process.unixname.as_str())),
        Cell::Int(process.map(|process| process.pid)),
        opt_free_text(method),
        instant(task.and_then(|task| task.timeout_at)),
        Cell::Int(looks.map(|looks| i64::from(looks.n))),
        instant(looks.map(|looks| looks.first_at)),
        instant(looks.map(|looks| looks.next_at)),
        Cell::Int(delay.map(|delay| i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))),
        opt_free_text(reason),
    ]
}

/// What a task instance of a DAG from Python has beside the rest.
pub(crate) fn read_task(row: &Row) -> Result<Option<Box<AirflowTask>>, Unreadable> {
    let Some(dag_version) = row.opt_text("dag_version_id")? else {
        return Ok(None);
    };
    let dag_version: Uuid = read_uuid(&dag_version, "dag_version_id")?;
    let delay = row.opt_int("retry_delay")?;
    Ok(Some(Box::new(AirflowTask {
        dag_version,
        process: read_process(row)?,
        next_method: row.opt_text("next_method")?,
        timeout_at: read_opt_instant(row, "timeout_at")?,
        looks: read_looks(row)?,
        retry_delay: delay.map(SignedDuration::from_micros),
        retry_reason: row.opt_text("retry_reason")?,
    })))
}

fn read_process(row: &Row) -> Result<Option<WorkerProcess>, Unreadable> {
    let Some(hostname) = row.opt_text("hostname")? else {
        return Ok(None);
    };
    Ok(Some(WorkerProcess {
        hostname,
        unixname: row.text("unixname")?,
        pid: row.int("pid")?,
    }))
}

fn read_looks(row: &Row) -> Result<Option<Looks>, Unreadable> {
    if row.opt_int("n_reschedules")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Looks {
        n: read_int(row, "n_reschedules")?,
        first_at: read_instant(row, "first_look_at")?,
        next_at: read_instant(row, "reschedule_at")?,
    }))
}
