//! Keeps the certificates of a webhook: in a Secret that all replicas share, in the server, and with API servers.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use longshore_core::{ObjectRef, PatchKind, Resource, Scope, error::chain};
use longshore_kit::{ApiError, Clock, Requests};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};

use crate::{
    Registration,
    issue::{Pair, issue},
    kept::Kept,
    rotation::{LOOK_AGAIN, Step, apply, step},
};

const SECRET: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    scope: Scope::Namespaced,
};
/// Before the first certificate nothing is served: it is looked again soon.
const SOON: Duration = Duration::from_secs(1);

/// Where certificates are kept, and whom they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// DNS names or addresses under which API servers reach the webhook.
    pub names: Vec<String>,
}

impl Identity {
    /// A webhook behind a Service, with the names that it has in the cluster.
    pub fn of_service(namespace: &str, secret: &str, service: &str) -> Self {
        let short = format!("{service}.{namespace}");
        Self {
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            names: vec![
                service.to_owned(),
                short.clone(),
                format!("{short}.svc"),
                format!("{short}.svc.cluster.local"),
            ],
        }
    }
}

/// Why a webhook has no certificate, or API servers do not know it.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server did not do what it was asked for.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// What the roles do not let us create is to be there before.
    #[error(
        "expected {object}, found none, and it may not be created here: apply what `longshore controller rbac` prints for the role, which has it"
    )]
    Missing {
        /// Its kind and name.
        object: String,
        /// The API server's answer.
        source: ApiError,
    },
    /// No certificate can be made.
    #[error("no certificate for a webhook can be made")]
    NotMade(#[from] rcgen::Error),
    /// What is in the Secret is no certificate with its key.
    #[error(
        "expected a certificate and its key in the Secret {secret}: {why}; delete it for a new one"
    )]
    Unusable {
        /// Its name.
        secret: String,
        /// What is wrong.
        why: String,
    },
}

/// The certificates of a webhook. Any number of replicas may keep the same ones: each write is made upon what was read.
#[derive(Debug)]
pub struct Certificates {
    requests: Requests,
    clock: Arc<dyn Clock>,
    identity: Identity,
    registrations: Vec<Registration>,
    /// What API servers were last seen to trust.
    published: Option<String>,
    served: Option<Pair>,
}

/// What a look at the Secret found, or made of it.
struct Looked {
    /// What is to be served.
    pair: Pair,
    has_written: bool,
}

impl Certificates {
    /// Asks nobody yet.
    pub fn new(requests: Requests, clock: Arc<dyn Clock>, identity: Identity) -> Self {
        Self {
            requests,
            clock,
            identity,
            registrations: Vec::new(),
            published: None,
            served: None,
        }
    }

    /// Tells API servers of these webhooks.
    #[must_use]
    pub fn publishing(mut self, registration: Registration) -> Self {
        self.registrations.push(registration);
        self
    }

