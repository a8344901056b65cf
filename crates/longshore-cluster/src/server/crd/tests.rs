//! What one schema makes of one value, and which schemas are taken.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{columns::Column, schema::Schema, structural, violations};
use crate::server::error::Cause;

fn texts(causes: &[Cause]) -> Vec<String> {
    let text = |cause: &Cause| format!("{} {}: {}", cause.reason, cause.field, cause.message);
    causes.iter().map(text).collect()
}

/// The complaints about `{"x": value}` when `x` has this schema.
fn judge(schema: &Value, value: &Value) -> Vec<String> {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"x": schema}}));
    texts(&schema.violations(&json!({"x": value}), None))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_keyword_complains_in_the_words_of_upstream() {
    let invalid = "FieldValueInvalid x: Invalid value:";
    for (schema, value, complaints) in [
        (json!({"type": "integer"}), json!("a"), vec![
            "FieldValueTypeInvalid x: Invalid value: \"string\": x in body must be of type integer: \"string\"".to_owned(),
        ]),
        (json!({"type": "integer"}), json!(1.5), vec![
            "FieldValueTypeInvalid x: Invalid value: \"number\": x in body must be of type integer: \"number\"".to_owned(),
        ]),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (json!({"type": "integer", "format": "int32"}), json!(1_i64 << 40), vec![]),
        (json!({"type": "number"}), json!(1), vec![]),
        (json!({"type": "string"}), json!(null), vec![
            "FieldValueTypeInvalid x: Invalid value: \"null\": x in body must be of type string: \"null\"".to_owned(),
        ]),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"type": "array", "items": {"type": "string"}}), json!(["a", true]), vec![
            "FieldValueTypeInvalid x[1]: Invalid value: \"boolean\": x[1] in body must be of type string: \"boolean\"".to_owned(),
        ]),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"k": 1}), vec![
            "FieldValueTypeInvalid x.k: Invalid value: \"integer\": x.k in body must be of type string: \"integer\"".to_owned(),
        ]),
        (json!({"x-kubernetes-int-or-string": true}), json!(true), vec![
            "FieldValueTypeInvalid x: Invalid value: \"boolean\": x in body must be of type integer,string: \"boolean\"".to_owned(),
        ]),
        (json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), json!("50%"), vec![]),
        (json!({"type": "string", "enum": ["a", "b"]}), json!("c"), vec![
            "FieldValueNotSupported x: Unsupported value: \"c\": supported values: \"a\", \"b\"".to_owned(),
        ]),
        (json!({"type": "integer", "enum": [1, 2]}), json!(3), vec![
            "FieldValueNotSupported x: Unsupported value: 3: supported values: \"1\", \"2\"".to_owned(),
        ]),
        (json!({"type": "integer", "minimum": 1}), json!(0), vec![
            format!("{invalid} 0: x in body should be greater than or equal to 1"),
        ]),
        (json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}), json!(1), vec![
            format!("{invalid} 1: x in body should be greater than 1"),
        ]),
        (json!({"type": "number", "maximum": 1.5}), json!(2.5), vec![
            format!("{invalid} 2.5: x in body should be less than or equal to 1.5"),
        ]),
        (json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}), json!(5), vec![
            format!("{invalid} 5: x in body should be less than 5"),
        ]),
        (json!({"type": "integer", "multipleOf": 5}), json!(7), vec![
            format!("{invalid} 7: x in body should be a multiple of 5"),
        ]),
        (json!({"type": "string", "minLength": 2}), json!("ä"), vec![
            format!("{invalid} \"ä\": x in body should be at least 2 chars long"),
        ]),
        (json!({"type": "string", "maxLength": 2}), json!("abc"), vec![
            "FieldValueTooLong x: Too long: may not be more than 2 bytes".to_owned(),
        ]),
        (json!({"type": "string", "pattern": "^a+$"}), json!("b"), vec![
            format!("{invalid} \"b\": x in body should match '^a+$'"),
        ]),
        (json!({"type": "string", "format": "date-time"}), json!("noon"), vec![
            "FieldValueTypeInvalid x: Invalid value: \"noon\": x in body must be of type date-time: \"noon\"".to_owned(),
        ]),
        (json!({"type": "array", "items": {"type": "integer"}, "minItems": 2}), json!([1]), vec![
            format!("{invalid} 1: x in body should have at least 2 items"),
        ]),
        (json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}), json!([1, 2]), vec![
            "FieldValueTooMany x: Too many: 2: must have at most 1 item".to_owned(),
        ]),
        (json!({"type": "object", "minProperties": 1}), json!({}), vec![
            format!("{invalid} 0: x in body should have at least 1 properties"),
        ]),
        (json!({"type": "object", "maxProperties": 1, "x-kubernetes-preserve-unknown-fields": true}), json!({"a": 1, "b": 2}), vec![
            "FieldValueTooMany x: Too many: 2: must have at most 1 item".to_owned(),
        ]),
        (json!({"type": "object", "required": ["a", "b"]}), json!({"b": 1}), vec![
            "FieldValueRequired x.a: Required value".to_owned(),
        ]),
        (json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({}), vec![
            "FieldValueInvalid <nil>: Invalid value: \"\": \"x\" must validate at least one schema (anyOf)".to_owned(),
            "FieldValueRequired x.a: Required value".to_owned(),
        ]),
        (json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({}), vec![
            "FieldValueInvalid <nil>: Invalid value: \"\": \"x\" must validate one and only one schema (oneOf). Found none valid".to_owned(),
            "FieldValueRequired x.a: Required value".to_owned(),
        ]),
        (json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"a": 1, "b": 1}), vec![
            "FieldValueInvalid <nil>: Invalid value: \"\": \"x\" must validate one and only one schema (oneOf). Found 2 valid alternatives".to_owned(),
        ]),
        (json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 9}]}), json!(10), vec![
            format!("{invalid} 10: x in body should be less than or equal to 9"),
            "FieldValueInvalid <nil>: Invalid value: \"\": \"x\" must validate all the schemas (allOf)".to_owned(),
        ]),
        (json!({"type": "integer", "not": {"minimum": 5}}), json!(7), vec![
            "FieldValueInvalid <nil>: Invalid value: \"\": \"x\" must not validate the schema (not)".to_owned(),
        ]),
    ] {
        assert_eq!(judge(&schema, &value), complaints, "{schema} {value}");
    }
}

