use std::collections::BTreeMap;

use flate2::read::GzDecoder;
use k8s_openapi::ByteString;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::server::registry::Registry;

/// One object both ways.
#[derive(Debug, Deserialize)]
struct Sample {
    #[serde(default)]
    command: String,
    protobuf: ByteString,
    json: Value,
}

fn filled() -> BTreeMap<String, Sample> {
    let bytes = include_bytes!("../../../testdata/protobuf/filled.json.gz");
    serde_json::from_reader(GzDecoder::new(&bytes[..])).unwrap()
}

fn recorded() -> Vec<Sample> {
    let text = include_str!("../../../testdata/protobuf/kubectl.json");
    serde_json::from_str(text).unwrap()
}

/// A body around an encoded object.
fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let envelope_type = [
        bytes_field(1, api_version.as_bytes()),
        bytes_field(2, kind.as_bytes()),
    ]
    .concat();
    [
        MAGIC.to_vec(),
        bytes_field(1, &envelope_type),
        bytes_field(2, object),
    ]
    .concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn bytes_field(number: u64, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    put(&mut field, number as u32, value);
    field
}

fn refused(body: &[u8]) -> String {
    let error = decode(body).unwrap_err();
    assert_eq!((error.code, &*error.reason), (400, "BadRequest"));
    error.message
}

#[test]
fn objects_with_every_field_are_what_go_makes_of_them() {
    for (kind, sample) in filled() {
        assert_eq!(decode(&sample.protobuf.0).unwrap(), sample.json, "{kind}");
        assert_eq!(encode(&sample.json), Some(sample.protobuf.0), "{kind}");
    }
}

#[test]
fn what_kubectl_sends_is_what_it_prints() {
    for Sample {
        command,
        protobuf,
        json,
    } in recorded()
    {
        let decoded = decode(&protobuf.0).unwrap();
        if !json.is_null() {
            assert_eq!(decoded, json, "{command}");
        }
    }
}

#[test]
fn every_built_in_kind_can_be_sent() {
    for served in Registry::built_in(1).all() {
        let resource = &served.resource;
        let place = Catalog::built_in().kind(&resource.api_version(), &resource.kind);
        assert!(place.is_some(), "{}", resource.qualified());
    }
}

#[test]
fn the_options_of_a_deletion_are_the_same_in_every_group() {
    let object = [varint(1 << 3), varint(0), bytes_field(4, b"Orphan")].concat();
    let options = decode(&body("batch/v1", "DeleteOptions", &object)).unwrap();
    let expected = json!({
        "apiVersion": "batch/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan",
    });
    assert_eq!(options, expected);
}

