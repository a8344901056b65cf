//! RuntimeClasses: the handler is a name, and stays.

use serde_json::Value;

use crate::server::{error::Cause, meta, names::NameRule};

/// What is wrong with a RuntimeClass.
pub(super) fn violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let handler = meta::text(new, "/handler");
    if let Some(old) = old {
        let is_same = handler == meta::text(old, "/handler");
        let cause = || Cause::invalid("handler", &handler.into(), "field is immutable");
        return (!is_same).then(cause).into_iter().collect();
    }
    let complaints = NameRule::Label.violations(handler);
    let mut causes: Vec<Cause> = complaints
        .iter()
        .map(|why| Cause::invalid("handler", &handler.into(), why))
        .collect();
    let selector = new.pointer("/scheduling/nodeSelector");
    for (key, value) in selector.and_then(Value::as_object).into_iter().flatten() {
        causes.extend(meta::label_violations(
            "scheduling.nodeSelector",
            key,
            value,
        ));
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_handler_is_a_label_and_stays() {
        let class = |handler: &str| json!({"handler": handler});
        for (new, old, expected) in [
            (class("runc"), None, ""),
            (class(""), None, "a lowercase RFC 1123 label must"),
            (class("A"), None, "a lowercase RFC 1123 label must"),
            (json!({}), None, "a lowercase RFC 1123 label must"),
            (class("runc"), Some(class("runc")), ""),
            (class("kata"), Some(class("runc")), "field is immutable"),
        ] {
            let causes = violations(&new, old.as_ref());
            let told: String = causes.iter().map(|it| it.message.as_str()).collect();
            assert!(told.contains(expected), "{new} {old:?}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "{new} {old:?}");
            assert!(causes.iter().all(|it| it.field == "handler"), "{new}");
        }
        let selecting = json!({"handler": "a", "scheduling": {"nodeSelector": {"-a": "b"}}});
        assert_eq!(
            violations(&selecting, None)[0].field,
            "scheduling.nodeSelector"
        );
    }
}
