//! A Kubernetes API server in a library: an in-memory cluster behind an ordinary kube client.
//!
//! [`Cluster`] owns the objects. [`Cluster::client`] is a `kube::Client` that cannot tell it from a
//! real API server: no socket, no fake client. [`Cluster::open`] keeps the objects in a directory. [`controllers::run`] adds garbage collection,
//! namespace deletion, binding and the count of disruption budgets. For laptops, demos and tests, never for production.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), kube::Error> {
//! let cluster = longshore_cluster::Cluster::in_memory();
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("a".to_owned());
//! let created = maps.create(&PostParams::default(), &map).await?;
//! assert!(created.metadata.uid.is_some());
//! # Ok(())
//! # }
//! ```

mod chain;
mod cluster;
pub mod controllers;
mod server;

pub use cluster::{Cluster, ClusterBuilder};
pub use server::{
    ApiBody, ApiService, Authorization, Clock, Durability, InvalidRange, LogError, LogOptions,
    LogStream, OpenError, PodConnection, PodDuplex, PodIdentity, PodLogs, PodNetwork, PodStreams,
    Process, ServiceRange, StreamError, StreamSet, TerminalSize,
};
pub use server::{Limits, Listening, ServeConfig, ServeError, Serving};
