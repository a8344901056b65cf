//! Figures that are kept: a dated file for each server and subsystem, which says on which machine they were measured.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::{Value, json};

use crate::figures::round;

/// The fields that distinguish the measurements of a subsystem.
const IDENTITY: [&str; 6] = [
    "n",
    "kind",
    "with_services",
    "external",
    "create_per_second",
    "creators",
];

/// Adds figures to the file of today in this folder. Those of an earlier measurement of the same are replaced.
pub(crate) fn add(folder: &Path, figures: &Value) -> Result<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a result is dated by the day on which it was made"
    )]
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    add_on(today, machine()?, folder, figures)
}

fn add_on(date: Date, machine: Value, folder: &Path, figures: &Value) -> Result<PathBuf> {
    let text = |field: &str| figures[field].as_str().context("figures have a name");
    let path = folder.join(format!(
        "{date}-{}-{}.json",
        text("server")?,
        text("subsystem")?
    ));
    let mut all = if path.is_file() {
        let kept = fs::read_to_string(&path)?;
        let kept: Value = serde_json::from_str(&kept)
            .with_context(|| format!("expected figures in {}", path.display()))?;
        kept["figures"].as_array().cloned().unwrap_or_default()
    } else {
        Vec::new()
    };
    all.retain(|kept| IDENTITY.iter().any(|field| kept[*field] != figures[*field]));
    all.push(figures.clone());
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let record = json!({"date": date, "build": build, "machine": machine, "figures": all});
    fs::create_dir_all(folder)?;
    fs::write(&path, format!("{record:#}\n"))?;
    Ok(path)
}

/// This one, as far as it matters.
fn machine() -> Result<Value> {
    let about = |file: &str, field: &str| -> Result<Option<String>> {
        let text = fs::read_to_string(file)?;
        let line = text.lines().find(|line| line.starts_with(field));
        let value = line.and_then(|line| line.split_once(':'));
        Ok(value.map(|(_, value)| value.trim().to_owned()))
    };
    let memory = about("/proc/meminfo", "MemTotal")?.unwrap_or_default();
    let kib = memory.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    Ok(json!({
        "cpu": about("/proc/cpuinfo", "model name")?,
        "cores": std::thread::available_parallelism()?,
        "memory_gib": kib.map(|kib| round(kib / 1024.0 / 1024.0)),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_last_figures_of_each_measurement_of_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let date = Date::constant(2026, 11, 22);
        let figures = |n: usize, creators: Option<usize>, value: usize| json!({"subsystem": "tasks", "server": "embedded", "n": n, "creators": creators, "value": value});
        let mut path = PathBuf::new();
        for (n, creators, value) in [
            (10, None, 1),
            (100, None, 2),
            (10, Some(1), 3),
            (10, None, 4),
        ] {
            let figures = figures(n, creators, value);
            path = add_on(date, json!({}), folder.path(), &figures).unwrap();
        }
        assert_eq!(path.file_name().unwrap(), "2026-11-22-embedded-tasks.json");
        let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(
            kept["figures"],
            json!([
                figures(100, None, 2),
                figures(10, Some(1), 3),
                figures(10, None, 4)
            ])
        );
        assert_eq!(kept["date"], "2026-11-22");
    }
}
