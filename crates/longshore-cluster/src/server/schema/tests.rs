//! Fields of pods and deployments.

use serde_json::json;

use super::*;
use crate::server::{http::body::decode_json, registry::Registry};

fn check(plural: &str, validation: FieldValidation, text: &str) -> Result<Oddities> {
    let group = if plural == "deployments" { "apps" } else { "" };
    let resource = Registry::built_in(1).find(group, "v1", plural).unwrap();
    let object = decode_json(text.as_bytes())?;
    check_body(
        &resource.resource,
        validation,
        &object,
        Some(text.as_bytes()),
    )
}

#[test]
fn unknown_and_double_fields_are_named_with_their_paths() {
    for (text, expected) in [
        (
            r#"{"metadata": {"name": "a", "labels": {"any": "thing"}}}"#,
            "",
        ),
        (r#"{"spec": {"foo": 1}}"#, r#"unknown field "spec.foo""#),
        (
            r#"{"spec": {"containers": [{"name": "a"}, {"nme": "b"}]}}"#,
            r#"unknown field "spec.containers[1].nme""#,
        ),
        (
            r#"{"spec": {"nodeName": "a", "nodeName": "b"}, "x": {}}"#,
            r#"unknown field "x"; duplicate field "spec.nodeName""#,
        ),
        (r#"{"spec": {"nodeName": null}}"#, ""),
        (
            r#"{"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}"#,
            "",
        ),
        (
            r#"{"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 80}}}]}}"#,
            "",
        ),
    ] {
        let found = check("pods", FieldValidation::Warn, text).unwrap();
        assert_eq!(found.join("; "), expected, "{text}");
        assert!(
            check("pods", FieldValidation::Ignore, text)
                .unwrap()
                .is_empty()
        );
        let strict = check("pods", FieldValidation::Strict, text);
        assert_eq!(strict.is_ok(), expected.is_empty(), "{text}");
    }
}

#[test]
fn a_strict_refusal_says_what_upstream_says() {
    let error = check(
        "deployments",
        FieldValidation::Strict,
        r#"{"spec": {"foo": 1}}"#,
    )
    .unwrap_err();
    assert_eq!((error.code, &*error.reason), (400, "BadRequest"));
    assert_eq!(
        error.message,
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
         \"spec.foo\""
    );
}

#[test]
fn values_of_the_wrong_type_are_refused_however_one_asks() {
    for text in [
        r#"{"spec": {"replicas": "three"}}"#,
        r#"{"spec": {"replicas": 1.5}}"#,
        r#"{"spec": []}"#,
        r#"{"metadata": {"labels": {"a": 1}}}"#,
        r#"{"spec": {"paused": "yes"}}"#,
    ] {
        for validation in [FieldValidation::Ignore, FieldValidation::Strict] {
            let error = check("deployments", validation, text).unwrap_err();
            assert_eq!(error.code, 400, "{text}");
        }
    }
}

#[test]
fn a_patch_answers_only_for_fields_of_its_own() {
    let pods = Registry::built_in(1).find("", "v1", "pods").unwrap();
    let old = json!({"metadata": {"name": "a"}, "spec": {"old": 1}});
    let new = json!({"metadata": {"name": "a"}, "spec": {"old": 1, "new": 2}});
    let check =
        |validation, new: &Value| check_patched(&pods.resource, validation, &old, new, &json!({}));
    assert!(check(FieldValidation::Strict, &old).unwrap().is_empty());
    let warnings = check(FieldValidation::Warn, &new).unwrap();
    assert_eq!(warnings, ["unknown field \"spec.new\""]);
    assert_eq!(check(FieldValidation::Strict, &new).unwrap_err().code, 422);
}
