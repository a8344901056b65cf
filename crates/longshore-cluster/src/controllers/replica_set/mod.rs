//! ReplicaSets and ReplicationControllers: keeps a number of pods of one template.
//!
//! Reads the set and its pods, decides which to claim, how many to make and which to delete
//! ([`decide`]), does it, and writes the status. A pod that is over or on its way out is no replica,
//! however long a finalizer or a webhook keeps it: its replacement is made at once.

mod apply;
mod decide;
mod model;
mod ranking;
mod status;
#[cfg(test)]
mod tests;

use decide::decide;
use jiff::Timestamp;
pub(crate) use model::Keeper;
use model::{Desired, Observed};
pub(crate) use ranking::in_order_of_deletion;

use super::workloads::{
    Again, Key, RoundError,
    hands::{Hands, reference},
};

/// Runs one round for an object of a kind. `strays` are pods that the set controls without selecting them.
pub(super) async fn round(
    hands: &Hands,
    key: &Key,
    keeper: Keeper,
    strays: Vec<String>,
    now: Timestamp,
) -> Result<Again, RoundError> {
    let Some(set) = hands
        .read(keeper.target(), &key.namespace, &key.name)
        .await?
    else {
        return Ok(None);
    };
    let desired = Desired::of(keeper, set)?;
    let pods = hands
        .pods(&key.namespace, &desired.selector, &strays)
        .await?;
    let observed = Observed { pods, now };
    let plan = decide(&desired, &observed);
    let about = reference(keeper.target(), &desired.set);
    let outcome = apply::apply(hands, &about, &desired, &plan).await;
    if let Some(write) = status::write(&desired, &plan, outcome.as_ref().err(), now) {
        hands.send(keeper.speaker(), &about, &write).await?;
    }
    outcome.map_err(|failure| failure.error)?;
    Ok(plan.again)
}
