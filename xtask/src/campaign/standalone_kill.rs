//! The promise of `longshore standalone`: killed again and again in the middle of a run, each task still runs exactly
//! once, by what the tasks themselves wrote.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{
    Options,
    dice::Dice,
    postgres::{PASSWORD, Server},
    service::Service,
};

const TASKS: usize = 200;
const KILLS: u64 = 20;
/// How often Postgres is killed, where runs are kept there.
const POSTGRES_KILLS: u64 = 5;
/// Chains of tasks beside each other.
const LANES: usize = 25;
/// Pods at the same time: few enough that the run lasts for as long as it is killed.
const PARALLELISM: usize = 12;
/// Lines that each task logs over its life.
const LOG_LINES: usize = 10;
/// How long a service lives until it is killed, in milliseconds: one time counted from its start, when it may not even
/// be ready, the other time from when it is.
const LIFE_MS: (u64, u64) = (100, 2_500);
/// How long the run may take to end after the last kill.
const PATIENCE: Duration = Duration::from_secs(300);

const RUN: &str = "kill/r1";

/// Runs it, and fails where the promise does not hold.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let mut postgres = options.postgres.then(postgres).transpose()?;
    let folder = tempfile::tempdir()?;
    let dags = folder.path().join("dags");
    fs::create_dir(&dags)?;
    let mut dice = Dice::new(options.seed);
    fs::write(dags.join("kill.yaml"), dag(&mut dice))?;
    let data = folder.path().join("data");
    let mut arguments = vec![
        "--dags-folder".to_owned(),
        dags.display().to_string(),
        "--parallelism".to_owned(),
        PARALLELISM.to_string(),
    ];
    if let Some(postgres) = &postgres {
        arguments.extend(["--database-url".to_owned(), url(postgres)]);
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    let started_at = Instant::now();
    let mut service = Service::standalone(&longshore, &data, &arguments)?;
    service.wait_until_ready()?;
    service.ask(&["dags", "trigger", "kill", "--run-id", "r1"])?;
    let mut kills = Vec::new();
    for n in 1..=KILLS {
        kills.push(kill(n, &mut service, postgres.as_mut(), &mut dice)?);
        service = Service::standalone(&longshore, &data, &arguments)?;
    }
    let ready_ms = service.wait_until_ready()?;
    let mut violations = Vec::new();
    let timeout = format!("{}s", PATIENCE.as_secs());
    if let Err(error) = service.ask(&["runs", "watch", RUN, "--timeout", &timeout]) {
        violations.push(format!("the run did not end well: {error:#}"));
    }
    let took = started_at.elapsed();
    let n_pods = service.pods_left(PATIENCE)?;
    violations.extend((n_pods > 0).then(|| format!("{n_pods} pods are left")));
    violations.extend(tries(&service)?);
    violations.extend(files(&data)?);
    violations.extend(logs(&data)?);
    violations.extend(service.processes_left("while it serves"));
    let rss_kib = service.rss_kib();
    let pid = service.stop()?;
    violations.extend(super::service::processes_of(&data, pid, "after it stopped"));
    if !violations.is_empty() {
        let kept = folder.keep();
        bail!(
            "the promise does not hold; everything is kept in {}\n{}",
            kept.display(),
            violations.join("\n")
        );
    }
    Ok(json!({
        "database": if options.postgres { "postgres" } else { "sqlite" },
        "seed": options.seed,
        "build": if options.binary.is_some() { "given" } else { "release" },
        "tasks": TASKS,
        "kills": kills,
        "postgres_kills": if options.postgres { POSTGRES_KILLS } else { 0 },
        "seconds": took.as_secs_f64(),
        "last_start_ready_ms": ready_ms,
        "rss_kib_at_the_end": rss_kib,
        "each_task_ran": "exactly once",
    }))
}

fn postgres() -> Result<Server> {
    Server::start(true).context("there is no Postgres server on this machine")
}

fn url(postgres: &Server) -> String {
    postgres.tcp_url("admin", PASSWORD, "postgres")
}

/// Kills the service at a random moment, and in some rounds its database a moment before it.
/// Returns how far the run was.
fn kill(
    n: u64,
    service: &mut Service,
    postgres: Option<&mut Server>,
    dice: &mut Dice,
) -> Result<Value> {
    if n.is_multiple_of(2) {
        service.wait_until_ready()?;
    }
    thread::sleep(Duration::from_millis(dice.between(LIFE_MS.0, LIFE_MS.1)));
    if let Some(postgres) = postgres
        && n.is_multiple_of(KILLS / POSTGRES_KILLS)
    {
        postgres.kill();
        postgres.start_again();
        thread::sleep(Duration::from_millis(dice.between(0, LIFE_MS.0)));
    }
    let was_ready = service.is_ready()?;
    service.kill()?;
    let (n_started, n_ended) = counts(service.data())?;
    println!("kill {n}: ready {was_ready}, {n_started} tasks started, {n_ended} ended");
    Ok(json!({"ready": was_ready, "started": n_started, "ended": n_ended}))
}

