//! The laws of all controllers with two faults: the second one strikes while the controller recovers from the first one.
//! The scenarios live with their crates, and every test run has a fixed share of the pairs.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Options;
use crate::repository;

const SEEDS: u64 = 2_000;
/// The modules of the integration tests that have scenarios.
const MODULES: [&str; 2] = ["laws::", "plugins::"];

/// Runs each scenario with all seeds, and fails where a law is broken.
pub(super) fn run(options: &Options) -> Result<Value> {
    let seeds = options.seed..options.seed + options.seeds.unwrap_or(SEEDS);
    let seeds = format!("{}..{}", seeds.start, seeds.end);
    // The whole workspace is named, as everywhere: a crate alone has other features, and would be built again.
    let output = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--test", "it", "--no-fail-fast"])
        .arg("--")
        .args(MODULES)
        .arg("--nocapture")
        .env("LONGSHORE_TEST_LAWS", &seeds)
        .current_dir(repository::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo test cannot be run")?;
    let stdout = String::from_utf8(output.stdout)?;
    let scenarios: Vec<Value> = stdout.lines().filter_map(result).collect();
    ensure!(!scenarios.is_empty(), "no scenario was run:\n{stdout}");
    let broken: Vec<String> = scenarios.iter().filter_map(broken).collect();
    if !broken.is_empty() {
        bail!(
            "seeds {seeds}: laws are broken in {} of {} scenarios; `--seed N --seeds 1` repeats a seed\n{}",
            broken.len(),
            scenarios.len(),
            broken.join("\n")
        );
    }
    if !output.status.success() {
        bail!("a test failed:\n{stdout}");
    }
    Ok(summary(&seeds, &scenarios))
}

/// The result of a scenario, which stands in a line behind the name of its test, or alone.
fn result(line: &str) -> Option<Value> {
    let (_, rest) = line.split_once("laws {")?;
    serde_json::from_str(&format!("{{{rest}")).ok()
}

/// The first violations of a scenario, for people.
fn broken(scenario: &Value) -> Option<String> {
    let n_broken = scenario["broken"].as_u64().filter(|n| *n > 0)?;
    let violations = scenario["violations"].as_array();
    let violations: Vec<&str> = violations
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let name = scenario["scenario"].as_str().unwrap_or_default();
    Some(format!(
        "{name}: {n_broken} times\n{}",
        violations.join("\n")
    ))
}

fn summary(seeds: &str, scenarios: &[Value]) -> Value {
    // A story whose actions are checked one by one reports each of them by the name of the story.
    let mut worlds = BTreeMap::<&str, u64>::new();
    for scenario in scenarios {
        if let (Some(name), Some(n)) = (scenario["scenario"].as_str(), scenario["worlds"].as_u64())
        {
            *worlds.entry(name).or_default() += n;
        }
    }
    let all: u64 = worlds.values().sum();
    let by_scenario = worlds
        .into_iter()
        .map(|(name, n)| (name.to_owned(), json!(n)));
    json!({
        "seeds": seeds,
        "scenarios": scenarios.len(),
        "worlds": all,
        "worldsByScenario": by_scenario.collect::<serde_json::Map<_, _>>(),
        "broken": 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scenarios_tell_is_found_between_the_lines_of_the_test_runner() {
        let stdout = "running 2 tests\n\
            test laws::a ... \n\
            laws {\"scenario\":\"a\",\"worlds\":7,\"broken\":0,\"violations\":[]}\n\
            ok\n\
            laws {\"scenario\":\"b\",\"worlds\":5,\"broken\":1,\"violations\":[\"seed 3\"]}\n\
            laws {\"scenario\":\"a\",\"worlds\":4,\"broken\":0,\"violations\":[]}\n\
            test result: ok. 2 passed";
        let scenarios: Vec<Value> = stdout.lines().filter_map(result).collect();
        let broken: Vec<String> = scenarios.iter().filter_map(broken).collect();
        assert_eq!(broken, ["b: 1 times\nseed 3"]);
        let summary = summary("1..3", &scenarios);
        assert_eq!(summary["worlds"], 16);
        assert_eq!(summary["worldsByScenario"]["a"], 11);
    }
}
