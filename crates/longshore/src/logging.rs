//! The log of this program. `run` and `standalone` keep it out of the progress, in `<data-dir>/longshore.log`, and the
//! log before in `longshore.log.1`; `controller` writes it to stderr.

use std::{path::Path, sync::Mutex};

use tracing_subscriber::EnvFilter;

use crate::error::CliError;

mod bounded;

/// The log of a service that runs for months takes no more than twice this.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Sends the log to a file in the data directory, from now to the end of the process.
pub(crate) fn to_file(data_dir: &Path, verbosity: u8) -> Result<(), CliError> {
    let file = bounded::BoundedFile::open(&data_dir.join("longshore.log"), MAX_BYTES)
        .map_err(|source| CliError::in_data_dir(data_dir.to_owned(), source))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter(verbosity))
        .with_writer(Mutex::new(file))
        .with_ansi(false)
        .init();
    Ok(())
}

/// Sends the log to stderr, for a process that Kubernetes or another supervisor watches.
pub(crate) fn to_stderr(verbosity: u8) {
    tracing_subscriber::fmt()
        .with_env_filter(filter(verbosity))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

/// `LONGSHORE_LOG` wins over `-v`. A directive that cannot be read is left out.
fn filter(verbosity: u8) -> EnvFilter {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    let named = std::env::var("LONGSHORE_LOG");
    let directives = named.unwrap_or_else(|_| directives(verbosity).to_owned());
    EnvFilter::builder().parse_lossy(directives)
}

/// What is logged unless `LONGSHORE_LOG` says otherwise.
fn directives(verbosity: u8) -> &'static str {
    match verbosity {
        // kube's client logs every 5xx response before its retry; this program logs the outcome. The HTTP and TLS
        // libraries warn about what a peer does, so every client that connects could fill the log.
        0 => {
            "info,kube_client::client::builder=off,h2=error,hyper=error,hyper_util=error,rustls=error"
        }
        // A round writes its whole plan, with the parameters and environments of the pods that it creates.
        1 => "debug,longshore_kit::round=info",
        // The other libraries write every header, and with it the tokens in paths and headers.
        _ => {
            "trace,longshore_kit::round=info,h2=debug,hyper=debug,hyper_util=debug,rustls=debug,tower_http=debug"
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Level, enabled, subscriber::with_default};

    use super::*;

    #[test]
    fn peers_of_connections_write_nothing_into_the_log() {
        let subscriber = |directives: &str| {
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::builder().parse_lossy(directives))
                .with_writer(std::io::sink)
                .finish()
        };
        let warnings = || {
            [
                enabled!(target: "h2::proto::streams::recv", Level::WARN),
                enabled!(target: "hyper::proto::h1", Level::WARN),
                enabled!(target: "hyper_util::server", Level::WARN),
                enabled!(target: "rustls::common_state", Level::WARN),
            ]
        };
        with_default(subscriber(directives(0)), || {
            assert_eq!(warnings(), [false; 4]);
            assert!(enabled!(target: "h2::proto::connection", Level::ERROR));
            assert!(enabled!(target: "longshore_webhook::serve", Level::WARN));
            assert!(enabled!(target: "longshore::controller", Level::INFO));
        });
        // A user who sets the directive sees these warnings.
        with_default(subscriber("info,h2=warn"), || {
            assert!(enabled!(target: "h2::proto::streams::recv", Level::WARN));
        });
        with_default(subscriber(directives(1)), || {
            assert_eq!(warnings(), [true; 4]);
        });
    }
}
