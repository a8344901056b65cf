//! The role `webhook`: secrets for pods that ask for them. It has no lease, because API servers may ask any replica.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use longshore_console::serve;
use longshore_kit::{Gate, Requests, SystemClock, Tasks};
use longshore_tasks::{
    secret_cache::{self, InvalidationToken, SecretCache},
    secrets::{self, SecretsWebhook},
};
use longshore_webhook::{Admission, Certificates, Identity};
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::{
    error::CliError,
    output,
    service::{listen, webhooks::Webhooks},
};

/// Its name among the roles.
pub(crate) const ROLE: &str = "webhook";
/// It has no lease: this one only ever says that it was uninstalled.
pub(super) const MARK: &str = "longshore-webhook";

const PART: &str = "the webhook of secrets";
const INVALIDATION: &str = "changes of secrets";
/// The settings of their ports.
const LISTEN_PORT: &str = "webhook.listenPort of the configuration";
const INVALIDATION_PORT: &str = "webhook.cacheInvalidationPort of the configuration";
/// How long those who tell of changed secrets have to hear that it is known.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Answers API servers until `shutdown`.
///
/// What it writes needs no lease: certificates are written upon what was read of them, and everything else is the same
/// whoever writes it.
pub(super) async fn run(
    context: Arc<Context>,
    _gate: Gate,
    shutdown: CancellationToken,
) -> Result<(), CliError> {
    let settings = context.config.settings.webhook.clone();
    let namespace = context.cluster.namespace();
    if settings.secrets_namespace == namespace {
        output::note(&reads_its_own(namespace));
    }
    let requests = Requests::new(context.cluster.client(ROLE, &context.metrics)?);
    let cache = Arc::new(SecretCache::default());
    let webhook: Arc<dyn Admission> = Arc::new(SecretsWebhook::new(
        settings.clone(),
        requests.clone(),
        Arc::clone(&cache),
    ));
    let identity = Identity::of_service(namespace, &settings.secret_name, &settings.service_name);
    let mut certificates = Certificates::new(requests, Arc::new(SystemClock), identity)
        .trusting(context.config.client_authority.clone())
        .unless_uninstalled(ROLE, MARK);
    if settings.is_registered {
        let registration = SecretsWebhook::registration(&settings, namespace);
        certificates = certificates.publishing(registration);
    }
    certificates = certificates.reporting(context.readiness.of(ROLE));
    let (listener, _) = listen(PART, everywhere(settings.listen_port), LISTEN_PORT).await?;
    let tasks = Tasks::new();
    match &settings.invalidation_token_file {
        Some(file) if settings.invalidation_port != 0 => {
            let token = invalidation_token(file)?;
            let address = everywhere(settings.invalidation_port);
            let (listener, _) = listen(INVALIDATION, address, INVALIDATION_PORT).await?;
            let router = secret_cache::router(cache, token);
            let serving = serve::serve(listener, router, tasks.shutdown());
            tasks.spawn(INVALIDATION, serving);
        }
        Some(_) => {}
        None => output::note(
            "webhook: POST /invalidate-secret is not served, because webhook.cacheInvalidationTokenFile names no token",
        ),
    }
    let webhooks = Webhooks {
        part: PART,
        certificates,
        webhooks: vec![(secrets::PATH, webhook)],
        measures: context.webhooks.clone(),
    };
    let ended = webhooks.serve(listener, shutdown, |address| {
        output::note(&format!(
            "webhook: runs here, https://{address}{}",
            secrets::PATH
        ));
    });
    let ended = ended.await;
    tasks.stop(DRAIN_LIMIT).await;
    ended
}

/// What is said where the Secrets of tasks are in the namespace of the controller, as the peer has it.
pub(crate) fn reads_its_own(namespace: &str) -> String {
    format!(
        "the Secrets of tasks are in {namespace}, the controller's own namespace: with its token all Secrets there can be read, the keys of its webhooks too; run the role webhook in another namespace to keep them apart"
    )
}

/// What callers of `POST /invalidate-secret` have to show.
fn invalidation_token(file: &Path) -> Result<InvalidationToken, CliError> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|source| CliError::in_file(file.to_owned(), source))?;
    InvalidationToken::new(&text).map_err(|source| CliError::engine(INVALIDATION, source))
}

/// API servers are on other machines.
fn everywhere(port: u16) -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, port).into()
}
