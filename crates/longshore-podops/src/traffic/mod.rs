//! Cooperation for plain Services: a pod that one of them selects is not touched while its EndpointSlices route traffic
//! to it, and a while longer.
//!
//! Traffic is not switched on by us: a pod is in the slices as soon as it is Ready. So the finalizer that protects it
//! comes before, while the gate is open and the pod is not Ready yet, and no gate is closed without it (decisions about
//! traffic come before those about the lifecycle, in the same round). It goes when the gate was closed, no slice has
//! the pod as ready any more, and the time has passed in which the readers of slices learn that and end what is under
//! way.

mod decide;
mod model;
mod routes;
#[cfg(test)]
mod tests;

pub use decide::decide;
pub use model::{DrainDelay, ENDPOINT_SLICE, Service, Slice, Traffic};
pub(crate) use routes::{Concerned, Routes};
