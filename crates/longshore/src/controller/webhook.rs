//! The role `webhook`: secrets for pods that ask for them. It has no lease, because API servers may call any replica.

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

use super::{Context, podops};
use crate::{
    error::CliError,
    output,
    service::{listen, webhooks::Webhooks},
};

/// The name of the role.
pub(crate) const ROLE: &str = "webhook";
/// The role has no lease: this Lease only ever says that the role was uninstalled.
pub(super) const MARK: &str = "longshore-webhook";

const PART: &str = "the webhook of secrets";
const INVALIDATION: &str = "changes of secrets";
/// The settings of their ports.
const LISTEN_PORT: &str = "webhook.listenPort of the configuration";
const INVALIDATION_PORT: &str = "webhook.cacheInvalidationPort of the configuration";
/// How long requests about changed secrets that are under way may take.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Serves the webhook for pods until `shutdown`.
///
/// Its writes need no lease: each write of a certificate has the version that was read as its
/// precondition, and every replica would write the same values to all other objects.
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
    let config = &context.config;
    let is_beside_podops = config.roles.iter().any(|role| role.name == podops::ROLE);
    let port = settings.listen_port;
    let (address, setting) = listens_at(config.webhook_address, is_beside_podops, port);
    let (listener, _) = listen(PART, address, setting).await?;
    let tasks = Tasks::new();
    match &settings.invalidation_token_file {
        Some(file) if settings.invalidation_port != 0 => {
            let token = invalidation_token(file)?;
            let address = (address.ip(), settings.invalidation_port).into();
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
        contact: context.cluster.contact().clone(),
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

/// The note for an installation with the Secrets of tasks in the namespace of the controller, as the peer has it.
pub(crate) fn reads_its_own(namespace: &str) -> String {
    format!(
        "the Secrets of tasks are in {namespace}, the controller's own namespace: with its token all Secrets there can be read, the keys of its webhooks too; run the role webhook in another namespace to keep them apart"
    )
}

/// The token that callers of `POST /invalidate-secret` have to send.
fn invalidation_token(file: &Path) -> Result<InvalidationToken, CliError> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|source| CliError::in_file(file.to_owned(), source))?;
    InvalidationToken::new(&text).map_err(|source| CliError::engine(INVALIDATION, source))
}

/// The address of the webhook, and the setting that names it: the flag before the file. Beside
/// `podops`, whose webhooks have the address of the flag, it has the same IP with the port of the
/// file. Without the flag it listens on every address, because API servers are on other machines.
fn listens_at(
    flag: Option<SocketAddr>,
    is_beside_podops: bool,
    port: u16,
) -> (SocketAddr, &'static str) {
    match flag {
        Some(flag) if is_beside_podops => ((flag.ip(), port).into(), LISTEN_PORT),
        Some(flag) => (flag, "--webhook-address"),
        None => ((Ipv4Addr::UNSPECIFIED, port).into(), LISTEN_PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_says_where_it_listens_and_beside_podops_on_which_ip() {
        let flag: SocketAddr = "127.0.0.1:29443".parse().unwrap();
        let text = |flag, is_beside_podops| {
            let (address, setting) = listens_at(flag, is_beside_podops, 9444);
            format!("{address} {setting}")
        };
        assert_eq!(text(Some(flag), false), "127.0.0.1:29443 --webhook-address");
        assert_eq!(
            text(Some(flag), true),
            "127.0.0.1:9444 webhook.listenPort of the configuration"
        );
        for is_beside_podops in [false, true] {
            assert_eq!(
                text(None, is_beside_podops),
                "0.0.0.0:9444 webhook.listenPort of the configuration"
            );
        }
    }
}
