//! The wire: paths and options in, JSON and streams out.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod discovery;
pub(crate) mod present;
pub(crate) mod query;
pub(crate) mod render;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod socket;