    /// Waits for the first certificate, and answers with how it is served.
    ///
    /// # Errors
    /// Where the Secret holds something else, or nothing can be made: trying again does not help.
    pub async fn first(&mut self) -> Result<RustlsConfig, CertificateError> {
        loop {
            match self.look().await {
                Ok(Looked { pair, .. }) => {
                    let tls = self.server_config(&pair)?;
                    self.served = Some(pair);
                    return Ok(RustlsConfig::from_config(tls));
                }
                Err(error @ (CertificateError::Api(_) | CertificateError::Missing { .. })) => {
                    tracing::warn!(error = %chain(&error), "the webhook waits for its certificate");
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(SOON).await;
        }
    }

    /// Keeps them, for ever: a new one is served to new connections as soon as it is to be served.
    ///
    /// *Cancellation*: dropping it is like a crash; the next replica goes on.
    pub async fn keep(mut self, tls: RustlsConfig) {
        loop {
            let mut wait = LOOK_AGAIN;
            if let Err(error) = self.publish().await {
                tracing::warn!(error = %chain(&error), "API servers cannot be told of the webhook");
                wait = SOON * 10;
            }
            match self.renew(&tls).await {
                // API servers learn of it now, not after the next wait.
                Ok(true) => {}
                Ok(false) => tokio::time::sleep(wait).await,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the certificate of the webhook is not looked after");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Serves what is to be served. Answers whether another certificate is kept now.
    async fn renew(&mut self, tls: &RustlsConfig) -> Result<bool, CertificateError> {
        let Looked { pair, has_written } = self.look().await?;
        if self.served.as_ref() != Some(&pair) {
            tls.reload_from_config(self.server_config(&pair)?);
            tracing::info!(not_after = %pair.not_after, "another certificate is served");
            self.served = Some(pair);
        }
        Ok(has_written)
    }

    /// What is to be served, after what had to be done about it.
    async fn look(&self) -> Result<Looked, CertificateError> {
        let target = self.target();
        let found = self.requests.get(&target).await?;
        let kept = found.as_ref().and_then(Kept::of);
        let now = self.clock.now();
        let names = &self.identity.names;
        let is_published = kept
            .as_ref()
            .is_some_and(|kept| self.published.as_ref() == Some(&kept.bundle()));
        let step = step(kept.as_ref(), names, is_published, now);
        let Some(after) = apply(step, kept.as_ref(), names, now, issue)? else {
            // Without a step there is something to keep.
            let kept = kept.ok_or_else(|| self.unusable("there is none"))?;
            return Ok(Looked {
                pair: kept.current,
                has_written: false,
            });
        };
        // The manifest with the roles has it without content.
        let holds_other =
            |secret: &Value| secret["data"].as_object().is_some_and(|it| !it.is_empty());
        if kept.is_none() && found.as_ref().is_some_and(holds_other) {
            return Err(self.unusable("it is not ours"));
        }
        self.write(&target, found.as_ref(), &after, step, now)
            .await?;
        Ok(Looked {
            pair: after.current,
            has_written: true,
        })
    }

    async fn write(
        &self,
        target: &ObjectRef,
        found: Option<&Value>,
        kept: &Kept,
        step: Step,
        now: Timestamp,
    ) -> Result<(), CertificateError> {
        let data = kept.data();
        tracing::info!(?step, %now, secret = self.identity.secret, "certificates of the webhook");
        match found {
            None => {
                let mut data = data;
                if let Some(data) = data.as_object_mut() {
                    data.retain(|_, value| !value.is_null());
                }
                let secret = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": target.name, "namespace": target.namespace},
                    "type": "kubernetes.io/tls",
                    "data": data,
                });
                self.create(target, &secret).await?;
            }
            Some(found) => {
                // Whoever reads an older one is refused, and looks again.
                let version = &found["metadata"]["resourceVersion"];
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                self.requests
                    .patch(target, None, PatchKind::Merge, patch)
                    .await?;
            }
        }
        Ok(())
    }

    /// Creates what is not there, where that is allowed: Kubernetes cannot restrict it to a name, and so no role grants it.
    async fn create(&self, target: &ObjectRef, object: &Value) -> Result<(), CertificateError> {
        match self.requests.create(target, object).await {
            Ok(_) => Ok(()),
            Err(source) if source.code() == Some(403) => Err(CertificateError::Missing {
                object: target.to_string(),
                source,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Sees to it that API servers trust whatever is served.
    async fn publish(&mut self) -> Result<(), CertificateError> {
        let Some(kept) = self
            .requests
            .get(&self.target())
            .await?
            .as_ref()
            .and_then(Kept::of)
        else {
            return Ok(());
        };
        let bundle = kept.bundle();
        for registration in &self.registrations {
            let target = registration.target();
            let object = registration.object(&bundle);
            match self.requests.get(&target).await? {
                None => self.create(&target, &object).await?,
                Some(found) if registration.is_as(&found, &bundle) => {}
                Some(_) => {
                    let patch = json!({"webhooks": object["webhooks"]});
                    drop(
                        self.requests
                            .patch(&target, None, PatchKind::Merge, patch)
                            .await?,
                    );
                }
            }
        }
        self.published = Some(bundle);
        Ok(())
    }

    fn target(&self) -> ObjectRef {
        ObjectRef {
            resource: SECRET,
            namespace: self.identity.namespace.clone(),
            name: self.identity.secret.clone(),
            uid: None,
        }
    }

    fn unusable(&self, why: impl ToString) -> CertificateError {
        CertificateError::Unusable {
            secret: self.identity.secret.clone(),
            why: why.to_string(),
        }
    }

    fn server_config(&self, pair: &Pair) -> Result<Arc<ServerConfig>, CertificateError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| self.unusable(error))?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let key = key.map_err(|error| self.unusable(error))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| self.unusable(error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
