//! Two shapes of large DAGs, very wide and very deep, with tasks that do nothing: the campaign
//! measures the work of the scheduler.

use std::{fmt::Write, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Tasks at the same time in the wide DAG.
const WIDE: usize = 1_000;
/// Tasks after each other in the deep DAG.
const DEEP: usize = 100;

/// Runs both and checks that every task ran exactly once.
pub(super) fn run() -> Result<Value> {
    let longshore = super::release_binary()?;
    Ok(json!({
        "wide": measure(&longshore, "wide", &wide(WIDE), WIDE)?,
        "deep": measure(&longshore, "deep", &deep(DEEP), DEEP)?,
    }))
}

/// `n` tasks that wait for nothing. Each leaves a line in the workspace.
fn wide(n: usize) -> String {
    let mut dag = head("scale_wide", n);
    for i in 0..n {
        let _ = write!(dag, "  task_{i:04}:\n    command: {COMMAND}\n");
    }
    dag
}

/// `n` tasks, each of which waits for the one before it.
fn deep(n: usize) -> String {
    let mut dag = head("scale_deep", n);
    for i in 0..n {
        let _ = write!(dag, "  task_{i:04}:\n    command: {COMMAND}\n");
        if i > 0 {
            let _ = writeln!(dag, "    depends_on: [task_{:04}]", i - 1);
        }
    }
    dag
}

/// One short append is atomic, so that the lines of parallel tasks do not mix.
const COMMAND: &str =
    "[sh, -c, 'echo \"$LONGSHORE_TASK_ID $LONGSHORE_TRY_NUMBER\" >> \"$LONGSHORE_WORKSPACE/ran\"']";

fn head(dag_id: &str, max_active_tasks: usize) -> String {
    format!("dag_id: {dag_id}\nworkspace: true\nmax_active_tasks: {max_active_tasks}\ntasks:\n")
}

fn measure(longshore: &Path, name: &str, dag: &str, n_tasks: usize) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(format!("{name}.yaml"));
    fs::write(&file, dag)?;
    let output = Command::new(longshore)
        .arg("run")
        .arg(&file)
        .args(["-o", "json", "--parallelism", "64", "--data-dir"])
        .arg(folder.path().join("data"))
        .output()
        .context("longshore cannot be run")?;
    let stdout = String::from_utf8(output.stdout)?;
    let last = stdout.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last)
        .with_context(|| format!("no result: {}", String::from_utf8_lossy(&output.stderr)))?;
    if result["state"] != "success" {
        bail!("{name}: the run ended as {}", result["state"]);
    }
    let workspace = result["workspace"].as_str().context("no workspace")?;
    let ran = fs::read_to_string(Path::new(workspace).join("ran"))?;
    let mut lines: Vec<&str> = ran.lines().collect();
    let n_lines = lines.len();
    lines.sort_unstable();
    lines.dedup();
    if n_lines != n_tasks || lines.len() != n_tasks {
        bail!(
            "{name}: {n_lines} starts of {} tasks, expected one each of {n_tasks}",
            lines.len()
        );
    }
    let took = took(&result).context("the result has no times")?;
    Ok(json!({
        "tasks": n_tasks,
        "seconds": took.as_secs_f64(),
        "tasks_per_second": n_tasks as f64 / took.as_secs_f64(),
    }))
}

fn took(result: &Value) -> Option<Duration> {
    let at = |field: &str| result[field].as_str()?.parse::<jiff::Timestamp>().ok();
    Duration::try_from(at("endedAt")?.duration_since(at("queuedAt")?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dags_have_the_shapes_that_they_are_named_for() {
        let wide = wide(3);
        assert_eq!(wide.matches("    command: ").count(), 3);
        assert!(!wide.contains("depends_on"));
        let deep = deep(3);
        assert_eq!(deep.matches("    command: ").count(), 3);
        assert!(deep.contains("depends_on: [task_0000]") && deep.ends_with("[task_0001]\n"));
    }
}
