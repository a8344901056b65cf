//! EndpointSlices: which pods stand behind a service, at which addresses and ports, and whether they
//! serve.
//!
//! This controller makes no slices for a service without selector, nor for one of type
//! `ExternalName`: users or other controllers make those. The garbage collector deletes the slices
//! of a deleted service by their owner reference.

mod decide;
pub(super) mod model;
#[cfg(test)]
mod tests;

use decide::decide;
use model::Desired;

use super::{
    endpoints,
    workloads::{
        Again, Key, LABEL_SERVICE_NAME, RoundError,
        hands::{Hands, Speaker, Target, reference},
    },
};

/// Runs one round for the slices of a Service, and for its Endpoints: reads, decides, and sends the requests.
pub(super) async fn round(hands: &Hands, key: &Key) -> Result<Again, RoundError> {
    let namespace = key.namespace.as_str();
    let Some(service) = hands.read(Target::Service, namespace, &key.name).await? else {
        endpoints::clean_up(hands, key).await?;
        return Ok(None);
    };
    let Some(desired) = Desired::of(service) else {
        return Ok(None);
    };
    let pods = hands.pods(namespace, &desired.selector, &[]).await?;
    let labels = format!(
        "{LABEL_SERVICE_NAME}={},{}={}",
        key.name,
        model::LABEL_MANAGED_BY,
        model::MANAGER
    );
    let slices = hands.list(Target::Slice, namespace, &labels).await?;
    let about = reference(Target::Service, &desired.service);
    let requests = decide(&desired, &pods, &slices);
    hands
        .send_all(Speaker::EndpointSlices, &about, &requests)
        .await?;
    endpoints::bring_about(hands, &desired, &pods).await?;
    Ok(None)
}
