//! A Kubernetes API server in a library: an in-memory cluster behind an ordinary kube client.
//!
//! [`Cluster`] owns the objects. [`Cluster::client`] is a `kube::Client` that cannot tell it from a real API server:
//! no socket, no fake client. [`controllers::run`] adds garbage collection, namespace deletion and binding.
//! For laptops, demos and tests, never for production.

mod cluster;
pub mod controllers;
mod server;

pub use cluster::{Cluster, ClusterBuilder};
pub use server::{ApiBody, ApiService, Clock, LogError, LogOptions, LogStream, PodLogs};