#[test]
fn sets_and_list_maps_have_no_item_twice() {
    let item = json!({"type": "object", "properties": {
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
    }});
    let schema = Schema::compile(&json!({"type": "object", "properties": {
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "ports": {"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"]},
    }}));
    let object = json!({
        "tags": ["a", "b", "a"],
        "ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}],
    });
    assert_eq!(
        texts(&schema.duplicates(&object)),
        [
            "FieldValueDuplicate ports[2]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
            "FieldValueDuplicate tags[2]: Duplicate value: \"a\"",
        ]
    );
}

#[test]
fn what_did_not_change_is_not_judged_again() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 2},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer", "minimum": 1}}}},
        "list": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    }}));
    let old = json!({"name": "long", "items": [{"id": "a", "n": 0}], "list": [0]});
    for (change, n_complaints) in [
        (
            json!({"name": "long", "items": [{"id": "a", "n": 0}, {"id": "b", "n": 1}], "list": [0]}),
            0,
        ),
        (
            json!({"name": "longer", "items": [{"id": "a", "n": 0}], "list": [0]}),
            1,
        ),
        (
            json!({"name": "long", "items": [{"id": "b", "n": 0}], "list": [0]}),
            1,
        ),
        // Items without keys are new ones in a changed list.
        (
            json!({"name": "long", "items": [{"id": "a", "n": 0}], "list": [0, 1]}),
            1,
        ),
    ] {
        assert_eq!(
            schema.violations(&change, Some(&old)).len(),
            n_complaints,
            "{change}"
        );
    }
}

