//! The HTTP face of Longshore: the JSON API, its streams, and the client that speaks it.
//!
//! Read [`control`] first: it has all requests that the service can serve, as a trait. [`router`] puts it behind HTTP
//! (`/api/v1`), [`serve`] behind a socket, [`feed`] lets any number of readers follow state changes, and [`client`] is
//! what the commands use. [`objects`] are the JSON objects that both sides agree upon, [`problem`] the errors.
//!
//! The crate knows nothing of schedulers, databases and clusters: the binary provides the [`Control`].

pub mod client;
mod connections;
pub mod control;
pub mod feed;
pub mod names;
pub mod objects;
pub mod problem;
pub mod router;
pub mod serve;
pub mod token;

pub use control::{Checks, Control, ControlError};
pub use feed::Feed;
pub use names::{RunName, TaskName};
pub use problem::Problem;
pub use router::{Access, Hosts, Scrape, beside, operations, router};
pub use token::Token;
