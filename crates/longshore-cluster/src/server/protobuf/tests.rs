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
    // Their Go types have no protobuf, or belong to other modules, whose clients send JSON.
    let without = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
    for served in Registry::built_in(1).all() {
        let resource = &served.resource;
        let is_known = Catalog::built_in()
            .kind(&resource.api_version(), &resource.kind)
            .is_some();
        assert_eq!(
            is_known,
            !without.contains(&&*resource.group),
            "{}",
            resource.qualified()
        );
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
