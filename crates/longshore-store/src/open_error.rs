//! Why a database cannot be opened.

use std::{io, sync::Arc};

use longshore_core::{Class, Classify};

/// Why a database cannot be opened. Nothing was changed in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL cannot be read. The error does not repeat the URL, which may hold a password.
    #[error("the database URL must be postgres://USER:PASSWORD@HOST:PORT/DATABASE, but {why}")]
    Url {
        /// What is wrong with the URL.
        why: &'static str,
    },
    /// Another process uses the database.
    #[error(
        "database {database} is in use by {holder}; stop that one first, or use another {instead}"
    )]
    InUse {
        /// The database.
        database: String,
        /// The process or the session that holds the lock, where that is known.
        holder: String,
        /// What could be used in its place.
        instead: &'static str,
    },
    /// Another process used the database while this one had no connection: what this process knows may be out of date.
    #[error(
        "another process took over database {database} while the connection was lost; restart this one"
    )]
    TakenOver {
        /// The database.
        database: String,
    },
    /// The server does not answer.
    #[error(
        "database {database} cannot be reached: {why}; check that the server runs and the address is right"
    )]
    Unreachable {
        /// The database.
        database: String,
        /// What went wrong.
        why: Arc<str>,
    },
    /// The server refuses the login, or a permission that the store needs.
    #[error(
        "database {database} refused us: {why}; check user, password, name and grants of the database"
    )]
    Refused {
        /// The database.
        database: String,
        /// The server's own words.
        why: Arc<str>,
    },
    /// The directory is missing or takes no files.
    #[error(
        "the directory of database {database} must exist and be writable: create it, or use another data directory"
    )]
    Directory {
        /// The database.
        database: String,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The file cannot be opened or written.
    #[error("database {database} must be a file that this user can read and write: {why}")]
    Denied {
        /// The database.
        database: String,
        /// The engine's own words.
        why: Arc<str>,
    },
    /// No space is left.
    #[error("database {database} cannot be opened because the disk is full; free some space")]
    Full {
        /// The database.
        database: String,
    },
    /// A newer version has written the database.
    #[error(
        "database {database} has version {found}, this program knows versions up to {known}; use the newer program again"
    )]
    Newer {
        /// The database.
        database: String,
        /// The version of its tables.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The database belongs to another program.
    #[error(
        "database {database} belongs to another program (it holds table {table}); use another one"
    )]
    Foreign {
        /// The database.
        database: String,
        /// One of its tables.
        table: String,
    },
    /// The file is no database, or not a whole one.
    #[error(
        "database {database} is damaged: {why}; restore a backup, or move it away to start with an empty one"
    )]
    Damaged {
        /// The database.
        database: String,
        /// What is wrong with the file.
        why: Arc<str>,
    },
    /// The tables could not be brought up to date.
    #[error("the tables of database {database} could not be brought up to date: {why}")]
    Migrate {
        /// The database.
        database: String,
        /// The engine's own words.
        why: Arc<str>,
    },
    /// The engine failed in another way.
    #[error("database {database} cannot be opened: {why}")]
    Engine {
        /// The database.
        database: String,
        /// The engine's own words.
        why: Arc<str>,
    },
}

impl Classify for OpenError {
    fn class(&self) -> Class {
        match self {
            Self::InUse { .. }
            | Self::Unreachable { .. }
            | Self::Full { .. }
            | Self::Engine { .. } => Class::Retry,
            Self::Url { .. }
            | Self::TakenOver { .. }
            | Self::Refused { .. }
            | Self::Directory { .. }
            | Self::Denied { .. }
            | Self::Newer { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. } => Class::Invalid,
            Self::Migrate { .. } => Class::Bug,
        }
    }
}
