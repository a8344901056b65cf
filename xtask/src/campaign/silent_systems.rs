//! Foreign systems that never answer: how long others take beside each of them, and how long the program takes to end. The
//! tests themselves live with the binary, and measure fewer pods on every test run.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};

/// Objects that ask the silent system.
const AFFECTED: u64 = 100;
/// Objects that do not, alone and beside the silent system.
const UNAFFECTED: u64 = 50;
/// How much longer a pod may take beside a silent system, at the 99th percentile.
const TIMES: f64 = 2.0;
/// How long the program may take to end.
const STOPS_WITHIN_S: f64 = 3.0;

/// One test for each foreign system.
const TESTS: [&str; 6] = [
    "controller::silent::a_silent_store_delays_no_action_of_another_store",
    "controller::silent::a_silent_catalog_delays_no_action_without_a_cache",
    "controller::silent::a_silent_connector_delays_no_action_with_a_pod",
    "controller::silent::a_silent_events_service_delays_no_pod",
    "controller::silent::a_silent_store_of_a_standalone_delays_no_action_of_another_store",
    "controller::podops::silent::a_silent_webhook_of_a_rule_delays_no_pod_of_another_rule",
];

/// Runs the tests and takes over their results.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let binary = longshore
        .to_str()
        .context("the path of the program is no UTF-8")?;
    let mut systems = Vec::new();
    for name in TESTS {
        let test = KillTest {
            name,
            settings: vec![
                (
                    "LONGSHORE_TEST_AFFECTED",
                    options.actions.unwrap_or(AFFECTED).to_string(),
                ),
                ("LONGSHORE_TEST_UNAFFECTED", UNAFFECTED.to_string()),
                ("LONGSHORE_TEST_BINARY", binary.to_owned()),
            ],
            server: Server::Embedded,
        };
        let mut system = test.run()?;
        let factor = check(&system)?;
        system["p99_beside_to_alone"] = json!((factor * 100.0).round() / 100.0);
        systems.push(system);
    }
    Ok(json!({
        "systems": systems,
        "server": "embedded",
        "build": if options.binary.is_some() { "given" } else { "release" },
    }))
}

/// How many times as long a pod takes beside the silent system.
///
/// # Errors
/// It takes too long, or the program takes too long to end.
fn check(system: &Value) -> Result<f64> {
    let number = |pointer: &str| {
        let number = system.pointer(pointer).and_then(Value::as_f64);
        number.with_context(|| format!("the result has no {pointer}: {system}"))
    };
    let name = system["system"].as_str().context("no name")?;
    let factor = number("/beside/p99_ms")? / number("/alone/p99_ms")?;
    ensure!(
        factor <= TIMES,
        "beside a silent {name}, pods take {factor:.2} times as long as alone, not {TIMES} times: {system}"
    );
    let stops = number("/stops_in_s")?;
    ensure!(
        stops <= STOPS_WITHIN_S,
        "beside a silent {name}, the program ends after {stops:.1} s, not within {STOPS_WITHIN_S} s: {system}"
    );
    Ok(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(beside: f64, stops: f64) -> Value {
        json!({
            "system": "store", "alone": {"p99_ms": 10.0}, "beside": {"p99_ms": beside},
            "stops_in_s": stops,
        })
    }

    #[test]
    fn a_pod_that_takes_too_long_or_a_program_that_does_not_end_fails_the_campaign() {
        assert!((check(&result(20.0, 3.0)).unwrap() - 2.0).abs() < 1e-9);
        assert!(check(&result(20.1, 3.0)).is_err());
        assert!(check(&result(20.0, 3.1)).is_err());
        assert!(check(&json!({"system": "store"})).is_err());
    }
}
