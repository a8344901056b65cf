//! Nodes that are drained: what `cargo xtask campaign drain` runs with other numbers.

use crate::controller::podops::drain;

#[tokio::test(flavor = "multi_thread")]
async fn no_budget_is_broken_where_nodes_are_drained_and_the_controller_is_killed() {
    drain::play().await;
}
