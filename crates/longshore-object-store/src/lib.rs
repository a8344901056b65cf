//! Files in object stores and below directories of this machine, by URL: [`Storage`].
//!
//! A store is asked with limits on time, redirects and size, and never by a round of a controller itself: its answer is
//! that of a question (`longshore-kit`). What is in a file is for the subsystem that asked.

mod beneath;
mod buckets;
mod config;
mod environment;
mod error;
mod location;
mod storage;
mod store_client;

pub use config::{StorageConfig, StorageConfigError, without_value};
pub use error::DataError;
pub use storage::{File, Storage};

#[cfg(test)]
mod tests;
