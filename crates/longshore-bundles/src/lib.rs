//! DAG bundles: the files of a local folder, or of a commit in a git repository.
//!
//! A bundle is a named tree of files (Airflow's word; section 10 of the specification of `dags`). This crate knows
//! which files a bundle has, which of them changed, which of them are parsed again, which version is on disk, and what
//! keeps a version there. It does not know what a DAG is, and it never runs anything of a bundle.
//!
//! Read [`Snapshot`] and [`Diff`] first: they are the result of every observation, and pure. [`LocalFolder`] observes a
//! folder. [`git::GitBundle`] keeps a bare clone and one work tree for each commit that is in use. [`Units`] says which
//! files are parsed after a change, and [`ParseQueue`] in which order.

pub mod config;
pub mod git;
pub mod ignore;
pub mod local;
pub mod queue;
pub mod scan;
pub mod snapshot;
pub mod units;
pub mod version;

pub use config::{BundleConfig, BundleName};
pub use ignore::IgnoreSyntax;
pub use local::LocalFolder;
pub use queue::{Learned, ParseQueue, QueueSettings};
pub use scan::{Limits, ScanError, Scanner};
pub use snapshot::{Diff, File, FileKind, Problem, Snapshot};
pub use units::{Affected, Discovery, Reads, Units};
pub use version::{CommitId, Version};
