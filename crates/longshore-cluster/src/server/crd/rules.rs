//! Rules in CEL, which are kept and not enforced.

use serde_json::Value;

/// How many rules a schema has, in all of its parts.
pub(crate) fn n_rules(schema: &Value) -> usize {
    let rules = schema.get("x-kubernetes-validations");
    let own = rules.and_then(Value::as_array).map_or(0, Vec::len);
    own + parts(schema).map(n_rules).sum::<usize>()
}

/// The schemas in a schema that may have rules.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = ["items", "additionalProperties"].into_iter();
    let others = others.filter_map(|name| schema.get(name));
    properties
        .into_iter()
        .flat_map(|members| members.values())
        .chain(others)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_counted_wherever_a_schema_may_have_them() {
        let rules = json!([{"rule": "self.size() > 0"}]);
        let ruled = json!({"type": "string", "x-kubernetes-validations": rules});
        let schema = json!({
            "type": "object",
            "x-kubernetes-validations": [{"rule": "true"}, {"rule": "false"}],
            "properties": {
                "list": {"type": "array", "items": ruled},
                "map": {"type": "object", "additionalProperties": ruled},
                // A field of that name, and a default that looks like a rule.
                "x-kubernetes-validations": {"type": "array", "default": [ruled]},
                "open": {"type": "object", "additionalProperties": true},
            },
        });
        assert_eq!(n_rules(&schema), 4);
        assert_eq!(n_rules(&Value::Null), 0);
    }
}
