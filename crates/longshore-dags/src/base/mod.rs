//! What all controllers stand on: the state that they share, the keys that are to have a round, the position of the
//! watches, and the changes that are published.
//!
//! Nothing in here knows a controller, and no controller knows [`service`](crate::service), which starts them all.

pub(crate) mod change;
pub(crate) mod documents;
pub(crate) mod position;
pub(crate) mod shared;
pub(crate) mod triggers;
