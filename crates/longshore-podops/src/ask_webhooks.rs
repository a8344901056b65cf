//! Asks the webhooks of rules over HTTP.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_api::podops::{RuleAnswer, RuleClientConfig, RulePoll, RulePollAnswer, RuleQuestion};
use longshore_core::text::shorten_to;
use longshore_outbound::{
    Answer, Boundaries, Limits, OutboundError, Permit, TenantClient, Trust, shown,
};
use serde::de::DeserializeOwned;

/// Authorities that clients are kept for; more than that is not at work, but left behind.
const KEPT_CLIENTS: usize = 16;
/// base64 of a line break, which some tools write for nothing.
const NOTHING: &str = "Cg==";
/// The most of a message that is shown, in bytes: it goes into annotations of pods.
const MAX_MESSAGE: usize = 1024;

/// Carries questions of rules to webhooks, and their answers back.
#[async_trait]
pub trait RuleTransport: fmt::Debug + Send + Sync + 'static {
    /// Asks whether pods may go on.
    ///
    /// # Errors
    /// Why there is no answer, as text for the author of the rule. It quotes nothing of an answer that is not a
    /// webhook's: a URL may lead to a server whose answers are not for the author of the rule.
    async fn ask(
        &self,
        whom: &RuleClientConfig,
        question: &RuleQuestion,
    ) -> Result<RuleAnswer, String>;

    /// Asks about a task.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    async fn poll(&self, whom: &RulePoll, task_id: &str) -> Result<RulePollAnswer, String>;
}

/// Asks webhooks within these boundaries, over connections that are kept.
#[derive(Debug)]
pub(crate) struct AskWebhooks {
    boundaries: Arc<Boundaries>,
    permit: Permit,
    /// By the authorities that they trust.
    clients: Mutex<BTreeMap<String, TenantClient>>,
}

impl AskWebhooks {
    /// Connects to no address outside of these boundaries, and sends for as long as `permit` holds.
    pub(crate) fn within(boundaries: Arc<Boundaries>, permit: Permit) -> Self {
        Self {
            boundaries,
            permit,
            clients: Mutex::default(),
        }
    }
}

#[async_trait]
impl RuleTransport for AskWebhooks {
    async fn ask(
        &self,
        whom: &RuleClientConfig,
        question: &RuleQuestion,
    ) -> Result<RuleAnswer, String> {
        let url = shown(&whom.url);
        let fail = |error: OutboundError| {
            tracing::debug!(%url, ?error, "a webhook of a rule has no answer");
            format!("{url}: {error}")
        };
        let client = self.client(&whom.ca_bundle).map_err(fail)?;
        let body = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        let answer = client.post(&whom.url, body).await.map_err(fail)?;
        let mut read: RuleAnswer = read(&url, &answer)?;
        shorten(&mut read.message);
        Ok(read)
    }

    async fn poll(&self, whom: &RulePoll, task_id: &str) -> Result<RulePollAnswer, String> {
        let url = shown(&whom.url);
        let fail = |error: OutboundError| format!("{url}: {error}");
        let client = self.client(&whom.ca_bundle).map_err(fail)?;
        let query = (whom.query_key(), task_id);
        let answer = client.get_with(&whom.url, query).await.map_err(fail)?;
        let mut read: RulePollAnswer = read(&url, &answer)?;
        shorten(&mut read.message);
        Ok(read)
    }
}

/// What an answer says.
fn read<T: DeserializeOwned>(url: &str, answer: &Answer) -> Result<T, String> {
    if !answer.status.is_success() {
        return Err(format!("{url} answered {}", answer.status));
    }
    let nothing = || format!("{url} answered no webhook response");
    // An array would be read as the members of the object, one after the other.
    if !answer.body.trim_ascii_start().starts_with(b"{") {
        return Err(nothing());
    }
    serde_json::from_slice(&answer.body).map_err(|_| nothing())
}

fn shorten(message: &mut String) {
    *message = shorten_to(std::mem::take(message), MAX_MESSAGE);
}

impl AskWebhooks {
    fn client(&self, ca_bundle: &str) -> Result<TenantClient, OutboundError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(ca_bundle) {
            return Ok(client.clone());
        }
        let client = client(&self.boundaries, ca_bundle, self.permit.clone())?;
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        clients.insert(ca_bundle.to_owned(), client.clone());
        Ok(client)
    }
}

/// A client that trusts these authorities and no others; those of the machine where there are none.
///
/// # Errors
/// What the bundle is instead.
pub(crate) fn client(
    boundaries: &Arc<Boundaries>,
    ca_bundle: &str,
    permit: Permit,
) -> Result<TenantClient, OutboundError> {
    let pem =
        match ca_bundle {
            "" | NOTHING => None,
            bundle => Some(BASE64_STANDARD.decode(bundle).map_err(|error| {
                OutboundError::BadTrust(format!("caBundle is no base64: {error}"))
            })?),
        };
    let trust = pem.as_deref().map_or(Trust::Machine, Trust::Pem);
    TenantClient::new(Arc::clone(boundaries), trust, Limits::default(), permit)
}

