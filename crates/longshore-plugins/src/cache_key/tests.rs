use base64::prelude::BASE64_STANDARD;
use longshore_proto::flyteidl2::core::{
    Primitive, Scalar, TaskMetadata, TypedInterface, primitive, scalar,
};
use serde_json::Value;

use super::*;
use crate::fixtures::vectors;

fn vector(name: &str) -> Value {
    let vectors = vectors();
    let list = vectors["pbhash"].as_array().unwrap();
    list.iter().find(|it| it["name"] == name).unwrap().clone()
}

fn decoded<M: Message + Default>(name: &str) -> M {
    let encoded = vector(name)["protoBase64"].as_str().unwrap().to_owned();
    M::decode(BASE64_STANDARD.decode(encoded).unwrap().as_slice()).unwrap()
}

fn integer(number: i64) -> Literal {
    let value = primitive::Value::Integer(number);
    let primitive = Primitive { value: Some(value) };
    let scalar = Scalar {
        value: Some(scalar::Value::Primitive(primitive)),
    };
    Literal {
        value: Some(literal::Value::Scalar(Box::new(scalar))),
        ..Literal::default()
    }
}

fn template() -> TaskTemplate {
    TaskTemplate {
        id: Some(decoded("identifier")),
        interface: Some(TypedInterface {
            inputs: Some(decoded("variableMap")),
            outputs: None,
        }),
        ..TaskTemplate::default()
    }
}

#[test]
fn messages_have_upstreams_json_form_and_hash() {
    let vectors = vectors();
    for vector in vectors["pbhash"].as_array().unwrap() {
        let name = vector["name"].as_str().unwrap();
        let json = match vector["message"].as_str().unwrap() {
            "flyteidl2.core.Identifier" => to_json(&decoded::<Identifier>(name)),
            "flyteidl2.core.VariableMap" => to_json(&decoded::<VariableMap>(name)),
            "flyteidl2.core.LiteralMap" => to_json(&decoded::<LiteralMap>(name)),
            other => panic!("{other}"),
        }
        .unwrap();
        assert_eq!(json, vector["json"], "of {name}");
        let hash = object_hash::of(&json);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, vector["sha256hex"], "of {name}");
    }
}

#[test]
fn inputs_are_hashed_as_upstream_does() {
    let inputs: LiteralMap = decoded("literalMap");
    for vector in vectors()["hashLiteralMap"].as_array().unwrap() {
        let ignored: Vec<String> = serde_json::from_value::<Option<_>>(vector["ignore"].clone())
            .unwrap()
            .unwrap_or_default();
        let inputs = (vector["input"] != "nil").then_some(&inputs);
        assert_eq!(inputs_part(inputs, &ignored).unwrap(), vector["hash"]);
    }
}

#[test]
fn a_key_is_made_of_id_signature_inputs_and_version() {
    let inputs: LiteralMap = decoded("literalMap");
    let key = CacheKey::of(&template(), Some(&inputs), "v1").unwrap();
    let id = vectors()["hashIdentifierExceptVersion"].clone();
    let id = id.as_str().unwrap();
    let outputs = &BASE64_URL_SAFE_NO_PAD.encode(object_hash::of(&serde_json::json!({})))[..8];
    let literals = "_1YT5VZOZ-XILKrsssVZF6zUwpasgDn6i6MNacLL_kw";
    let key_text = format!("{id}-3Dm-yTLg-{outputs}-{literals}-v1");
    assert_eq!(key.key, key_text);
    assert_eq!((key.project.as_str(), key.domain.as_str()), ("p", "d"));
}

#[test]
fn ignored_inputs_and_those_that_are_not_declared_do_not_count() {
    let inputs: LiteralMap = decoded("literalMap");
    let mut cached = template();
    cached.metadata = Some(TaskMetadata {
        cache_ignore_input_vars: inputs.literals.keys().cloned().collect(),
        ..TaskMetadata::default()
    });
    let key = |template: &TaskTemplate, inputs| CacheKey::of(template, inputs, "").unwrap();
    assert_eq!(key(&cached, Some(&inputs)), key(&cached, None));
    assert_ne!(key(&template(), Some(&inputs)), key(&cached, None));
    cached = template();
    cached.interface = Some(TypedInterface::default());
    assert_eq!(key(&cached, Some(&inputs)), key(&cached, None));
}

#[test]
fn a_literal_that_says_its_hash_is_that_hash_wherever_it_is() {
    let hashed = |number| Literal {
        hash: "h".to_owned(),
        ..integer(number)
    };
    let map = |literal: Literal| LiteralMap {
        literals: [("k".to_owned(), literal)].into(),
    };
    let in_map = |literal| Literal {
        value: Some(literal::Value::Map(map(literal))),
        ..Literal::default()
    };
    let in_list = |literal| Literal {
        value: Some(literal::Value::Collection(LiteralCollection {
            literals: vec![literal],
        })),
        metadata: [("not".to_owned(), "counted".to_owned())].into(),
        ..Literal::default()
    };
    for wrap in [
        &hashed_itself as &dyn Fn(Literal) -> Literal,
        &in_map,
        &in_list,
    ] {
        let part = |literal| inputs_part(Some(&map(wrap(literal))), &[]).unwrap();
        assert_eq!(part(hashed(1)), part(hashed(2)));
        assert_ne!(part(integer(1)), part(integer(2)));
    }
    assert_eq!(by_hash(&in_list(integer(1))).metadata.len(), 0);
}

fn hashed_itself(literal: Literal) -> Literal {
    literal
}

#[test]
fn what_a_key_cannot_do_without_is_named() {
    let error = CacheKey::of(&TaskTemplate::default(), None, "").unwrap_err();
    assert!(error.to_string().contains("no id"), "{error}");
    let mut cached = template();
    cached.interface = None;
    let error = CacheKey::of(&cached, None, "").unwrap_err();
    assert!(error.to_string().contains("no interface"), "{error}");
}
