//! The generated messages.
#![allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    rustdoc::all,
    reason = "generated code"
)]

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
