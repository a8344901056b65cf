use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::*;
use crate::fixtures::{sdk_action, vectors};

/// A state as `vectors.json` writes it down.
fn state_of(vector: &serde_json::Value) -> PluginState {
    let time = |field: &str| {
        let text = vector[field].as_str().unwrap();
        (!text.starts_with("0001-")).then(|| text.parse().unwrap())
    };
    let k8s = &vector["K8sPluginState"];
    let number = |value: &serde_json::Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    PluginState {
        launch: [Launch::NotStarted, Launch::Started][number(&vector["Phase"])],
        k8s: K8sState {
            phase: Phase::ALL[number(&k8s["Phase"])],
            version: u32::try_from(number(&k8s["PhaseVersion"])).unwrap(),
            reason: k8s["Reason"].as_str().unwrap().to_owned(),
        },
        last_event_created_at: time("LastEventUpdate"),
        last_event_recorded_at: time("LastEventRecordedAt"),
    }
}

fn golden() -> Vec<(Vec<u8>, PluginState)> {
    let vectors = vectors();
    let vectors = vectors["pluginStateGob"].as_array().unwrap();
    assert_eq!(vectors.len(), 3);
    vectors
        .iter()
        .map(|vector| {
            let bytes = STANDARD.decode(vector["gobBase64"].as_str().unwrap());
            (bytes.unwrap(), state_of(&vector["state"]))
        })
        .collect()
}

#[test]
fn states_are_encoded_and_decoded_as_the_peer_does() {
    for (bytes, state) in golden() {
        assert_eq!(PluginState::decode(&bytes).unwrap(), state);
        assert_eq!(state.encode(), bytes, "of {state:?}");
    }
}

#[test]
fn the_state_of_a_real_run_is_read() {
    let bytes = sdk_action()["status"]["pluginState"]
        .as_str()
        .map(|text| STANDARD.decode(text).unwrap())
        .unwrap();
    let state = PluginState::read(STATE_VERSION, &bytes).unwrap();
    assert_eq!(state.launch, Launch::Started);
    assert_eq!(state.k8s.phase, Phase::Success);
    assert_eq!(
        state.last_event_created_at,
        Some("2026-11-21T00:58:44Z".parse().unwrap())
    );
}

#[test]
fn no_state_is_a_new_one_and_another_version_is_nobodys() {
    assert_eq!(PluginState::read(0, &[]).unwrap(), PluginState::default());
    let bytes = PluginState::default().encode();
    let error = PluginState::read(2, &bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "plugin state version mismatch expected [1] got [2]"
    );
}

#[test]
fn fields_of_later_versions_are_ignored_and_ids_do_not_matter() {
    let mut bytes = gob::struct_type(
        90,
        "Renamed",
        &[
            ("New", Kind::String),
            ("K8sPluginState", Kind::Described(91)),
            ("Phase", Kind::Uint),
        ],
    );
    bytes.extend(gob::struct_type(
        91,
        "K",
        &[("Phase", Kind::Int), ("Newer", Kind::Int)],
    ));
    let mut value = Writer::value_of(90);
    value.bytes_field(1, b"new");
    value.struct_field(2, |k8s| {
        k8s.int_field(1, 5);
        k8s.int_field(2, -1);
    });
    value.uint_field(3, 1);
    value.end();
    bytes.extend(value.into_message());
    let state = PluginState::decode(&bytes).unwrap();
    assert_eq!(state.launch, Launch::Started);
    assert_eq!(state.k8s.phase, Phase::Running);
}

#[test]
fn versions_rise_with_news_and_never_fall() {
    let stored = K8sState {
        phase: Phase::Running,
        version: 4,
        reason: "same".to_owned(),
    };
    let info = |phase, version, reason: &str| PhaseInfo {
        version,
        ..PhaseInfo::of(phase, reason)
    };
    for (info, version) in [
        (info(Phase::Running, 0, "same"), 4),
        (info(Phase::Running, 4, "same"), 4),
        (info(Phase::Running, 0, "other"), 5),
        (info(Phase::Running, 7, "other"), 7),
        (info(Phase::Success, 0, "other"), 0),
    ] {
        assert_eq!(
            info.clone().ordered_after(&stored).version,
            version,
            "{info:?}"
        );
    }
    let long = "a".repeat(1000);
    let kept = K8sState {
        reason: longshore_core::text::shorten_to(long.as_str(), 100),
        ..stored.clone()
    };
    let again = info(Phase::Running, 0, &long).ordered_after(&kept);
    assert_eq!(again.version, 4, "it is stored in short");
    let reason = ReasonInfo {
        reason: "Pulled".to_owned(),
        occurred_at: Timestamp::UNIX_EPOCH,
    };
    let quiet = info(Phase::Running, 0, "same").ordered_after(&stored);
    assert_eq!(quiet.clone().with_reasons(vec![], &stored), quiet);
    let told = quiet.with_reasons(vec![reason.clone()], &stored);
    assert_eq!((told.version, told.reasons), (5, vec![reason]));
}

fn any_time() -> impl Strategy<Value = Option<Timestamp>> {
    let seconds = -377_705_023_201_i64..253_402_207_200;
    let time = (seconds, 0..1_000_000_000_i32)
        .prop_filter_map("not the zero time, which is none", |(seconds, nanos)| {
            Timestamp::new(seconds, nanos).ok()
        });
    proptest::option::of(time)
}

prop_compose! {
    fn any_state()(
        is_started: bool,
        phase in 0..Phase::ALL.len(),
        version: u32,
        reason: String,
        created in any_time(),
        recorded in any_time(),
    ) -> PluginState {
        PluginState {
            launch: if is_started { Launch::Started } else { Launch::NotStarted },
            k8s: K8sState { phase: Phase::ALL[phase], version, reason },
            last_event_created_at: created,
            last_event_recorded_at: recorded,
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(state in any_state()) {
        prop_assert_eq!(PluginState::decode(&state.encode()).unwrap(), state);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        drop(PluginState::decode(&bytes));
    }

    #[test]
    fn no_damage_makes_the_reader_panic(
        state in any_state(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = state.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        drop(PluginState::decode(&bytes));
    }
}