/// Lanes of tasks after each other. Each writes when it starts and when it ends to a file of its own, and logs.
fn dag(dice: &mut Dice) -> String {
    let mut dag = format!("dag_id: kill\nworkspace: true\nmax_active_tasks: {TASKS}\ntasks:\n");
    for n in 0..TASKS {
        let pause_ms = dice.between(1_000, 3_000) / LOG_LINES as u64;
        let script = format!(
            "f=\"$LONGSHORE_WORKSPACE/$LONGSHORE_TASK_ID\"; echo \"start $LONGSHORE_TRY_NUMBER\" >> \"$f\"; \
             n=0; while [ $n -lt {LOG_LINES} ]; do echo \"line $n\"; sleep 0.{pause_ms:03}; n=$((n + 1)); done; \
             echo \"end $LONGSHORE_TRY_NUMBER\" >> \"$f\""
        );
        let _ = write!(
            dag,
            "  {}:\n    retries: 3\n    retry_delay: 1s\n    command: [sh, -c, '{script}']\n",
            task(n)
        );
        if n >= LANES {
            let _ = writeln!(dag, "    depends_on: [{}]", task(n - LANES));
        }
    }
    dag
}

fn task(n: usize) -> String {
    format!("task_{n:03}")
}

/// What a task must have written.
const WRITTEN: &str = "start 1\nend 1\n";

fn log() -> String {
    (0..LOG_LINES).fold(String::new(), |mut log, n| {
        let _ = writeln!(log, "line {n}");
        log
    })
}

/// The workspace of the run.
fn workspace(data: &Path) -> Result<Option<PathBuf>> {
    let volumes = data.join("node/volumes/longshore");
    if !volumes.is_dir() {
        return Ok(None);
    }
    let mut found = fs::read_dir(volumes)?;
    Ok(found.next().transpose()?.map(|entry| entry.path()))
}

/// What the tasks wrote so far, by their ids.
fn written(data: &Path) -> Result<BTreeMap<String, String>> {
    let mut written = BTreeMap::new();
    let Some(workspace) = workspace(data)? else {
        return Ok(written);
    };
    for entry in fs::read_dir(workspace)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        written.insert(name, fs::read_to_string(entry.path())?);
    }
    Ok(written)
}

/// How many tasks have started and ended.
fn counts(data: &Path) -> Result<(usize, usize)> {
    let written = written(data)?;
    let n_ended = written.values().filter(|text| text.contains("end"));
    Ok((written.len(), n_ended.count()))
}

/// Each task ran once, from its start to its end, in its first try.
fn files(data: &Path) -> Result<Vec<String>> {
    let written = written(data)?;
    let wrong = (0..TASKS).map(task).filter_map(|task| {
        let text = written.get(&task).map_or("", String::as_str);
        (text != WRITTEN).then(|| format!("{task} wrote {text:?}"))
    });
    Ok(wrong.collect())
}

/// Each log has all its lines once, and there is one log of each task.
fn logs(data: &Path) -> Result<Vec<String>> {
    let logs = data.join("logs/dag_id=kill/run_id=r1");
    let mut wrong = Vec::new();
    for task in (0..TASKS).map(task) {
        let folder = logs.join(format!("task_id={task}"));
        let text = fs::read_to_string(folder.join("attempt=1.log")).unwrap_or_default();
        if text != log() {
            wrong.push(format!("the log of {task} is {text:?}"));
        }
        let n_files = fs::read_dir(&folder).map_or(0, Iterator::count);
        if n_files != 1 {
            wrong.push(format!("{task} has {n_files} log files"));
        }
    }
    Ok(wrong)
}

/// Every task is in its first try, and none has an earlier one.
fn tries(service: &Service) -> Result<Vec<String>> {
    let answer = service.ask(&["tasks", "list", RUN, "-o", "json"])?;
    let list: Value = serde_json::from_str(&answer).context("tasks list -o json")?;
    let items = list["items"].as_array().context("no items")?;
    let mut wrong: Vec<String> = items
        .iter()
        .filter(|task| task["tryNumber"] != 1 || task["state"] != "success")
        .map(|task| {
            format!(
                "{} is {} in try {}",
                task["taskId"], task["state"], task["tryNumber"]
            )
        })
        .collect();
    if items.len() != TASKS {
        wrong.push(format!("{} tasks are listed", items.len()));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dag_has_all_tasks_in_lanes_and_repeats_with_its_seed() {
        let text = dag(&mut Dice::new(1));
        assert_eq!(text.matches("    command: ").count(), TASKS);
        assert_eq!(text.matches("depends_on: ").count(), TASKS - LANES);
        assert!(text.contains("  task_199:\n"));
        assert_eq!(text, dag(&mut Dice::new(1)));
    }
}