#[cfg(test)]
pub(crate) mod tests {
    use longshore_test::HttpAnswers;
    use serde_json::json;

    use super::*;

    /// The boundaries of a laptop, where webhooks are on loopback.
    pub(crate) fn of_a_laptop() -> Arc<Boundaries> {
        Arc::new(Boundaries::allowing(vec!["127.0.0.0/8".parse().unwrap()]))
    }

    async fn asked(url: String, ca_bundle: &str) -> Result<RuleAnswer, String> {
        asked_within(of_a_laptop(), url, ca_bundle).await
    }

    async fn asked_within(
        boundaries: Arc<Boundaries>,
        url: String,
        ca_bundle: &str,
    ) -> Result<RuleAnswer, String> {
        let whom = RuleClientConfig {
            url,
            ca_bundle: ca_bundle.to_owned(),
            poll: None,
        };
        let question = RuleQuestion {
            trace_id: "t".to_owned(),
            ..RuleQuestion::default()
        };
        let webhooks = AskWebhooks::within(boundaries, Permit::always());
        webhooks.ask(&whom, &question).await
    }

    #[tokio::test]
    async fn an_answer_is_read_and_everything_else_is_told() {
        let answers = HttpAnswers::start(|question| match question["traceId"].as_str() {
            Some("t") => (200, json!({"success": true, "finishedNames": ["a"]})),
            _ => (400, json!({})),
        });
        let answers = answers.await.unwrap();
        let answer = asked(answers.url(), NOTHING).await.unwrap();
        assert!(
            answer.success && answer.finished_names == ["a"],
            "{answer:?}"
        );
        let url = answers.url();
        answers.stop().await;
        let down = asked(url.clone(), "").await.unwrap_err();
        assert_eq!(down, format!("{url}: it is not reached"));
        let refuses = HttpAnswers::start(|_| (503, json!({}))).await.unwrap();
        let refused = asked(refuses.url(), "").await.unwrap_err();
        assert_eq!(
            refused,
            format!("{} answered 503 Service Unavailable", refuses.url())
        );
        for nonsense in [json!("s3cret"), json!([true]), json!([false, ["stg-0"]])] {
            let nonsense = HttpAnswers::start(move |_| (200, nonsense.clone()));
            let nonsense = nonsense.await.unwrap();
            let url = nonsense.url();
            let nonsense = asked(url.clone(), "").await.unwrap_err();
            assert_eq!(nonsense, format!("{url} answered no webhook response"));
        }
        let unset = json!({"success": true, "message": null, "taskId": null, "traceId": null});
        let unset = HttpAnswers::start(move |_| (200, unset.clone()))
            .await
            .unwrap();
        assert!(asked(unset.url(), "").await.unwrap().success);
    }

    #[tokio::test]
    async fn nobody_outside_of_the_boundaries_is_asked_and_no_answer_is_read_beyond_its_limit() {
        let answers = HttpAnswers::start(|_| (200, json!({"success": true})));
        let answers = answers.await.unwrap();
        let outside = asked_within(Arc::default(), answers.url(), "").await;
        let expected = format!("{}: its address is not allowed", answers.url());
        assert_eq!(outside.unwrap_err(), expected);
        assert!(answers.asked().is_empty());
        let large = |n: usize| json!({"success": false, "message": "x".repeat(n)});
        let bounded = HttpAnswers::start(move |_| (200, large(4096)))
            .await
            .unwrap();
        let cut = asked(bounded.url(), "").await.unwrap();
        assert_eq!(cut.message.len(), MAX_MESSAGE);
        assert!(cut.message.ends_with("x… (4096 bytes, shortened)"));
        let endless = HttpAnswers::start(move |_| (200, large(64 << 20)))
            .await
            .unwrap();
        let refused = asked(endless.url(), "").await.unwrap_err();
        assert!(
            refused.ends_with("its answer has more than 1048576 bytes"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_no_bundle_of_certificates_is_refused() {
        for (bundle, why) in [
            ("?", "caBundle is no base64: "),
            ("eA==", "failed to parse CABundle PEM, "),
        ] {
            let refused = client(&Arc::default(), bundle, Permit::always())
                .unwrap_err()
                .to_string();
            assert!(refused.starts_with(why), "{refused}");
        }
        let is_client = |bundle| client(&Arc::default(), bundle, Permit::always()).is_ok();
        assert!(is_client(NOTHING) && is_client(""));
    }
}
