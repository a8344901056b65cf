//! The kill tests of the cluster, long enough to be believed: one of its writes, and one of what pods and clients have.
//! The tests themselves live with the cluster and with the binary, and kill a few times on every test run.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Options,
    kill_test::{KillTest, Server},
};
use crate::kube_build::{self, Program};

/// Processes that are killed in each test, one after the other, on one directory.
const KILLS: u64 = 100;

/// Runs the tests and takes over their results.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let binary = longshore
        .to_str()
        .context("the path of the program is no UTF-8")?;
    let kubectl = kube_build::programs(&[Program::Kubectl])?.path(Program::Kubectl);
    let kubectl = kubectl.canonicalize()?;
    let kubectl = kubectl
        .to_str()
        .context("the path of kubectl is no UTF-8")?;
    let kills = options.kills.unwrap_or(KILLS);
    let writes = KillTest {
        name: "kill::no_acknowledged_write_is_lost_by_kill_9",
        settings: vec![("LONGSHORE_TEST_KILLS", kills.to_string())],
        server: Server::Embedded,
    };
    let mut result = writes.run()?;
    let standalone = KillTest {
        name: "cluster_kill::what_pods_and_clients_have_survives_kills_of_the_cluster",
        settings: vec![
            ("LONGSHORE_TEST_KILLS", kills.to_string()),
            ("LONGSHORE_TEST_SEED", options.seed.to_string()),
            ("LONGSHORE_TEST_BINARY", binary.to_owned()),
            ("LONGSHORE_TEST_KUBECTL", kubectl.to_owned()),
        ],
        server: Server::Embedded,
    };
    let standalone = standalone.run()?;
    ensure!(
        standalone["exec_streams_ended"] == kills,
        "not every life of the cluster had a stream: {standalone}"
    );
    result["standalone"] = standalone;
    result["standalone"]["build"] = json!(if options.binary.is_some() {
        "given"
    } else {
        "release"
    });
    Ok(result)
}
