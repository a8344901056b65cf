//! What lists cost beside a long history: the time of each, the memory of the service, and what readers take from a
//! scheduler at work.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use jiff::SignedDuration;
use longshore_console::client::{Client, ClientFile};
use longshore_kit::{Clock, SystemClock};
use longshore_store::{
    Changes, Run, RunDetails, RunKey, RunState, RunStore, RunType, Store, StoredDocument,
    TaskInstance, TaskState,
};
use serde_json::{Map, Value, json};
use tokio::{task::JoinSet, time::Instant};
use uuid::Uuid;

use super::{Order, ask, board::Board, document, folder, start, task};
use crate::{
    ListsArgs,
    figures::{Times, per_second, round},
    rig::Rig,
    say, subject,
};

/// The tasks of the DAG that has the history.
const N_TASKS: usize = 900;
/// The DAG that has the history, and those that are scheduled without and beside readers.
const HISTORY: &str = "bench-history";
const WARM: &str = "bench-warm";
const AFTER: &str = "bench-after";
const ALONE: &str = "bench-alone";
const BESIDE: &str = "bench-beside";
/// Lists of each kind.
const N_LISTS: usize = 50;
/// The runs in a list of a reader.
const READ: usize = 1_000;
/// The service starts within this time; it checks the whole file of its database first.
const START_LIMIT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Between two lists of a reader: a screen that is refreshed.
const REFRESH: Duration = Duration::from_secs(1);

/// Fills a database, then measures lists, and a scheduler without and beside readers.
pub(crate) async fn measure(rig: &Rig, args: &ListsArgs) -> Result<Value> {
    let n = args.of.common.n;
    let n_runs = args.task_instances.div_ceil(N_TASKS);
    say(&format!("{n_runs} runs of {N_TASKS} tasks"));
    let folder = folder(rig, &args.of)?;
    fs::write(folder.join("history.yaml"), history_file()?)?;
    fill(&subject::data_dir(rig), n_runs).await?;
    let board = Board::follow(rig);
    let began = Instant::now();
    let subject = start(rig, &args.of).await?;
    let client = client(&subject::data_dir(rig)).await?;
    let started = began.elapsed();
    let rss = subject.rss_mib()?.context("its process is not known")?;
    say("lists");
    let few = runs(&client, 50).await?;
    let many = runs(&client, READ).await?;
    let mut dags = Times::default();
    for _ in 0..N_LISTS {
        let began = Instant::now();
        client.dags().await?;
        dags.push(began.elapsed());
    }
    let peak = subject.peak_mib()?.context("its process is not known")?;
    let mut alone = Vec::new();
    // The first one warms up.
    for dag_id in [WARM, ALONE] {
        say(&format!("{n} tasks, alone"));
        ask(&folder, dag_id, n, Order::AllAtOnce)?;
        alone.push(board.until_gone(dag_id, n).await?);
    }
    say(&format!("{n} tasks, beside {} readers", args.readers));
    let mut readers = JoinSet::new();
    for _ in 0..args.readers {
        readers.spawn(read_on(client.clone()));
    }
    ask(&folder, BESIDE, n, Order::AllAtOnce)?;
    let took = tokio::select! {
        took = board.until_gone(BESIDE, n) => took?,
        Some(failed) = readers.join_next() => failed??,
    };
    let beside = per_second(n, took);
    readers.shutdown().await;
    // What is slower because there is more on record is no fault of the readers.
    say(&format!("{n} tasks, alone again"));
    ask(&folder, AFTER, n, Order::AllAtOnce)?;
    alone.push(board.until_gone(AFTER, n).await?);
    let alone = per_second(2 * n, alone[1] + alone[2]);
    subject.stop().await?;
    Ok(json!({
        "subsystem": "dags-lists",
        "server": rig.server,
        "n": n,
        "task_instances": n_runs * N_TASKS,
        "start_seconds": round(started.as_secs_f64()),
        "list_ms": {
            "runs_50": few.milliseconds(),
            "runs_1000": many.milliseconds(),
            "dags": dags.milliseconds(),
        },
        "rss_mib": round(rss),
        "added_by_lists_mib": round(peak - rss),
        "readers": args.readers,
        "per_second": alone,
        "per_second_beside_readers": beside,
        "ratio_beside_readers": round(beside / alone),
    }))
}

