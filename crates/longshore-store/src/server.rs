//! A Postgres database as its URL names it, without the password in anything that is printed.

use std::fmt;

use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::engine::{EngineError, postgres::Connection};

/// The parameters that a URL may carry. Another one is refused: sqlx would log it, value included.
const PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "options",
];

/// The address of the server and the user's credentials.
#[derive(Clone)]
pub(crate) struct Server {
    options: PgConnectOptions,
    /// Distinguishes the sessions of this store from all others.
    session: Uuid,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the options hold the password.
        f.debug_tuple("Server").field(&self.to_string()).finish()
    }
}

/// The URL without password and parameters.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.options;
        write!(f, "postgres://{}@", o.get_username())?;
        match o.get_socket() {
            Some(socket) => write!(f, "[{}]", socket.display())?,
            None => write!(f, "{}:{}", o.get_host(), o.get_port())?,
        }
        write!(f, "/{}", o.get_database().unwrap_or(o.get_username()))
    }
}

impl Server {
    /// Parses a URL. The error does not repeat any part of it.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or("it must begin with postgres:// or postgresql://")?;
        let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        // A password with one of these moves parts of itself to places that are printed.
        let path = address.split_once('/').map_or("", |(_, path)| path);
        if rest.contains('#') || path.contains(['@', ':', '/']) {
            return Err("the characters # / ? @ in its parts must be percent-encoded");
        }
        let is_known = |parameter: &str| {
            let key = parameter.split('=').next().unwrap_or_default();
            PARAMETERS.contains(&key)
        };
        if !parameters.is_empty() && !parameters.split('&').all(is_known) {
            return Err(
                "its parameters can only be sslmode, sslrootcert, sslcert, sslkey, host, port, \
                        dbname, user, password and options",
            );
        }
        let options = url.parse().map_err(
            |_| "some part of it cannot be read (special characters must be percent-encoded)",
        )?;
        Ok(Self {
            options,
            session: Uuid::new_v4(),
        })
    }

    /// Opens the one session that writes.
    pub(crate) async fn connect_writer(&self) -> Result<Connection, EngineError> {
        Connection::open(&self.options, &self.writer_name()).await
    }

    /// Opens a session that reads.
    pub(crate) async fn connect_reader(&self) -> Result<Connection, EngineError> {
        Connection::open(
            &self.options,
            &format!("longshore reader {}", self.session.simple()),
        )
        .await
    }

    /// The name of the session that writes, in the server's list of sessions.
    pub(crate) fn writer_name(&self) -> String {
        format!("longshore writer {}", self.session.simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let cases = [
            (
                "postgres://ann:s3cret@db.example:5433/runs?sslmode=require",
                "postgres://ann@db.example:5433/runs",
            ),
            (
                "postgresql://ann:s3cr%40et@db.example:5432/runs",
                "postgres://ann@db.example:5432/runs",
            ),
            (
                "postgres://ann@localhost:5432/runs?password=s3cret&host=/run/postgres",
                "postgres://ann@[/run/postgres]/runs",
            ),
        ];
        for (url, expected) in cases {
            let server = Server::parse(url).unwrap();
            assert_eq!(server.to_string(), expected);
            assert_eq!(format!("{server:?}"), format!("Server({expected:?})"));
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused() {
        let encoded = "the characters # / ? @";
        let unreadable = "some part of it cannot be read";
        let cases = [
            ("mysql://ann:s3cret@db/runs", "it must begin with"),
            ("s3cret", "it must begin with"),
            ("", "it must begin with"),
            ("postgres://ann:12/s3cret@db/runs", encoded),
            ("postgres://ann:s3#cret@db/runs", encoded),
            ("postgres://ann:12?s3cret@db/runs", "its parameters"),
            ("postgres://ann@db/runs?pasword=s3cret", "its parameters"),
            ("postgres://ann@db/runs?sslmode=s3cret", unreadable),
            ("postgres://ann:s3cret@db:port/runs", unreadable),
        ];
        for (url, expected) in cases {
            let why = Server::parse(url).unwrap_err();
            assert!(why.starts_with(expected), "{url}: {why}");
        }
    }
}
