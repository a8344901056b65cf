//! A database that closes quietly.

use std::{
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
};

use redb::Database;

/// An open database. redb frees pages when it is closed, and panics when a damaged page names wrong ones. By then every
/// transaction is durable or has failed, and nothing is lost by leaving the file as it is.
pub(super) struct OpenDatabase {
    /// `None` only while it is dropped.
    database: Option<Database>,
}

impl From<Database> for OpenDatabase {
    fn from(database: Database) -> Self {
        Self {
            database: Some(database),
        }
    }
}

impl Deref for OpenDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        #[expect(
            clippy::expect_used,
            reason = "the database is taken out when no request can come any more"
        )]
        self.database.as_ref().expect("the database is open")
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let database = self.database.take();
        if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            tracing::error!(
                "the database has a damaged page: restore it from a copy before it grows"
            );
        }
    }
}
