//! The log of a try: from its pod while there is one, from the data directory afterwards.

use std::{
    io::{self, SeekFrom},
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, LogParams},
};
use longshore_api::airflow::CONTAINER_BASE;
use longshore_console::{
    ControlError, Feed, TaskName,
    control::{LogQuery, LogStream, Until},
};
use longshore_dags::{
    actions::{self, TaskPod},
    logs::{LogDirectory, LogPath},
    model::Launcher,
};
use longshore_store::{Catalog, TaskInstance};
use serde_json::Value;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt, io::ReaderStream};

use super::{find, unavailable};

/// How often a follower checks again whether a try has a log, when no state change says so: a pod's log exists a moment
/// after its row is `running`, and the stored one a moment after the row is final.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often the service looks for the log of a try that is over: the scheduler may be about to store the log.
const MAX_LOOKS: u32 = 5;

/// Where logs are.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    /// The stored logs, of pods that are gone.
    pub(crate) directory: LogDirectory,
    /// The pods that exist, for their live logs.
    pub(crate) pods: Api<Pod>,
}

/// What there is of the log of a try.
enum Found {
    Log(LogStream),
    /// Nothing yet.
    Later(&'static str),
    /// Nothing, and there will be nothing.
    Never(&'static str),
}

impl Logs {
    /// Sends the cluster the smallest request, to see whether it responds.
    pub(super) async fn answers(&self) -> kube::Result<()> {
        let one = ListParams::default().limit(1);
        self.pods.list_metadata(&one).await.map(drop)
    }

    /// Reads the log of a try. A follower waits for a try that has not started.
    pub(super) async fn read(
        &self,
        store: Arc<dyn Catalog>,
        feed: &Feed,
        task: &TaskName,
        query: LogQuery,
    ) -> Result<LogStream, ControlError> {
        let no_log = |task: &TaskName, why: &str| ControlError::NoLog {
            task: task.clone(),
            why: why.to_owned(),
        };
        let mut changes = feed.reader(None);
        let why = match self.find(store.as_ref(), task, query).await? {
            Found::Log(log) => return Ok(log),
            Found::Never(why) => return Err(no_log(task, why)),
            Found::Later(why) => why,
        };
        if query.until == Until::Now {
            return Err(no_log(task, why));
        }
        let (logs, task) = (self.clone(), task.clone());
        let waited = async move {
            loop {
                // A change of any run is a reason to look: that is rare enough.
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.next()).await;
                match logs.find(store.as_ref(), &task, query).await {
                    Ok(Found::Log(log)) => return Ok(log),
                    Ok(Found::Later(_)) => {}
                    Ok(Found::Never(_)) => return Ok(stream::empty().boxed()),
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
        };
        Ok(waited.into_stream().try_flatten().boxed())
    }

    async fn find(
        &self,
        store: &dyn Catalog,
        task: &TaskName,
        query: LogQuery,
    ) -> Result<Found, ControlError> {
        let row = &find(store, task).await?;
        let attempt = query.attempt.unwrap_or(row.try_number);
        if attempt > row.try_number {
            return Ok(Found::Never("there is no such try"));
        }
        if attempt < row.try_number {
            let stored = self.stored(row, attempt, query.tail).await?;
            return Ok(stored.map_or(Found::Never("nothing was stored of that try"), Found::Log));
        }
        for look in 1..=MAX_LOOKS {
            if let Some(log) = self.stored(row, attempt, query.tail).await? {
                return Ok(Found::Log(log));
            }
            if let Some(log) = self.live(store, row, query).await? {
                return Ok(Found::Log(log));
            }
            let is_over = row
                .state
                .is_some_and(longshore_store::TaskState::is_finished);
            if !is_over {
                return Ok(Found::Later("it has not started"));
            }
            // The pod may have gone between the two looks.
            if row.pod_uid.is_none() || look == MAX_LOOKS {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN / MAX_LOOKS).await;
        }
        Ok(Found::Never("it never ran, or its pod is gone"))
    }

    /// The log of a try in the data directory.
    async fn stored(
        &self,
        row: &TaskInstance,
        attempt: u32,
        tail: Option<usize>,
    ) -> Result<Option<LogStream>, ControlError> {
        let path = self.directory.file(&LogPath::of_try(&row.key, attempt));
        match open(&path, tail).await {
            Ok(file) => Ok(Some(ReaderStream::new(file).boxed())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ControlError::Unavailable {
                what: "the log directory",
                source: Box::new(source),
            }),
        }
    }

    /// The log of a try at the node of its pod.
    async fn live(
        &self,
        store: &dyn Catalog,
        row: &TaskInstance,
        query: LogQuery,
    ) -> Result<Option<LogStream>, ControlError> {
        let unavailable = |source: kube::Error| ControlError::Unavailable {
            what: "the cluster",
            source: Box::new(source),
        };
        let Some(name) = &row.pod_name else {
            return Ok(None);
        };
        let pod = match launcher(store, row).await? {
            Launcher::TaskAction => {
                let pod = actions::pod_of(&self.pods, &row.id).await;
                pod.map_err(unavailable)?
            }
            Launcher::Pod => Some(TaskPod {
                name: name.clone(),
                container: Some(CONTAINER_BASE.to_owned()),
            }),
        };
        let Some(TaskPod { name, container }) = pod else {
            return Ok(None);
        };
        let params = LogParams {
            container,
            follow: query.until == Until::End,
            tail_lines: query.tail.and_then(|n| i64::try_from(n).ok()),
            ..LogParams::default()
        };
        match self.pods.log_stream(&name, &params).await {
            Ok(log) => Ok(Some(ReaderStream::new(log.compat()).boxed())),
            // The container waits, or the pod is not there yet or no more.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(None),
            Err(source) => Err(unavailable(source)),
        }
    }
}

/// What the tries of a task instance are launched as: a run keeps the DAG that it began with.
async fn launcher(store: &dyn Catalog, row: &TaskInstance) -> Result<Launcher, ControlError> {
    let document = store.document_of(&row.key.run).await;
    let document = document.map_err(unavailable)?;
    let dag: Option<Value> =
        document.and_then(|document| serde_json::from_str(document.body()).ok());
    let plugin = dag.map(|mut dag| dag["tasks"][&row.key.task_id]["plugin"].take());
    Ok(match plugin {
        None | Some(Value::Null) => Launcher::Pod,
        Some(_) => Launcher::TaskAction,
    })
}

/// Opens a file at its last `tail` lines.
async fn open(path: &Path, tail: Option<usize>) -> io::Result<File> {
    const BLOCK: u64 = 64 * 1024;
    let mut file = File::open(path).await?;
    let Some(tail) = tail else {
        return Ok(file);
    };
    let mut at = file.metadata().await?.len();
    let end = at;
    let mut n_missing = tail;
    let mut start = 0;
    while at > 0 {
        let length = at.min(BLOCK);
        at -= length;
        file.seek(SeekFrom::Start(at)).await?;
        let mut block = Vec::new();
        (&mut file).take(length).read_to_end(&mut block).await?;
        // The newline at the very end begins no line.
        let newlines = (at..)
            .zip(&block)
            .filter(|(at, byte)| **byte == b'\n' && at + 1 < end);
        let newlines: Vec<u64> = newlines.map(|(at, _)| at).collect();
        if n_missing <= newlines.len() {
            start = match n_missing {
                0 => end,
                _ => newlines
                    .get(newlines.len() - n_missing)
                    .map_or(0, |at| at + 1),
            };
            break;
        }
        n_missing -= newlines.len();
    }
    file.seek(SeekFrom::Start(start)).await?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_found_across_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let long = "x".repeat(70_000);
        for (text, tail, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\n", 5, "a\nb\n"),
            ("a\nb\n", 2, "a\nb\n"),
            ("a\nb\n", 0, ""),
            ("", 3, ""),
            ("\n\n\n", 1, "\n"),
            (&format!("a\n{long}\nb\n"), 2, &format!("{long}\nb\n")),
            (
                &format!("a\n{long}\n{long}\n"),
                3,
                &format!("a\n{long}\n{long}\n"),
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut read = String::new();
            let mut file = open(&path, Some(tail)).await.unwrap();
            file.read_to_string(&mut read).await.unwrap();
            assert_eq!(read, expected, "{} bytes, {tail}", text.len());
        }
    }
}
