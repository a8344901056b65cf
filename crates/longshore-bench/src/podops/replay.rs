//! How long the webhooks take to answer: upstream's recorded requests, as an API server sends them. Deletes are dry runs,
//! so that what they would write is not in the figures.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Certificate, Client};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CONFIGURATIONS, MANY_CLIENTS, configurations};
use crate::{figures::Times, rig::Rig};

const RECORDED: &str = include_str!("../../../longshore-podops/testdata/pod-webhook-vectors.json");
/// How often each request is sent.
const ROUNDS: usize = 20;

/// A webhook at the address that its configuration names.
struct Webhook {
    client: Client,
    url: String,
}

/// The times of answers, with one client and with many; null where the webhooks are behind a Service, which only a pod of
/// the cluster reaches.
pub(super) async fn measure(rig: &Rig) -> Result<Value> {
    let mut found = Vec::new();
    for (kind, name) in CONFIGURATIONS {
        match Webhook::find(rig, kind, name).await? {
            Some(webhook) => found.push(Arc::new(webhook)),
            None => return Ok(Value::Null),
        }
    }
    let recorded: Vec<Value> = serde_json::from_str(RECORDED)?;
    let questions: Vec<(Arc<Webhook>, String)> = recorded
        .iter()
        .flat_map(|recorded| {
            let question = review(recorded).to_string();
            found
                .iter()
                .map(move |webhook| (Arc::clone(webhook), question.clone()))
        })
        .collect();
    // Connections are made by then.
    ask(&questions, MANY_CLIENTS, 1).await?;
    Ok(json!({
        "one_client": ask(&questions, 1, ROUNDS).await?.milliseconds(),
        "eight_clients": ask(&questions, MANY_CLIENTS, ROUNDS).await?.milliseconds(),
    }))
}

async fn ask(questions: &[(Arc<Webhook>, String)], clients: usize, rounds: usize) -> Result<Times> {
    let all = (0..rounds).flat_map(|_| questions.iter());
    let taken: Vec<Duration> = stream::iter(all)
        .map(|(webhook, question)| webhook.ask(question.clone()))
        .buffer_unordered(clients)
        .try_collect()
        .await?;
    let mut times = Times::default();
    taken.into_iter().for_each(|time| times.push(time));
    Ok(times)
}

impl Webhook {
    async fn find(rig: &Rig, kind: &str, name: &str) -> Result<Option<Self>> {
        let configuration = configurations(&rig.client, kind).get(name).await?;
        let told = &configuration.data["webhooks"][0]["clientConfig"];
        let (Some(url), Some(bundle)) = (told["url"].as_str(), told["caBundle"].as_str()) else {
            return Ok(None);
        };
        let bundle = BASE64_STANDARD.decode(bundle)?;
        let client = Client::builder().tls_certs_only(Certificate::from_pem_bundle(&bundle)?);
        Ok(Some(Self {
            client: client.build()?,
            url: format!("{url}?timeout=10s"),
        }))
    }

    /// Sends a request. Returns the time to its answer.
    async fn ask(&self, question: String) -> Result<Duration> {
        let asked_at = Instant::now();
        let answer = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .body(question)
            .send()
            .await
            .context("the webhook does not answer")?;
        let status = answer.status();
        answer.bytes().await?;
        let took = asked_at.elapsed();
        if !status.is_success() {
            bail!("expected an answer of {}, found {status}", self.url);
        }
        Ok(took)
    }
}

fn review(recorded: &Value) -> Value {
    let is_delete = recorded["operation"] == "DELETE";
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": recorded["name"],
            "operation": recorded["operation"],
            "dryRun": is_delete || recorded["dryRun"] == true,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": recorded["subResource"],
            "namespace": "default", "name": "p",
            "object": recorded["object"], "oldObject": recorded["oldObject"], "options": {},
        },
    })
}
