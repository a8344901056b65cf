//! Webhooks behind TLS, with the certificates that they keep.

use std::{net::SocketAddr, sync::Arc};

use longshore_kit::Contact;
use longshore_webhook::{Admission, Certificates, Measures};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// Webhooks that share a certificate.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// The name of these webhooks in error messages.
    pub(crate) part: &'static str,
    /// Where their certificate is stored, and the webhook configurations that get its authority.
    pub(crate) certificates: Certificates,
    /// The webhooks, each with its path.
    pub(crate) webhooks: Vec<(&'static str, Arc<dyn Admission>)>,
    /// The metrics of the webhooks.
    pub(crate) measures: Measures,
    /// Whether the API server answers this process; the default where both are one process.
    pub(crate) contact: Contact,
}

impl Webhooks {
    /// Serves API servers until `shutdown`. Calls `ready` with the address, once the webhooks are served.
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
        let serving =
            longshore_webhook::serve(listener, tls.clone(), router, self.contact, shutdown);
        tokio::select! {
            ended = serving => ended.map_err(broken),
            () = self.certificates.keep(tls) => Ok(()),
        }
    }
}
