//! Asks the webhooks of rules over HTTP.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_api::podops::{RuleAnswer, RuleClientConfig, RuleQuestion};
use longshore_core::error::chain;
use reqwest::{Certificate, Client, header::CONTENT_TYPE, redirect};

/// How long an answer may take, upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Authorities that clients are kept for; more than that is not at work, but left behind.
const KEPT_CLIENTS: usize = 16;
/// base64 of a line break, which some tools write for nothing.
const NOTHING: &str = "Cg==";

/// Asks webhooks, over connections that are kept.
#[derive(Debug, Default)]
pub(crate) struct AskWebhooks {
    /// By the authorities that they trust.
    clients: Mutex<BTreeMap<String, Client>>,
}

impl AskWebhooks {
    /// Sends a question.
    ///
    /// *Errors*: why there is no answer, as text for people.
    pub(crate) async fn ask(
        &self,
        whom: &RuleClientConfig,
        question: &RuleQuestion,
    ) -> Result<RuleAnswer, String> {
        let client = self.client(&whom.ca_bundle)?;
        let body = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        let request = client
            .post(&whom.url)
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body);
        let answer = request.send().await.map_err(|error| chain(&error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| chain(&error))?;
        if !status.is_success() {
            return Err(format!("{} answered {status}", whom.url));
        }
        serde_json::from_slice(&body)
            .map_err(|error| format!("{} answered no webhook response: {error}", whom.url))
    }

    fn client(&self, ca_bundle: &str) -> Result<Client, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(ca_bundle) {
            return Ok(client.clone());
        }
        let client = client(ca_bundle)?;
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        clients.insert(ca_bundle.to_owned(), client.clone());
        Ok(client)
    }
}

/// A client that trusts these authorities and no others; those of the machine where there are none.
///
/// *Errors*: what the bundle is instead.
pub(crate) fn client(ca_bundle: &str) -> Result<Client, String> {
    let builder = Client::builder().redirect(redirect::Policy::none());
    let builder = match ca_bundle {
        "" | NOTHING => builder,
        bundle => {
            let pem = BASE64_STANDARD.decode(bundle);
            let pem = pem.map_err(|error| format!("caBundle is no base64: {error}"))?;
            let certificates = Certificate::from_pem_bundle(&pem);
            let certificates = certificates
                .map_err(|error| format!("failed to parse CABundle PEM, {}", chain(&error)))?;
            if certificates.is_empty() {
                return Err("failed to parse CABundle PEM, it has no certificate".to_owned());
            }
            builder.tls_certs_only(certificates)
        }
    };
    builder
        .build()
        .map_err(|error| format!("failed to parse CABundle certificate, {}", chain(&error)))
}

#[cfg(test)]
mod tests {
    use longshore_test::HttpAnswers;
    use serde_json::json;

    use super::*;

    async fn asked(url: String, ca_bundle: &str) -> Result<RuleAnswer, String> {
        let whom = RuleClientConfig {
            url,
            ca_bundle: ca_bundle.to_owned(),
        };
        let question = RuleQuestion {
            trace_id: "t".to_owned(),
            ..RuleQuestion::default()
        };
        AskWebhooks::default().ask(&whom, &question).await
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
        assert!(down.contains(&url) && down.contains("refused"), "{down}");
        let refuses = HttpAnswers::start(|_| (503, json!({}))).await.unwrap();
        let refused = asked(refuses.url(), "").await.unwrap_err();
        assert_eq!(
            refused,
            format!("{} answered 503 Service Unavailable", refuses.url())
        );
        let nonsense = HttpAnswers::start(|_| (200, json!("x"))).await.unwrap();
        let nonsense = asked(nonsense.url(), "").await.unwrap_err();
        assert!(
            nonsense.contains("answered no webhook response"),
            "{nonsense}"
        );
    }

    #[test]
    fn what_is_no_bundle_of_certificates_is_refused() {
        for (bundle, why) in [
            ("?", "caBundle is no base64: "),
            ("eA==", "failed to parse CABundle PEM, "),
        ] {
            let refused = client(bundle).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
        assert!(client(NOTHING).is_ok() && client("").is_ok());
    }
}
