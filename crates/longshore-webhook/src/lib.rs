//! Admission webhooks: the requests that API servers send before they write an object, over TLS
//! with certificates of our own.
//!
//! Read [`Admission`] first: it is the interface of a webhook. [`router`] and [`serve`] call it.
//! [`Certificates`] keeps the certificate of the server, and publishes its authority to API servers
//! by a [`Registration`]. [`rotation`] says why a certificate is replaced without a moment in which
//! API servers do not trust the webhook. [`Callers`] admits only API servers, by a token in the
//! path, which [`tokens`] replaces, or by a client certificate of a [`ClientAuthority`].

mod callers;
mod certificates;
mod client_authority;
mod identity;
mod issue;
mod kept;
mod measures;
mod newcomers;
mod readiness;
mod registration;
mod review;
pub mod rotation;
mod served;
mod server;
mod token;
pub mod tokens;

pub use callers::Callers;
pub use certificates::{CertificateError, Certificates};
pub use client_authority::{ClientAuthority, NoClientAuthority};
pub use identity::Identity;
pub use measures::Measures;
pub use readiness::{Readiness, RoleReadiness, RoleWebhooks, Serving};
pub use registration::Registration;
pub use review::{Denial, NoReview, Response, Review, Verdict};
pub use server::{Admission, TIME_LIMIT, router, serve};