/// A schema with everything that pruning and defaulting look at.
fn rich_schema() -> Schema {
    let leaf = json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "leaf"}, "n": {"type": "string", "nullable": true, "default": "d"},
        "c": {"type": "string"},
    }});
    Schema::compile(&json!({"type": "object", "properties": {
        "a": leaf,
        "b": {"type": "array", "items": leaf},
        "c": {"type": "object", "additionalProperties": leaf},
        "d": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": leaf}},
        "e": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"a": leaf}},
        "f": {"type": "object", "default": {"a": "whole"}, "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}}},
        "n": {"type": "object", "nullable": true, "properties": {"a": leaf}},
        "x": {"x-kubernetes-int-or-string": true},
        "y": {"type": "object", "additionalProperties": true},
    }}))
}

#[test]
fn unknown_members_go_and_are_named() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "metadata": {"name": "x", "color": "red"},
        "a": {"a": "1", "z": 1}, "b": [{"z": 1}, {"a": "1"}], "c": {"any": {"z": 1}},
        "d": {"z": {"deep": 1}, "a": {"z": 1}}, "e": {"kind": "E", "metadata": {"name": "e", "z": 1}, "z": 1},
        "x": 5, "y": {"any": {"thing": 1}, "text": "t"}, "z": 1,
    });
    let unknown = rich_schema().prune(&mut object);
    assert_eq!(
        unknown,
        [
            "a.z",
            "b[0].z",
            "c.any.z",
            "d.a.z",
            "e.metadata.z",
            "e.z",
            "metadata.color",
            "y.any.thing",
            "z",
        ]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "x"},
            "a": {"a": "1"}, "b": [{}, {"a": "1"}], "c": {"any": {}}, "d": {"z": {"deep": 1}, "a": {}},
            "e": {"kind": "E", "metadata": {"name": "e"}}, "x": 5, "y": {"any": {}, "text": "t"},
        })
    );
}

