//! Admission webhooks: what API servers ask before they write an object, over TLS with certificates of our own.
//!
//! Read [`Admission`] first: it is what a webhook is. [`router`] and [`serve`] ask it, [`Certificates`] keeps the
//! certificate under which it is known, and tells API servers of it by a [`Registration`]. [`rotation`] says why a
//! certificate is replaced without a moment in which nobody trusts the webhook.

mod certificates;
mod issue;
mod kept;
mod measures;
mod registration;
mod review;
pub mod rotation;
mod server;

pub use certificates::{CertificateError, Certificates, Identity};
pub use measures::Measures;
pub use registration::Registration;
pub use review::{Denial, NoReview, Response, Review, Verdict};
pub use server::{Admission, router, serve};
