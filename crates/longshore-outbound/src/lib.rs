//! Every HTTP request to an address that a tenant or an operator has written down.
//!
//! There are two classes of such addresses, and the code that makes a client chooses the class:
//!
//! * **tenant-named**: the URL is in an object that users of a namespace write, as the webhook of a PodTransitionRule.
//!   [`TenantClient`] connects to no address of this machine, of its network segment, of a cloud's metadata service or
//!   of an API server ([`Boundaries`]). Each socket address is checked when it is connected to, after DNS, so that a
//!   name which changes between two look-ups gains nothing. Redirects are not followed, and the size of a
//!   response and the time of a request have limits.
//! * **operator-named**: the URL is in the configuration of the process, as a catalog, a connector or an object store.
//!   It may be private or loopback, and [`OperatorClient`] connects to it.
//!
//! A client sends while its [`Permit`] holds, which is asked for before each write to a socket: what waits inside of a
//! connection does not leave a process that has lost its lease.
//!
//! No client uses a proxy of the environment. `cargo xtask tidy` refuses clients that are made elsewhere.

mod boundaries;
mod connector;
mod gated;
mod network;
mod operator;
mod own;
mod request;
mod room;
mod tenant;
mod tls;

#[doc(no_inline)]
pub use hyper::body::Incoming;

pub use boundaries::{Boundaries, NotAllowed};
pub use gated::{GatedConnector, GatedStream, NotPermitted, Permit};
pub use network::{BadNetwork, Network};
pub use operator::{CONNECT_TIMEOUT, KeepAlive, OperatorClient, RequestError};
pub use request::{BadUrl, is_service_url, request, shown};
pub use room::{BodyError, BodyRoom, Reserved, WholeBody};
pub use tenant::{Answer, Limits, OutboundError, TenantClient};
pub use tls::{BadTrust, Trust};
