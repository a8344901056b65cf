//! A DAG of tasks, each with a pod that ends at once: the scheduler against a bare client that creates and deletes the
//! same pods and makes the same commits.
//!
//! In one DAG the tasks wait for each other, which shows what one takes when nothing else goes on: from the end of a pod
//! to the pod of the next task. In the other one no task waits for any.

mod board;
mod floor;
pub(crate) mod lists;

use std::{fmt::Write, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use longshore_store::{DEFAULT_POOL, Pool, RunStore, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    DagsArgs,
    figures::{Times, per_second, round},
    pods::bare,
    rig::Rig,
    say,
    spent::Spent,
    subject::{self, Subject},
};
use board::Board;
use floor::Floor;

/// Tasks one after the other.
const N_UNLOADED: usize = 20;
/// The DAGs of the scheduler, and those of the floor.
const CHAIN: &str = "bench-chain";
const MANY: &str = "bench-many";
const FLOOR_CHAIN: &str = "floor-chain";
const FLOOR_MANY: &str = "floor-many";

/// Measures the scheduler, then the floor.
pub(crate) async fn measure(rig: &Rig, args: &DagsArgs) -> Result<Value> {
    let n = args.common.n;
    let board = Board::follow(rig);
    let folder = folder(rig, args)?;
    let subject = start(rig, args).await?;
    say("one after the other");
    ask(&folder, CHAIN, N_UNLOADED, Order::OneByOne)?;
    board.until_gone(CHAIN, N_UNLOADED).await?;
    let unloaded = board.latency(CHAIN, N_UNLOADED);
    say(&format!("{n} tasks"));
    let before = Spent::of(&subject).await?;
    ask(&folder, MANY, n, Order::AllAtOnce)?;
    let took = board.until_gone(MANY, n).await?;
    let after = Spent::of(&subject).await?;
    let peak = subject.peak_mib()?;
    let pod = board.pod_of(MANY, &task(0)).context("no pod was seen")?;
    let n_pods = board.n_pods(MANY);
    subject.stop().await?;
    say("the floor");
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
    let database = rig.folder.path().join("floor.db");
    let floor = Floor::new(pods, board.clone(), bare(&pod)?, &database).await?;
    floor.one_by_one(N_UNLOADED).await?;
    let floor_unloaded = board.latency(FLOOR_CHAIN, N_UNLOADED);
    let floor_took = floor.all_at_once(n).await?;
    let (rate, floor_rate) = (per_second(n, took), per_second(n, floor_took));
    Ok(json!({
        "subsystem": "dags",
        "server": rig.server,
        "n": n,
        "per_second": rate,
        "floor_per_second": floor_rate,
        "ratio": round(rate / floor_rate),
        "pods_per_task": round(n_pods as f64 / n as f64),
        "latency_ms": {
            "unloaded": unloaded.milliseconds(),
            "floor_unloaded": floor_unloaded.milliseconds(),
        },
        "requests_per_task": after.requests_each(&before, n),
        "cpu_ms_per_task": after.cpu_ms_each(&before, n),
        "peak_rss_mib": peak.map(round),
    }))
}

/// The scheduler, with no limit that is not under test.
async fn start(rig: &Rig, args: &DagsArgs) -> Result<Subject> {
    if !args.common.external {
        let store = Store::open(subject::data_dir(rig).join("longshore.db")).await?;
        store.set_pool(&Pool::new(DEFAULT_POOL, -1)).await?;
        store.close().await;
    }
    let parallelism = args.common.n.max(N_UNLOADED).to_string();
    let more = ["--parallelism", parallelism.as_str()];
    Subject::of(&args.common, "dags", rig, &more).await
}

/// The folder of DAG files.
fn folder(rig: &Rig, args: &DagsArgs) -> Result<PathBuf> {
    if args.common.external {
        let named = args.dags_folder.clone();
        return named
            .context("--external needs --dags-folder: where that controller finds its DAG files");
    }
    let folder = subject::data_dir(rig).join("dags");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// How the tasks of a DAG follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    OneByOne,
    AllAtOnce,
}

fn task(i: usize) -> String {
    format!("t{i:05}")
}

/// Puts a DAG into the folder; its schedule is due at once.
fn ask(folder: &std::path::Path, dag_id: &str, n: usize, order: Order) -> Result<()> {
    let path = folder.join(format!("{dag_id}.yaml"));
    let text = document(dag_id, n, order)?;
    Ok(longshore_files::replace_unsynced(
        &path,
        0o644,
        text.as_bytes(),
    )?)
}

fn document(dag_id: &str, n: usize, order: Order) -> Result<String> {
    let mut text = format!(
        "dag_id: {dag_id}\nschedule: '@once'\nstart_date: 2026-01-01T00:00:00Z\nis_paused_upon_creation: false\n\
         max_active_tasks: {n}\ntasks:\n"
    );
    for i in 0..n {
        let after = match (order, i.checked_sub(1)) {
            (Order::OneByOne, Some(before)) => format!(", depends_on: [{}]", task(before)),
            (Order::OneByOne, None) | (Order::AllAtOnce, _) => String::new(),
        };
        writeln!(
            text,
            "  {}: {{command: [run, 0s, exit, '0']{after}}}",
            task(i)
        )?;
    }
    Ok(text)
}

/// A span between two things that were seen.
fn span(from: Option<Instant>, to: Option<Instant>) -> Option<Duration> {
    Some(to?.duration_since(from?))
}

/// The times between the end of each pod and the pod of the next task.
fn between(ended: &[Option<Instant>], made: &[Option<Instant>]) -> Times {
    let mut times = Times::default();
    for (ended, made) in ended.iter().zip(made.iter().skip(1)) {
        if let Some(time) = span(*ended, *made) {
            times.push(time);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_a_document_whose_tasks_wait_for_each_other() {
        let text = document("d", 2, Order::OneByOne).unwrap();
        assert!(text.ends_with(
            "tasks:\n  t00000: {command: [run, 0s, exit, '0']}\n  \
             t00001: {command: [run, 0s, exit, '0'], depends_on: [t00000]}\n"
        ));
    }
}