#[test]
fn bodies_that_are_none_are_refused_with_the_reason() {
    let pod = |object: &[u8]| body("v1", "Pod", object);
    for (what, body, expected) in [
        ("nothing", vec![], "expected it to begin with"),
        ("JSON", b"{}".to_vec(), "expected it to begin with"),
        ("no type", MAGIC.to_vec(), "expected apiVersion and kind"),
        (
            "unknown kind",
            body("v1", "Nothing", &[]),
            "no kind \"Nothing\" is registered for version \"v1\"",
        ),
        ("truncated", pod(&[0x0a]), "found the end"),
        (
            "a length without end",
            pod(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            "found the end",
        ),
        (
            "a length of 64 bits",
            pod(&[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ]),
            "found the end",
        ),
        (
            "a number of 77 bits",
            pod(&[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ]),
            "64 bits",
        ),
        ("field 0", pod(&[0x02, 0x00]), "expected a field number"),
        ("a group", pod(&[0x0b, 0x0c]), "expected a wire type"),
        (
            "a number for metadata",
            pod(&[0x08, 0x01]),
            "field metadata: expected bytes",
        ),
        (
            "no UTF-8",
            pod(&bytes_field(1, &bytes_field(1, &[0xff]))),
            "field metadata.name: expected UTF-8",
        ),
        (
            "a time far away",
            pod(&bytes_field(
                1,
                &bytes_field(8, &[vec![0x08], varint(u64::MAX >> 1)].concat()),
            )),
            "field metadata.creationTimestamp: expected a time",
        ),
        (
            "JSON that is none",
            body(
                "apps/v1",
                "ControllerRevision",
                &bytes_field(2, &bytes_field(1, b"{")),
            ),
            "field data: expected JSON",
        ),
    ] {
        let message = refused(&body);
        assert!(message.contains(expected), "{what}: {message}");
    }
}

/// A definition with this schema.
fn definition(schema: &[u8]) -> Vec<u8> {
    let version = [
        bytes_field(1, b"v1"),
        bytes_field(4, &bytes_field(1, schema)),
    ]
    .concat();
    let spec = bytes_field(7, &version);
    body(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &bytes_field(2, &spec),
    )
}

fn schema_of(definition: &Value) -> &Value {
    definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
}

/// An entry of `properties`, with the numbers of `generated.proto`.
fn property(name: &str, schema: &[Vec<u8>]) -> Vec<u8> {
    let entry = [
        bytes_field(1, name.as_bytes()),
        bytes_field(2, &schema.concat()),
    ];
    bytes_field(29, &entry.concat())
}

fn integer_field(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn double_field(number: u64, value: f64) -> Vec<u8> {
    [varint(number << 3 | 1), value.to_le_bytes().to_vec()].concat()
}

#[test]
fn schemas_of_definitions_keep_all_their_forms() {
    let text = bytes_field(5, b"string");
    let schema = [
        property("any", &[bytes_field(30, &integer_field(1, 1))]),
        property("none", &[bytes_field(30, &integer_field(1, 0))]),
        property(
            "typed",
            &[bytes_field(
                30,
                &[integer_field(1, 1), bytes_field(2, &text)].concat(),
            )],
        ),
        property("list", &[bytes_field(24, &bytes_field(1, &text))]),
        property(
            "tuple",
            &[bytes_field(24, &bytes_field(2, &text).repeat(2))],
        ),
        property("bounds", &[double_field(9, 1.5), double_field(11, -2.0)]),
        property(
            "values",
            &[
                bytes_field(8, &bytes_field(1, br#"{"x":[1]}"#)),
                bytes_field(20, &bytes_field(1, br#""a""#)),
                bytes_field(20, &[]),
            ],
        ),
        property("either", &[integer_field(40, 1)]),
        property(
            "ruled",
            &[
                bytes_field(44, &bytes_field(1, b"self > 0")),
                integer_field(38, 0),
            ],
        ),
        bytes_field(
            32,
            &[
                bytes_field(1, b"any"),
                bytes_field(2, &bytes_field(2, b"none")),
            ]
            .concat(),
        ),
    ];
    let decoded = decode(&definition(&schema.concat())).unwrap();
    let expected = json!({
        "dependencies": {"any": ["none"]},
        "properties": {
            "any": {"additionalProperties": true},
            "none": {"additionalProperties": false},
            "typed": {"additionalProperties": {"type": "string"}},
            "list": {"items": {"type": "string"}},
            "tuple": {"items": [{"type": "string"}, {"type": "string"}]},
            "bounds": {"maximum": 1.5, "minimum": -2},
            "values": {"default": {"x": [1]}, "enum": ["a", null]},
            "either": {"x-kubernetes-int-or-string": true},
            "ruled": {"x-kubernetes-preserve-unknown-fields": false, "x-kubernetes-validations": [{"rule": "self > 0"}]},
        },
    });
    assert_eq!(*schema_of(&decoded), expected);
    assert_eq!(decode(&encode(&decoded).unwrap()).unwrap(), decoded);
}

#[test]
fn a_large_definition_arrives_as_it_was_sent() {
    let text = include_str!("../../../testdata/crds/flinkdeployments.flink.apache.org-v1.yml");
    let sent: Value = serde_saphyr::from_str(text).unwrap();
    let arrived = decode(&encode(&sent).unwrap()).unwrap();
    assert_eq!(schema_of(&arrived), schema_of(&sent));
    assert_eq!(arrived["spec"]["names"], sent["spec"]["names"]);
}

#[test]
fn schemas_that_are_nested_too_deeply_are_refused() {
    let nested = |depth| {
        (0..depth).fold(bytes_field(5, b"string"), |inner, _| {
            bytes_field(28, &inner)
        })
    };
    let decoded = decode(&definition(&nested(50))).unwrap();
    assert!(schema_of(&decoded).pointer("/not/not").is_some());
    for (what, schema) in [
        ("schemas", nested(1000)),
        (
            "values",
            bytes_field(
                8,
                &bytes_field(1, &[vec![b'['; 118], vec![b']'; 118]].concat()),
            ),
        ),
    ] {
        let message = refused(&definition(&schema));
        assert!(
            message.contains("more than 120 levels"),
            "{what}: {message}"
        );
    }
}

#[test]
fn a_list_has_its_metadata_and_the_messages_of_its_items() {
    let all = filled();
    let sample = &all["v1 Pod"];
    let message = Envelope::read(&sample.protobuf.0).unwrap().object.to_vec();
    let list = json!({
        "kind": "PodList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "remainingItemCount": 2}, "items": [sample.json, sample.json],
    });
    let encoded = encode(&list).unwrap();
    let envelope = Envelope::read(&encoded).unwrap();
    assert_eq!((&*envelope.api_version, &*envelope.kind), ("v1", "PodList"));
    let metadata = [bytes_field(2, b"7"), integer_field(4, 2)].concat();
    let item = bytes_field(2, &message);
    let expected = [bytes_field(1, &metadata), item.clone(), item].concat();
    assert!(envelope.object == expected, "another list");
}

#[test]
fn an_event_of_a_watch_is_a_message_behind_its_length() {
    let all = filled();
    let sample = &all["v1 Pod"];
    let frame = watch_frame("ADDED", &sample.json).unwrap();
    let (length, message) = frame.split_at(4);
    assert_eq!(length, u32::try_from(message.len()).unwrap().to_be_bytes());
    let raw = bytes_field(1, &sample.protobuf.0);
    let expected = [bytes_field(1, b"ADDED"), bytes_field(2, &raw)].concat();
    assert!(message == expected, "another message");
}

#[test]
fn what_has_no_message_or_does_not_fit_is_left_to_json() {
    for kind in ["Table", "List", "APIGroupList"] {
        let other = json!({"kind": kind, "apiVersion": "v1", "items": []});
        assert_eq!(encode(&other), None, "{kind}");
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": "wrong", "extra": 1,
        "details": {"name": "a", "causes": [{"field": "spec"}]},
    });
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "details": {"name": "a", "causes": [{"field": "spec"}]},
    });
    assert_eq!(decode(&encode(&status).unwrap()).unwrap(), expected);
}

#[test]
fn few_bytes_cannot_become_much() {
    // A container of two bytes is an object of a hundred.
    let containers = bytes_field(2, &[]).repeat(1_000_000);
    let message = refused(&body("v1", "Pod", &bytes_field(2, &containers)));
    assert!(message.contains("more than 262144 fields"), "{message}");
    // Unknown fields are skipped, however deep they are nested.
    let nested = (0..100_000).fold(Vec::new(), |inner: Vec<u8>, _| {
        if inner.len() > 60_000 {
            inner
        } else {
            bytes_field(99, &inner)
        }
    });
    assert_eq!(decode(&body("v1", "Pod", &nested)).unwrap()["kind"], "Pod");
}

#[test]
fn lists_of_numbers_may_be_packed() {
    let groups = |encoded: Vec<u8>| {
        let pod = bytes_field(2, &bytes_field(14, &encoded));
        decode(&body("v1", "Pod", &pod)).unwrap()["spec"]["securityContext"]["supplementalGroups"]
            .clone()
    };
    let one_by_one = [varint(4 << 3), varint(7), varint(4 << 3), varint(300)].concat();
    let packed = bytes_field(4, &[varint(7), varint(300)].concat());
    assert_eq!(groups(one_by_one), json!([7, 300]));
    assert_eq!(groups(packed), json!([7, 300]));
}

#[test]
fn negative_numbers_and_zero_pointers_survive() {
    let scale = [
        bytes_field(1, &bytes_field(1, b"a")),
        bytes_field(2, &[vec![0x08], varint(u64::MAX)].concat()),
    ];
    let decoded = decode(&body("autoscaling/v1", "Scale", &scale.concat())).unwrap();
    assert_eq!(decoded["spec"], json!({"replicas": -1}));
    let deployment = bytes_field(2, &[0x08, 0x00]);
    let decoded = decode(&body("apps/v1", "Deployment", &deployment)).unwrap();
    assert_eq!(decoded["spec"]["replicas"], 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a stranger sends is answered.
    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode(&body("v1", "Pod", &bytes));
    }

    /// A good body with one byte changed, or cut short, is answered too.
    #[test]
    fn no_damage_is_too_subtle(at in any::<prop::sample::Index>(), byte in any::<u8>(), is_cut in any::<bool>()) {
        let samples = recorded();
        let mut damaged = samples[0].protobuf.0.clone();
        let at = at.index(damaged.len());
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] = byte;
        }
        let _ = decode(&damaged);
    }
}
