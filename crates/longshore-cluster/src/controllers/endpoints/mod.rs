//! Endpoints: the older form of EndpointSlices, which clients from before them still read.
//!
//! One object for each Service with a selector, of its name. The round of the slices runs this one too. Nobody owns
//! the object: it goes with its Service, when this controller has made it.

mod decide;
#[cfg(test)]
mod tests;

use decide::decide;
use k8s_openapi::api::core::v1::Pod;

use super::{
    endpoint_slices::model::Desired,
    workloads::{
        Key, RoundError,
        hands::{Hands, Request, Speaker, Target, reference},
    },
};

/// Brings the Endpoints of a Service up to date.
pub(super) async fn bring_about(
    hands: &Hands,
    desired: &Desired,
    pods: &[Pod],
) -> Result<(), RoundError> {
    let service = &desired.service;
    let namespace = service.meta.namespace.as_deref().unwrap_or_default();
    let present = hands
        .read(Target::Endpoints, namespace, service.name())
        .await?;
    if let Some(request) = decide(desired, pods, present.as_ref()) {
        let about = reference(Target::Service, service);
        hands.send(Speaker::Endpoints, &about, &request).await?;
    }
    Ok(())
}

/// Deletes the Endpoints of a Service that is gone.
pub(super) async fn clean_up(hands: &Hands, key: &Key) -> Result<(), RoundError> {
    let present = hands
        .read(Target::Endpoints, &key.namespace, &key.name)
        .await?;
    let Some(present) = present.filter(decide::is_ours) else {
        return Ok(());
    };
    let about = reference(Target::Endpoints, &present);
    let request = Request::Delete {
        target: Target::Endpoints,
        name: present.name().to_owned(),
        uid: present.uid().to_owned(),
    };
    hands.send(Speaker::Endpoints, &about, &request).await?;
    Ok(())
}
