//! Keeps the certificates and the tokens of a webhook: in a Secret that all replicas share, in the server, and with API
//! servers.

use std::{sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use longshore_core::{ObjectRef, PatchKind, Resource, Scope, error::chain};
use longshore_kit::{
    Answer, ApiError, Clock, Repeated, Requests,
    lease::{LEASE, is_uninstalled},
};
use serde_json::{Value, json};

use crate::{
    Callers, ClientAuthority, Identity, NoClientAuthority, Registration, RoleReadiness, Serving,
    issue::{Pair, issue},
    kept::Kept,
    registration::{Narrowing, Publication},
    rotation::{LOOK_AGAIN, Step, apply, step},
    served::Served,
    token::Token,
    tokens::{Memory, TokenStep},
};

const SECRET: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    scope: Scope::Namespaced,
};
/// Before the first certificate nothing is served: the next attempt comes soon.
const SOON: Duration = Duration::from_secs(1);
/// How soon a role that was uninstalled is noticed to be installed again.
const UNINSTALLED_PAUSE: Duration = Duration::from_secs(5);

/// Why a webhook has no certificate, or API servers do not know it.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server refused a request, or did not respond.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object is missing that the roles do not let this process create.
    #[error(
        "expected {object}, found none, and it may not be created here: apply what `longshore controller rbac` prints for the role, which has it"
    )]
    Missing {
        /// Its kind and name.
        object: String,
        /// The API server's response.
        source: ApiError,
    },
    /// No certificate can be made.
    #[error("no certificate for a webhook can be made")]
    NotMade(#[from] rcgen::Error),
    /// The library of TLS has no randomness, or refuses to serve.
    #[error("the webhook cannot use TLS")]
    Tls(#[from] rustls::Error),
    /// It is not known which client certificates are good.
    #[error(transparent)]
    ClientAuthority(#[from] NoClientAuthority),
    /// The role was uninstalled: this process writes nothing for the role.
    #[error(
        "the Lease {namespace}/{lease} says that the role was uninstalled; `longshore uninstall --role {role} -n {namespace} --undo` lets it run again"
    )]
    Uninstalled {
        /// The role of the controller.
        role: String,
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        lease: String,
    },
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

impl CertificateError {
    /// Whether another replica wrote first. This one then reads what that replica wrote.
    fn is_race(&self) -> bool {
        match self {
            Self::Api(error) => error.is_precondition_failure() || error.is_already_exists(),
            Self::Missing { .. }
            | Self::Uninstalled { .. }
            | Self::NotMade(_)
            | Self::Tls(_)
            | Self::ClientAuthority(_)
            | Self::Unusable { .. } => false,
        }
    }

    /// When a replica that has a certificate looks again: one that was uninstalled may be installed again at any time.
    fn look_again(&self) -> Duration {
        match self {
            Self::Uninstalled { .. } => UNINSTALLED_PAUSE,
            Self::Api(_) if self.is_race() => SOON,
            Self::Api(_)
            | Self::Missing { .. }
            | Self::NotMade(_)
            | Self::Tls(_)
            | Self::ClientAuthority(_)
            | Self::Unusable { .. } => LOOK_AGAIN,
        }
    }
}

/// The certificates and tokens of a webhook. Any number of replicas may keep the same ones: each write is made upon what
/// was read.
#[derive(Debug)]
pub struct Certificates {
    requests: Requests,
    clock: Arc<dyn Clock>,
    identity: Identity,
    registrations: Vec<Registration>,
    client_authority: Option<ClientAuthority>,
    callers: Option<Callers>,
    /// The role of the controller, and the Lease that says whether it was uninstalled.
    lease: Option<(String, ObjectRef)>,
    /// How far the API server was seen to narrow its requests.
    narrowing: Narrowing,
    /// What API servers were last seen to know.
    published: Option<Publication>,
    served: Option<Served>,
    memory: Memory,
    readiness: Option<RoleReadiness>,
}

/// The content of the Secret as it was read or written.
struct Looked {
    kept: Kept,
    has_written: bool,
}

impl Certificates {
    /// Builds the keeper of the certificates. Sends no request yet.
    pub fn new(requests: Requests, clock: Arc<dyn Clock>, identity: Identity) -> Self {
        Self {
            requests,
            clock,
            identity,
            registrations: Vec::new(),
            client_authority: None,
            callers: None,
            lease: None,
            narrowing: Narrowing::ByConditions,
            published: None,
            served: None,
            memory: Memory::default(),
            readiness: None,
        }
    }

    /// Publishes these webhooks to API servers.
    #[must_use]
    pub fn publishing(mut self, registration: Registration) -> Self {
        self.registrations.push(registration);
        self
    }

    /// Admits only callers with a client certificate of this authority. Paths have no tokens then.
    #[must_use]
    pub fn trusting(mut self, client_authority: Option<ClientAuthority>) -> Self {
        self.client_authority = client_authority;
        self
    }

    /// The authentication of callers, for the router.
    pub fn callers(&mut self) -> Callers {
        let target = self.target();
        let callers = self.callers.get_or_insert_with(|| {
            Callers::new(
                self.requests.clone(),
                Arc::clone(&self.clock),
                target,
                self.client_authority.is_some(),
            )
        });
        callers.clone()
    }

    /// Writes nothing while the Lease of this name, in the namespace of the Secret, says that `role` was uninstalled.
    /// The Lease is read only before a write.
    #[must_use]
    pub fn unless_uninstalled(mut self, role: &str, lease: &str) -> Self {
        let lease = ObjectRef {
            resource: LEASE,
            namespace: self.identity.namespace.clone(),
            name: lease.to_owned(),
            uid: None,
        };
        self.lease = Some((role.to_owned(), lease));
        self
    }

    /// Notes there whether the webhooks are served and registered.
    #[must_use]
    pub fn reporting(mut self, readiness: RoleReadiness) -> Self {
        for registration in &self.registrations {
            readiness.configuration(&registration.title(), true);
        }
        self.readiness = Some(readiness);
        self
    }

    /// Waits for the first certificate, and returns how the server serves it.
    ///
    /// # Errors
    /// Where the Secret holds something else, or nothing can be made: trying again does not help.
    pub async fn first(&mut self) -> Result<RustlsConfig, CertificateError> {
        let callers = self.callers();
        let mut said = Repeated::default();
        loop {
            match self.look().await {
                Ok(Looked { kept, .. }) => {
                    callers.load(kept.tokens.as_ref());
                    let served = self.to_serve(kept.current)?;
                    let tls = served.config(&self.identity.secret)?;
                    self.served = Some(served);
                    self.note_serving(Serving::Served);
                    return Ok(RustlsConfig::from_config(tls));
                }
                Err(error) if error.is_race() => {
                    // Another replica has started at the same time: what it wrote is read at once.
                    tracing::debug!("another replica has written the certificate of the webhook");
                }
                Err(error @ (CertificateError::Api(_) | CertificateError::Missing { .. })) => {
                    warn_once(&mut said, "the webhook waits for its certificate", &error);
                    tokio::time::sleep(SOON).await;
                }
                Err(error @ CertificateError::Uninstalled { .. }) => {
                    self.note_serving(Serving::Uninstalled);
                    warn_once(&mut said, "the webhook is not served", &error);
                    tokio::time::sleep(UNINSTALLED_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the certificates, without end: a new one is served to new connections as soon as it is due.
    ///
    /// *Cancellation*: dropping it is like a crash; the next replica goes on.
    pub async fn keep(mut self, tls: RustlsConfig) {
        const UNTOLD: &str = "API servers cannot be told of the webhook";
        const UNRENEWED: &str = "the certificate of the webhook is not looked after";
        let callers = self.callers();
        let mut said = Repeated::default();
        loop {
            let mut wait = LOOK_AGAIN;
            match self.publish().await {
                Ok(()) => {
                    self.note_serving(Serving::Served);
                    said.forget(&UNTOLD);
                }
                Err(error) if error.is_race() => wait = SOON,
                Err(error) => {
                    if matches!(error, CertificateError::Uninstalled { .. }) {
                        self.note_serving(Serving::Uninstalled);
                    }
                    warn_once(&mut said, UNTOLD, &error);
                    wait = SOON * 10;
                }
            }
            match self.renew(&tls, &callers).await {
                // This step publishes the certificate to API servers now, not after the next wait.
                Ok(Looked {
                    has_written: true, ..
                }) => continue,
                Ok(Looked { kept, .. }) => {
                    said.forget(&UNRENEWED);
                    wait = wait.min(self.next_look(&kept));
                }
                Err(error) => {
                    wait = wait.min(error.look_again());
                    if !error.is_race() {
                        warn_once(&mut said, UNRENEWED, &error);
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = callers.until_given_up(), if self.heeds_those_who_give_up() => {}
            }
        }
    }

    /// Whether a request that is given up has to be acted upon: once for each token.
    fn heeds_those_who_give_up(&self) -> bool {
        self.client_authority.is_none() && !self.memory.is_suspicious()
    }

    /// How long nothing has to be done about tokens.
    fn next_look(&self, kept: &Kept) -> Duration {
        let now = self.clock.now();
        let due = kept.tokens.as_ref().and_then(|tokens| tokens.due(now));
        let left = due.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        left.map_or(LOOK_AGAIN, |left| left.max(SOON))
    }

    /// Serves what is to be served, and accepts what is to be accepted.
    async fn renew(
        &mut self,
        tls: &RustlsConfig,
        callers: &Callers,
    ) -> Result<Looked, CertificateError> {
        if callers.take_given_up()
            && let Some(token) = self.published.as_ref().and_then(|it| it.token.clone())
        {
            self.memory.gave_up(token);
        }
        let looked = self.look().await?;
        callers.load(looked.kept.tokens.as_ref());
        let served = self.to_serve(looked.kept.current.clone())?;
        if self.served.as_ref() != Some(&served) {
            tls.reload_from_config(served.config(&self.identity.secret)?);
            tracing::info!(not_after = %served.pair.not_after, "another certificate is served");
            self.served = Some(served);
        }
        Ok(looked)
    }

    /// What is to be served, after what had to be done about it.
    async fn look(&mut self) -> Result<Looked, CertificateError> {
        let target = self.target();
        let found = self.requests.get(&target).await?;
        let kept = found.as_ref().and_then(Kept::of);
        let now = self.clock.now();
        let token = self.memory.circumstances(
            kept.as_ref().and_then(|kept| kept.tokens.as_ref()),
            self.published.as_ref().and_then(|it| it.token.as_ref()),
            self.client_authority.is_none() && !self.registrations.is_empty(),
        );
        let names = &self.identity.names;
        let is_published = kept.as_ref().is_some_and(|kept| {
            let published = self.published.as_ref();
            published.is_some_and(|published| published.bundle == kept.bundle())
        });
        let step = step(kept.as_ref(), names, is_published, token, now);
        let issue = |names: &[String], now| issue(names, now).map_err(CertificateError::from);
        let make = || Ok(Token::generate()?);
        let Some(after) = apply(step, kept.as_ref(), names, now, issue, make)? else {
            // Without a step there is something to keep.
            let kept = kept.ok_or_else(|| self.unusable("there is none"))?;
            return Ok(Looked {
                kept,
                has_written: false,
            });
        };
        // The manifest with the roles has it without content.
        let holds_other =
            |secret: &Value| secret["data"].as_object().is_some_and(|it| !it.is_empty());
        if kept.is_none() && found.as_ref().is_some_and(holds_other) {
            return Err(self.unusable("it is not ours"));
        }
        self.is_installed().await?;
        self.write(&target, found.as_ref(), &after, step, now)
            .await?;
        Ok(Looked {
            kept: after,
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
        let secret = &self.identity.secret;
        if matches!(step, Step::Tokens(TokenStep::Note | TokenStep::Forget)) {
            tracing::debug!(?step, %now, secret, "tokens of the webhook");
        } else {
            tracing::info!(?step, %now, secret, "certificates of the webhook");
        }
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
                drop(self.create(target, &secret).await?);
            }
            Some(found) => {
                // A replica that has read an older version gets a conflict, and reads the Secret again.
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
    async fn create(&self, target: &ObjectRef, object: &Value) -> Result<Answer, CertificateError> {
        match self.requests.create(target, object).await {
            Ok(answer) => Ok(answer),
            Err(source) if source.code() == Some(403) => Err(CertificateError::Missing {
                object: target.to_string(),
                source,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes API servers trust every certificate that is served, and name the current token.
    ///
    /// The Secret is read last, and each write names the version of the configuration that was read before it. A slow
    /// replica therefore cannot bring a token back that was replaced, published and forgotten meanwhile.
    async fn publish(&mut self) -> Result<(), CertificateError> {
        let mut found = Vec::new();
        for registration in &self.registrations {
            let object = self.requests.get(&registration.target()).await?;
            found.push(object);
        }
        let secret = self.requests.get(&self.target()).await?;
        let Some(kept) = secret.as_ref().and_then(Kept::of) else {
            return Ok(());
        };
        let token = match self.client_authority {
            None => kept.tokens.as_ref().map(|tokens| tokens.current.clone()),
            Some(_) => None,
        };
        let publication = Publication {
            bundle: kept.bundle(),
            token,
        };
        for (registration, found) in self.registrations.iter().zip(found) {
            let is_right = |found: &Value| registration.is_as(found, &publication, self.narrowing);
            if !found.as_ref().is_some_and(is_right) {
                self.note_missing(registration, true);
                self.is_installed().await?;
                let found = found.as_ref();
                self.narrowing = self.register(registration, &publication, found).await?;
            }
            self.note_missing(registration, false);
        }
        self.published = Some(publication);
        Ok(())
    }

    fn note_missing(&self, registration: &Registration, is_missing: bool) {
        if let Some(readiness) = &self.readiness {
            readiness.configuration(&registration.title(), is_missing);
        }
    }

    fn note_serving(&self, serving: Serving) {
        if let Some(readiness) = &self.readiness {
            readiness.is(serving);
        }
    }

    /// What is to be served beside a certificate. A file that cannot be read any more changes nothing.
    fn to_serve(&self, pair: Pair) -> Result<Served, CertificateError> {
        let client_authority = match &self.client_authority {
            None => None,
            Some(authority) => match (authority.read(), &self.served) {
                (Ok(pem), _) => Some(pem),
                (Err(error), None) => return Err(error.into()),
                (Err(error), Some(served)) => {
                    tracing::warn!(error = %chain(&error), "the client authority of the webhook is not read again");
                    served.client_authority.clone()
                }
            },
        };
        Ok(Served {
            pair,
            client_authority,
        })
    }

    /// Writes a registration. Returns how far the API server narrows its requests: after an API server has refused
    /// `matchConditions`, or stored an object without them, later writes have none.
    async fn register(
        &self,
        registration: &Registration,
        publication: &Publication,
        found: Option<&Value>,
    ) -> Result<Narrowing, CertificateError> {
        let narrowing = self.narrowing;
        let written = self.put(registration, publication, found, narrowing).await;
        if narrowing == Narrowing::ByRules || !registration.has_conditions() {
            return written.map(|_| narrowing);
        }
        match written {
            Ok(stored) if registration.is_as(&stored, publication, narrowing) => Ok(narrowing),
            Ok(stored) if registration.is_as(&stored, publication, Narrowing::ByRules) => {
                tracing::info!(
                    "the API server drops matchConditions: the webhook is asked about more"
                );
                Ok(Narrowing::ByRules)
            }
            Ok(_) => Ok(narrowing),
            Err(CertificateError::Api(error)) if matches!(error.code(), Some(400 | 422)) => {
                tracing::info!(
                    why = error.message().unwrap_or_default(),
                    "the API server refuses matchConditions: the webhook is asked about more"
                );
                let narrowing = Narrowing::ByRules;
                self.put(registration, publication, found, narrowing)
                    .await?;
                Ok(narrowing)
            }
            Err(error) => Err(error),
        }
    }

    /// The configuration as the API server has stored it.
    async fn put(
        &self,
        registration: &Registration,
        publication: &Publication,
        found: Option<&Value>,
        narrowing: Narrowing,
    ) -> Result<Value, CertificateError> {
        let target = registration.target();
        let object = registration.published_for(publication, narrowing);
        let answer = match found {
            None => self.create(&target, &object).await?,
            Some(found) => {
                let version = &found["metadata"]["resourceVersion"];
                let patch = json!({
                    "metadata": {"resourceVersion": version}, "webhooks": object["webhooks"],
                });
                self.requests
                    .patch(&target, None, PatchKind::Merge, patch)
                    .await?
            }
        };
        Ok(answer.object_of(&target)?)
    }

    /// Fails where the role was uninstalled. A role that may not read the Lease (403) counts as installed.
    async fn is_installed(&self) -> Result<(), CertificateError> {
        let Some((role, lease)) = &self.lease else {
            return Ok(());
        };
        match self.requests.get(lease).await {
            Ok(Some(found)) if is_uninstalled(&found) => Err(CertificateError::Uninstalled {
                role: role.clone(),
                namespace: lease.namespace.clone(),
                lease: lease.name.clone(),
            }),
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(403) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
}

/// A line of the log at WARN, until the error changes.
fn warn_once(said: &mut Repeated<&'static str>, what: &'static str, error: &CertificateError) {
    let error = chain(error);
    if said.is_new(what, &error) {
        tracing::warn!(error, "{what}");
    } else {
        tracing::debug!(error, "{what}");
    }
}

#[cfg(test)]
mod tests;