#[test]
fn defaults_stand_where_their_parent_does() {
    for (object, expected) in [
        (json!({}), json!({"f": {"a": "whole", "b": 1}})),
        (
            json!({"a": {}, "f": {}}),
            json!({"a": {"a": "leaf", "n": "d"}, "f": {"b": 1}}),
        ),
        // Null is a value where the schema says so, and counts as missing elsewhere.
        (
            json!({"a": {"a": null, "n": null, "c": null}, "f": {"b": 2}}),
            json!({"a": {"a": "leaf", "n": null}, "f": {"b": 2}}),
        ),
        (
            json!({"n": null, "d": null, "f": null}),
            json!({"n": null, "f": {"a": "whole", "b": 1}}),
        ),
        (
            json!({"b": [{}], "c": {"k": {"n": "x"}, "gone": null}, "f": {}}),
            json!({
                "b": [{"a": "leaf", "n": "d"}], "c": {"k": {"a": "leaf", "n": "x"}}, "f": {"b": 1},
            }),
        ),
    ] {
        let mut completed = object.clone();
        rich_schema().set_defaults(&mut completed);
        assert_eq!(completed, expected, "{object}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        let key = "a|b|c|d|e|f|n|x|y|z|kind|metadata|name";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|members| members
                .into_iter()
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_doing_it_once(object in any_value()) {
        let schema = rich_schema();
        let mut once = object;
        schema.prune(&mut once);
        schema.set_defaults(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        schema.set_defaults(&mut twice);
        prop_assert_eq!(&once, &twice);
        // Whatever it is, it can be judged.
        schema.violations(&twice, None);
        schema.duplicates(&twice);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn schemas_that_are_not_structural_are_refused() {
    let path = "v.schema.openAPIV3Schema";
    for (schema, complaints) in [
        (
            json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}),
            vec![],
        ),
        (
            json!({"properties": {}}),
            vec!["FieldValueRequired .type: Required value: must not be empty at the root"],
        ),
        (
            json!({"type": "string"}),
            vec!["FieldValueInvalid .type: Invalid value: \"string\": must be object at the root"],
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            vec![
                "FieldValueRequired .properties[a].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            vec!["FieldValueRequired .properties[a].items: Required value: must be specified"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
            vec![
                "FieldValueRequired .properties[a].items.type: Required value: must not be empty for specified array items",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}),
            vec![
                "FieldValueForbidden .properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
            vec![],
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"b": {"minimum": 1}}}]}),
            vec![
                "FieldValueRequired .properties[b]: Required value: because it is defined in v.schema.openAPIV3Schema.anyOf[0].properties[b]",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            vec![
                "FieldValueForbidden .properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}}}),
            vec![
                "FieldValueForbidden .properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
            vec![
                "FieldValueForbidden .properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            vec![
                "FieldValueTypeInvalid .properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "text"}}}),
            vec![
                "FieldValueNotSupported .properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
    ] {
        let found = structural::violations(&json!({"schema": {"openAPIV3Schema": schema}}), "v");
        let found: Vec<String> = texts(&found)
            .iter()
            .map(|it| it.replacen(&format!(" {path}."), " .", 1))
            .collect();
        assert_eq!(found, complaints, "{schema}");
    }
    let missing = structural::violations(&json!({}), "v");
    assert_eq!(
        texts(&missing),
        [format!(
            "FieldValueRequired {path}: Required value: schemas are required"
        )]
    );
}

#[test]
fn definitions_that_contradict_themselves_are_refused() {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = |name: &str, is_stored: bool| json!({"name": name, "served": true, "storage": is_stored, "schema": schema});
    let good = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [version("v1", true)],
        },
    });
    assert_eq!(violations(&good, None), []);
    for (pointer, value, complaint) in [
        (
            "/metadata/name",
            json!("x.example.com"),
            "metadata.name: Invalid value: \"x.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "/spec/scope",
            json!("Global"),
            "spec.scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/names/kind",
            json!(""),
            "spec.names.kind: Required value",
        ),
        (
            "/spec/names/listKind",
            json!("Gadget"),
            "spec.names.listKind: Invalid value: \"Gadget\": kind and listKind may not be the same",
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            "must have exactly one version marked as storage version",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "a", "type": "text", "jsonPath": ".a"}]),
            "spec.versions[0].additionalPrinterColumns[0].type: Unsupported value: \"text\": supported values: \"boolean\", \"date\", \"integer\", \"number\", \"string\"",
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}}),
            "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".status.n\": should be a json path under .spec",
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.x"}]),
            "must point to a field of type string, boolean or integer.",
        ),
    ] {
        let mut bad = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value;
        let found = violations(&bad, None);
        assert_eq!(found.len(), 1, "{pointer} {found:?}");
        let text = format!("{}: {}", found[0].field, found[0].message);
        assert!(text.contains(complaint), "{text}");
    }
    let mut moved = good.clone();
    moved["spec"]["group"] = "example.org".into();
    moved["metadata"]["name"] = "gadgets.example.org".into();
    let found = texts(&violations(&moved, Some(&good)));
    assert_eq!(
        found,
        ["FieldValueInvalid spec.group: Invalid value: \"example.org\": field is immutable"]
    );
}

#[test]
fn columns_show_what_is_of_their_type() {
    let object = json!({"spec": {"n": 3, "f": 1.9, "t": "x", "list": ["a", "b"]}, "on": true, "at": "2026-11-21T00:00:00Z"});
    for (kind, path, expected) in [
        ("integer", ".spec.n", json!(3)),
        ("integer", ".spec.f", json!(1)),
        ("integer", ".spec.t", json!(null)),
        ("number", ".spec.f", json!(1.9)),
        ("string", ".spec.n", json!("3")),
        ("string", ".spec.list[*]", json!("a b")),
        ("string", ".spec.none", json!(null)),
        ("boolean", ".on", json!(true)),
        ("date", ".at", json!("2026-11-21T00:00:00Z")),
    ] {
        let column = Column::read(&json!({"name": "c", "type": kind, "jsonPath": path})).unwrap();
        assert_eq!(
            (column.value_in(&object), column.kind.name()),
            (expected, kind),
            "{kind} {path}"
        );
    }
}
