//! What an API server is configured by: other servers behind it, and the priorities of requests. Defaults are
//! upstream's.

use serde_json::{Value, json};

/// Completes an object of a kind.
pub(super) fn set_defaults(kind: &str, object: &mut Value) {
    match kind {
        "FlowSchema" => default(object, "/spec", &[("matchingPrecedence", 1000)]),
        "PriorityLevelConfiguration" => {
            let exempt = [("nominalConcurrencyShares", 0), ("lendablePercent", 0)];
            default(object, "/spec/exempt", &exempt);
            let limited = [("nominalConcurrencyShares", 30), ("lendablePercent", 0)];
            default(object, "/spec/limited", &limited);
            let queuing = [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)];
            default(object, "/spec/limited/limitResponse/queuing", &queuing);
        }
        _ => {}
    }
}

/// Sets numbers that are missing. Where 0 means nothing, it counts as missing; an amount of shares may be 0.
fn default(object: &mut Value, pointer: &str, defaults: &[(&str, i64)]) {
    let Some(Value::Object(members)) = object.pointer_mut(pointer) else {
        return;
    };
    for (key, number) in defaults {
        let is_missing = match members.get(*key) {
            None => true,
            Some(found) => found == &json!(0) && *key != "nominalConcurrencyShares",
        };
        if is_missing {
            members.insert((*key).to_owned(), json!(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_are_set() {
        let (schema, level) = ("FlowSchema", "PriorityLevelConfiguration");
        for (kind, spec, expected) in [
            (schema, json!({}), json!({"matchingPrecedence": 1000})),
            (
                schema,
                json!({"matchingPrecedence": 0}),
                json!({"matchingPrecedence": 1000}),
            ),
            (
                schema,
                json!({"matchingPrecedence": 7}),
                json!({"matchingPrecedence": 7}),
            ),
            (
                level,
                json!({"limited": {"nominalConcurrencyShares": 0}}),
                json!({"limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
            ),
            (
                level,
                json!({"exempt": {}}),
                json!({"exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
            ),
            (
                level,
                json!({"limited": {"limitResponse": {"queuing": {"queues": 1}}}}),
                json!({"limited": {
                    "nominalConcurrencyShares": 30, "lendablePercent": 0,
                    "limitResponse": {"queuing": {"queues": 1, "handSize": 8, "queueLengthLimit": 50}},
                }}),
            ),
            ("APIService", json!({}), json!({})),
        ] {
            let mut object = json!({"spec": spec});
            set_defaults(kind, &mut object);
            assert_eq!(object["spec"], expected, "{kind}");
        }
    }
}
