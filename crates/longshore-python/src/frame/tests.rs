use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::value;

const MAX: usize = 1 << 20;

/// The recorded frames: name, bytes, the same frame as JSON.
fn recorded() -> Vec<(String, Vec<u8>, Json)> {
    let file: Vec<Json> = serde_json::from_str(include_str!("../../testdata/frames.json")).unwrap();
    let read = |frame: &Json| {
        let hex = frame["hex"].as_str().unwrap();
        let bytes = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let name = frame["name"].as_str().unwrap().to_owned();
        (name, bytes, frame["json"].clone())
    };
    file.iter().map(read).collect()
}

fn all(decoder: &mut Decoder) -> Vec<Frame> {
    std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
}

#[test]
fn recorded_frames_are_read_and_written_again_byte_for_byte() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 14);
    for (name, bytes, _) in recorded {
        let mut decoder = Decoder::new(MAX);
        decoder.push(&bytes);
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!(decoder.finish(), Ok(()), "{name}");
        assert_eq!(frame.encode(MAX).unwrap(), bytes, "{name}");
    }
}

#[test]
fn recorded_frames_say_what_the_recording_says() {
    for (name, bytes, json) in recorded() {
        let mut decoder = Decoder::new(MAX);
        decoder.push(&bytes);
        let frame = decoder.next_frame().unwrap().unwrap();
        let json = json.as_array().unwrap();
        assert_eq!(Some(frame.id), json[0].as_u64(), "{name}");
        assert_eq!(value::to_json(&frame.body).unwrap(), json[1], "{name}");
        let third = frame.third().map(|v| value::to_json(v).unwrap());
        let recorded = json.get(2).filter(|v| !v.is_null());
        assert_eq!(third.as_ref(), recorded, "{name}");
        assert_eq!(frame.kind(), json[1]["type"].as_str(), "{name}");
    }
}

/// The frames of the exchanges are the ones whose bytes are recorded.
#[test]
fn every_frame_of_the_recorded_exchanges_has_its_bytes() {
    let exchanges: Json =
        serde_json::from_str(include_str!("../../testdata/exchanges.json")).unwrap();
    let mut frames = vec![
        exchanges["dag_parse"]["send"][0].clone(),
        exchanges["dag_parse"]["recv"][0].clone(),
    ];
    for step in exchanges["trigger_runner"]["exchange"].as_array().unwrap() {
        frames.extend(
            step.as_object()
                .unwrap()
                .values()
                .filter(|v| v.is_array())
                .cloned(),
        );
    }
    assert_eq!(frames.len(), 6);
    let strip = |json: &Json| json.to_string().replace(" (msgpack timestamp)", "");
    let known: Vec<String> = recorded().iter().map(|(_, _, json)| strip(json)).collect();
    for frame in frames {
        assert!(known.contains(&strip(&frame)), "{frame}");
    }
}

#[test]
fn bytes_that_are_no_frame_are_refused_by_name() {
    let cases: [(&[u8], FrameError); 8] = [
        (b"\0\0\0\x01\xc0", FrameError::NotAnArray("nil")),
        (b"\0\0\0\x02\x91\x00", FrameError::TooShort(1)),
        (
            b"\0\0\0\x03\x92\xff\xc0",
            FrameError::Id("a negative integer"),
        ),
        (b"\0\0\0\x04\x92\xa1x\xc0", FrameError::Id("a string")),
        (b"\0\0\0\x04\x92\x00\xc0\xc0", FrameError::Trailing(1)),
        (
            b"Tracebac",
            FrameError::TooLarge {
                found: 0x5472_6163,
                max: MAX,
            },
        ),
        (
            b"\0\x10\0\x01",
            FrameError::TooLarge {
                found: MAX + 1,
                max: MAX,
            },
        ),
        (b"\0\0\0\0", FrameError::NotMsgpack(String::new())),
    ];
    for (bytes, expected) in cases {
        let mut decoder = Decoder::new(MAX);
        decoder.push(bytes);
        let found = decoder.next_frame().unwrap_err();
        match (&found, &expected) {
            (FrameError::NotMsgpack(_), FrameError::NotMsgpack(_)) => {}
            (found, expected) => assert_eq!(found, expected, "{bytes:?}"),
        }
    }
}

#[test]
fn nesting_without_end_and_lengths_that_lie_are_refused() {
    let deep = vec![0x91; 100_000];
    let long_array = b"\x92\x00\xdd\xff\xff\xff\xff\xc0".to_vec();
    let long_text = b"\x92\x00\xdb\xff\xff\xff\xffx".to_vec();
    for body in [deep, long_array, long_text] {
        let mut decoder = Decoder::new(MAX);
        decoder.push(&u32::try_from(body.len()).unwrap().to_be_bytes());
        decoder.push(&body);
        let refused = decoder.next_frame().unwrap_err();
        assert!(matches!(refused, FrameError::NotMsgpack(_)), "{refused}");
    }
}

#[test]
fn the_limit_is_exact_when_read_and_when_written() {
    let frame = Frame::new(0, Value::from("x".repeat(100)));
    let bytes = frame.encode(MAX).unwrap();
    let length = bytes.len() - PREFIX;
    assert_eq!(frame.encode(length).as_ref(), Ok(&bytes));
    assert_eq!(
        frame.encode(length - 1),
        Err(FrameError::TooLarge {
            found: length,
            max: length - 1
        })
    );
    let mut exact = Decoder::new(length);
    exact.push(&bytes);
    assert_eq!(exact.next_frame(), Ok(Some(frame)));
    let mut smaller = Decoder::new(length - 1);
    smaller.push(&bytes[..PREFIX]);
    assert!(smaller.next_frame().is_err(), "by the prefix alone");
}

#[test]
fn the_end_of_the_stream_inside_a_frame_is_noticed() {
    let bytes = Frame::new(7, Value::from("text")).encode(MAX).unwrap();
    for cut in 0..=bytes.len() {
        let mut decoder = Decoder::new(MAX);
        decoder.push(&bytes[..cut]);
        let is_whole = decoder.next_frame().unwrap().is_some();
        assert_eq!(is_whole, cut == bytes.len());
        assert_eq!(decoder.finish().is_ok(), cut == 0 || is_whole, "{cut}");
    }
}

fn a_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::F64),
        ".{0,40}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::from),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(tag, data)| Value::Ext(tag, data)),
    ];
    leaf.prop_recursive(3, 30, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner), 0..6).prop_map(Value::Map),
        ]
    })
}

fn a_frame() -> impl Strategy<Value = Frame> {
    let rest = prop::collection::vec(a_value(), 0..3);
    (any::<u64>(), a_value(), rest).prop_map(|(id, body, rest)| Frame { id, body, rest })
}

proptest! {
    #[test]
    fn frames_survive_every_cut_of_the_stream(
        frames in prop::collection::vec(a_frame(), 0..6),
        cuts in prop::collection::vec(1_usize..40, 1..40),
    ) {
        let stream: Vec<u8> = frames.iter().flat_map(|f| f.encode(MAX).unwrap()).collect();
        let mut decoder = Decoder::new(MAX);
        let mut read = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(*cut));
            decoder.push(now);
            read.append(&mut all(&mut decoder));
            rest = later;
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert_eq!(&read, &frames);
        let again: Vec<u8> = read.iter().flat_map(|f| f.encode(MAX).unwrap()).collect();
        prop_assert_eq!(again, stream);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new(64);
        decoder.push(&bytes);
        while let Ok(Some(_)) = decoder.next_frame() {}
        let mut framed = Decoder::new(MAX);
        framed.push(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
        framed.push(&bytes);
        drop(framed.next_frame());
    }
}