/// A client of the service, once that has opened its database and read its DAG files.
async fn client(data_dir: &Path) -> Result<Client> {
    let serving = async {
        loop {
            if let Some(file) = ClientFile::read(data_dir)? {
                let client = Client::new(&file.server, Some(file.token))?;
                let dags = client.dags().await;
                if dags.is_ok_and(|dags| !dags.items.is_empty()) {
                    return Ok(client);
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let limit = tokio::time::timeout(START_LIMIT, serving);
    limit.await.context("the service does not serve")?
}

/// Lists of so many runs.
async fn runs(client: &Client, limit: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..N_LISTS {
        let began = Instant::now();
        client.runs(&[("limit", limit.to_string())]).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// One reader. It ends with an error only.
async fn read_on(client: Client) -> Result<Duration> {
    loop {
        client.runs(&[("limit", READ.to_string())]).await?;
        tokio::time::sleep(REFRESH).await;
    }
}

/// The DAG of the history, which no schedule runs.
fn history_file() -> Result<String> {
    let text = document(HISTORY, N_TASKS, Order::AllAtOnce)?;
    Ok(text.replace("schedule: '@once'\n", ""))
}

/// Runs that have ended, of one DAG.
async fn fill(data_dir: &Path, n_runs: usize) -> Result<()> {
    fs::create_dir_all(data_dir)?;
    let store = Store::open(data_dir.join("longshore.db")).await?;
    // As large as the form in which a DAG is stored.
    let padding = "x".repeat(700);
    let tasks: Map<String, Value> = (0..N_TASKS).map(|i| (task(i), json!([padding]))).collect();
    let stored = StoredDocument::of(&json!({"dag_id": HISTORY, "tasks": tasks}));
    for n in 0..n_runs {
        let run = run(n, &stored);
        let task_instances = (0..N_TASKS).map(|i| row(&run, i)).collect();
        let changes = Changes {
            documents: vec![stored.clone()],
            runs: vec![run],
            task_instances,
            ..Changes::default()
        };
        store.commit(&changes).await?;
    }
    store.close().await;
    Ok(())
}

fn run(n: usize, stored: &StoredDocument) -> Run {
    let age = SignedDuration::from_secs(60 * i64::try_from(n).unwrap_or(i64::MAX));
    let at = SystemClock.now() - age;
    Run {
        key: RunKey {
            dag_id: HISTORY.to_owned(),
            run_id: format!("manual__{at}"),
        },
        run_type: RunType::Manual,
        state: RunState::Success,
        logical_date: Some(at),
        queued_at: at,
        start_date: Some(at),
        end_date: Some(at),
        conf: json!({"day": "2026-11-21", "n": n}),
        dag_hash: stored.hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails::default(),
        version: 0,
    }
}

fn row(run: &Run, i: usize) -> TaskInstance {
    TaskInstance {
        state: Some(TaskState::Success),
        try_number: 1,
        launch: 1,
        scheduled_at: Some(run.queued_at),
        queued_at: Some(run.queued_at),
        start_date: Some(run.queued_at),
        end_date: Some(run.queued_at),
        pod_name: Some(format!("{HISTORY}-{i}")),
        pod_uid: Some(Uuid::new_v4().to_string()),
        ..TaskInstance::new(Uuid::new_v4(), run.key.task(task(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_schedule_runs_the_history() {
        assert!(
            document(HISTORY, 1, Order::AllAtOnce)
                .unwrap()
                .contains("schedule")
        );
        assert!(!history_file().unwrap().contains("schedule"));
    }
}
