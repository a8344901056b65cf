//! Webhooks that deny, and webhooks that are out of order.

use std::time::Duration;

use serde_json::{Value, json};

use super::Court;
use crate::harness::{CONFIG_MAPS, config_map};

async fn refused(path: &str, members: Value) -> (u16, Value) {
    let court = Court::open();
    court.validate(path, members).await;
    court.api.post(CONFIG_MAPS, config_map("m", "1")).await
}

#[tokio::test]
async fn denials_are_passed_on_in_the_words_of_the_webhook() {
    let denied = "admission webhook \"one.example.com\" denied the request";
    for (path, code, reason, rest) in [
        ("/deny", 400, Value::Null, " without explanation"),
        ("/deny/message", 400, Value::Null, ": not today"),
        ("/deny/reason", 400, json!("NotToday"), ": NotToday"),
        ("/deny/403", 403, json!("Forbidden"), ": not yours"),
        ("/deny/200", 400, Value::Null, ": fine"),
        ("/deny/429", 429, json!("TooManyRequests"), ": busy"),
        ("/deny/422", 422, json!("Invalid"), ": look"),
    ] {
        let (found, status) = refused(path, json!({})).await;
        assert_eq!(found, code, "{path}");
        assert_eq!(status["message"], format!("{denied}{rest}"), "{path}");
        assert_eq!(
            (&status["reason"], &status["status"]),
            (&reason, &json!("Failure")),
            "{path}"
        );
    }
    let (_, status) = refused("/deny/429", json!({})).await;
    assert_eq!(status["details"]["retryAfterSeconds"], 5);
    let (_, status) = refused("/deny/422", json!({})).await;
    assert_eq!(status["details"]["causes"][0]["field"], "f");
}

#[tokio::test]
async fn answers_that_are_none_count_as_failures() {
    let failed = "Internal error occurred: failed calling webhook \"one.example.com\": ";
    for (path, rest) in [
        (
            "/other-uid",
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "/silent",
            "received invalid webhook response: webhook response was absent",
        ),
        (
            "/old",
            "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        ("/garbage", "failed to call webhook: "),
        (
            "/label/a/b",
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "/code/500",
            "failed to call webhook: an error on the server (\"out of order\") has prevented the request from succeeding",
        ),
        (
            "/code/404",
            "failed to call webhook: the server could not find the requested resource",
        ),
    ] {
        let (code, status) = refused(path, json!({})).await;
        let message = status["message"].as_str().unwrap();
        assert!(
            code == 500 && message.starts_with(&format!("{failed}{rest}")),
            "{path}: {message}"
        );
        assert_eq!(
            refused(path, json!({"failurePolicy": "Ignore"})).await.0,
            201,
            "{path}"
        );
    }
}

#[tokio::test]
async fn webhooks_that_do_not_answer_are_waited_for_as_long_as_they_asked() {
    let (code, status) = refused("/slow", json!({"timeoutSeconds": 1})).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(
        message.ends_with("/slow?timeout=1s\": context deadline exceeded"),
        "{message}"
    );
}

#[tokio::test]
async fn nothing_is_stored_for_a_client_that_goes_away_while_a_webhook_is_asked() {
    let court = Court::open();
    let members = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"});
    court.validate("/slow", members).await;
    let is_asked = async {
        while court.judge.asked("/slow").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = court.api.post(CONFIG_MAPS, config_map("left", "1")) => panic!("{answer:?}"),
        () = is_asked => {}
    }
    // Its webhook is given up after that of the first one would have been.
    let (code, _) = court.api.post(CONFIG_MAPS, config_map("stayed", "1")).await;
    assert_eq!(code, 201);
    let (code, _) = court.api.get(&format!("{CONFIG_MAPS}/left")).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn webhooks_that_nobody_serves_fail_as_they_are_told() {
    let nobody = |policy: &str| json!({"failurePolicy": policy, "clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": null}});
    let (code, status) = refused("/x", nobody("Fail")).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "Internal error occurred: failed calling webhook \"one.example.com\": failed to call webhook: Post \
         \"https://127.0.0.1:1/x?timeout=2s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert_eq!(refused("/x", nobody("Ignore")).await.0, 201);
}

#[tokio::test]
async fn webhooks_of_another_authority_are_not_believed() {
    let court = Court::open();
    let other = crate::judge::Judge::start();
    let client = json!({"clientConfig": {"caBundle": other.ca_bundle()}});
    court.validate("/allow", client).await;
    let (code, status) = court.api.post(CONFIG_MAPS, config_map("m", "1")).await;
    let message = status["message"].as_str().unwrap();
    assert!(
        code == 500 && message.contains("certificate"),
        "{code} {message}"
    );
    assert_eq!(court.judge.asked("/allow"), Vec::<Value>::new());
}

#[tokio::test]
async fn patches_that_do_not_fit_fail() {
    for (path, code) in [
        ("/patch/missing", 500),
        ("/patch/broken", 500),
        ("/patch/untyped", 500),
        ("/patch/unknown-type", 500),
        ("/patch/empty", 201),
    ] {
        let court = Court::open();
        court
            .mutate("a", vec![court.webhook("a.example.com", path, json!({}))])
            .await;
        let (found, status) = court.api.post(CONFIG_MAPS, config_map("m", "1")).await;
        assert_eq!(found, code, "{path}: {status}");
    }
}

#[tokio::test]
async fn the_webhook_decides_about_dry_runs_only_when_it_has_no_effects() {
    // New registrations must say so; older ones are believed.
    let court = Court::open();
    let webhook = court.webhook("a.example.com", "/allow", json!({"sideEffects": "Some"}));
    let configuration = json!({"metadata": {"name": "a"}, "webhooks": [webhook]});
    let (code, status) = court.api.post(super::VALIDATING, configuration).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\""
    );
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let court = Court::open();
    court.validate("/warn", json!({})).await;
    let body = config_map("m", "1").to_string().into();
    let answer = court
        .api
        .send(http::Method::POST, CONFIG_MAPS, "application/json", body)
        .await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["warning"], "299 - \"think twice\"");
}
