//! Webhooks behind TLS, with the certificates that they keep.

use std::{net::SocketAddr, sync::Arc};

use longshore_webhook::{Admission, Certificates, Measures};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// Webhooks that share a certificate.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// What they are, for messages.
    pub(crate) part: &'static str,
    /// Where their certificate is, and who is told of it.
    pub(crate) certificates: Certificates,
    /// Each at its path.
    pub(crate) webhooks: Vec<(&'static str, Arc<dyn Admission>)>,
    /// What they count.
    pub(crate) measures: Measures,
}

impl Webhooks {
    /// Answers API servers until `shutdown`; `ready` is told the address, once they are served.
    pub(crate) async fn serve(
        mut self,
        listener: TcpListener,
        shutdown: CancellationToken,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<(), CliError> {
        let broken = |source: std::io::Error| CliError::engine(self.part, source);
        let address = listener.local_addr().map_err(broken)?;
        let listener = listener.into_std().map_err(broken)?;
        let callers = self.certificates.callers();
        let first = self.certificates.first();
        let Some(tls) = shutdown.run_until_cancelled(first).await else {
            return Ok(());
        };
        let tls = tls.map_err(|source| CliError::engine(self.part, source))?;
        ready(address);
        let router = longshore_webhook::router(self.webhooks, callers, &self.measures);
        tokio::select! {
            ended = longshore_webhook::serve(listener, tls.clone(), router, shutdown) => ended.map_err(broken),
            () = self.certificates.keep(tls) => Ok(()),
        }
    }
}
