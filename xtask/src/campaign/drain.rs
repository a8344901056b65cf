//! Nodes that are drained under workloads with budgets and rules of every kind, on a real API server. The test itself
//! lives with the binary, and drains faster on every test run.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};
use crate::kube_build::{self, Program};

const ROUNDS: u64 = 2;
/// So long a replacement takes to become Ready.
const READY_MS: u64 = 12_000;
/// The default of the program.
const DRAIN_DELAY_MS: u64 = 5_000;
/// Clients that drain a node at the same time, beside kubectl.
const CLIENTS: u64 = 3;
/// The longest life of a controller.
const LIFE_MS: u64 = 8_000;
const LIMIT_S: u64 = 1_200;
/// Fewer samples in a second say too little about what was between them.
const SAMPLES_PER_SECOND: f64 = 9.0;

/// Runs the test and takes over its result.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let text = "a path that is no UTF-8";
    let binary = longshore.to_str().context(text)?.to_owned();
    let kubectl = kube_build::programs(&[Program::Kubectl])?.path(Program::Kubectl);
    let kubectl = kubectl.to_str().context(text)?.to_owned();
    let number = |number: u64| number.to_string();
    let test = KillTest {
        name: "drain::no_budget_is_broken_where_nodes_are_drained_and_the_controller_is_killed",
        settings: vec![
            ("LONGSHORE_TEST_ROUNDS", number(ROUNDS)),
            ("LONGSHORE_TEST_READY_MS", number(READY_MS)),
            ("LONGSHORE_TEST_DRAIN_DELAY_MS", number(DRAIN_DELAY_MS)),
            ("LONGSHORE_TEST_CLIENTS", number(CLIENTS)),
            // The clients retry when the response says.
            ("LONGSHORE_TEST_RETRY_MS", number(0)),
            ("LONGSHORE_TEST_LIFE_MS", number(LIFE_MS)),
            ("LONGSHORE_TEST_LIMIT_S", number(LIMIT_S)),
            ("LONGSHORE_TEST_SEED", number(options.seed)),
            ("LONGSHORE_TEST_BINARY", binary),
            ("LONGSHORE_TEST_KUBECTL", kubectl),
        ],
        server: Server::RealWithControllers,
    };
    let mut result = test.run()?;
    let samples = &result["samples"];
    let rate =
        samples["count"].as_f64().unwrap_or(0.0) / samples["seconds"].as_f64().unwrap_or(1.0);
    ensure!(
        rate >= SAMPLES_PER_SECOND,
        "the machine was too busy for {rate:.1} samples in a second: {result}"
    );
    result["server"] = json!("kube-apiserver, kube-controller-manager, kube-scheduler");
    result["build"] = json!(if options.binary.is_some() {
        "given"
    } else {
        "release"
    });
    Ok(result)
}
