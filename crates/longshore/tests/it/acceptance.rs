//! The acceptance list of podops. Tests start in the order of their names, and this one waits for longest: it is the first.

use crate::controller::podops;

#[tokio::test(flavor = "multi_thread")]
async fn the_acceptance_list_holds_and_the_declared_rights_suffice_and_are_all_used() {
    podops::play().await;
}
