//! Timetables as documents hold them.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{pointer::Place, serialized::record::Json};

fn read(encoded: Value) -> Timetable {
    Timetable::read(encoded, &Place::ROOT).unwrap()
}

fn encoded(class: &str, fields: Value) -> Value {
    json!({"__type": format!("airflow.timetables.{class}"), "__var": fields})
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn the_examples_have_their_timetables() {
    for (name, expected) in [
        ("t_once", "Once"),
        ("t_continuous", "Continuous"),
        ("t_daily", "CronTrigger"),
        ("t_cron_tz", "CronTrigger"),
        ("t_cron_interval", "CronDataInterval"),
        ("t_multicron", "MultipleCronTrigger"),
        ("t_delta", "DeltaTrigger"),
        ("t_delta_trigger", "DeltaTrigger"),
        ("t_asset_and", "AssetTriggered"),
        ("t_asset_or", "AssetTriggered"),
        ("zoo", "Null"),
    ] {
        let timetable = document(name).dag.settings.timetable.unwrap();
        let text = format!("{timetable:?}");
        assert!(text.starts_with(&format!("{expected}(")), "{name}: {text}");
        assert_eq!(timetable.to_json(), json(name)["dag"]["timetable"]);
    }
    let cron = document("t_cron_tz").dag.settings.timetable;
    let Some(Timetable::CronTrigger(cron)) = cron else {
        panic!("{cron:?}")
    };
    let zone = Zone::Name("Europe/Berlin".to_owned());
    assert_eq!(
        (cron.expression.as_str(), cron.timezone),
        ("30 2 * * 1-5", zone)
    );
    assert_eq!(cron.run_immediately, Some(RunImmediately::Flag(false)));
}

#[test]
fn every_form_is_written_as_it_was_read() {
    let cron = |more: Value| {
        let mut fields = json!({"expression": "@daily", "timezone": 3600, "interval": 0.0});
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        encoded("trigger.CronTriggerTimetable", fields)
    };
    let asset = json!({"__type": "asset_ref", "uri": "s3://a"});
    for value in [
        cron(json!({"run_immediately": true})),
        cron(json!({"run_immediately": 90.0})),
        cron(
            json!({"interval": {"months": 1, "weekday": [4, -1], "hour": 3}, "run_immediately": null}),
        ),
        encoded(
            "interval.DeltaDataIntervalTimetable",
            json!({"delta": {"years": 1, "leapdays": -1}}),
        ),
        encoded(
            "assets.AssetOrTimeSchedule",
            json!({"asset_condition": asset, "timetable": cron(json!({}))}),
        ),
        encoded(
            "simple.PartitionedAssetTimetable",
            json!({"asset_condition": asset}),
        ),
        json!({"__type": "my.plugin.Workdays", "__var": {"country": "FR"}}),
    ] {
        assert_eq!(read(value.clone()).to_json(), value);
    }
    let custom = read(json!({"__type": "my.plugin.Workdays", "__var": {}}));
    assert!(matches!(custom, Timetable::Other { class, .. } if class == "my.plugin.Workdays"));
    let both = read(encoded(
        "assets.AssetOrTimeSchedule",
        json!({"asset_condition": asset, "timetable": cron(json!({}))}),
    ));
    assert!(matches!(both.of_time(), Timetable::CronTrigger(_)));
    let custom = read(json!({"__type": "my.plugin.Workdays", "__var": {}}));
    assert_eq!(custom.of_time(), &custom);
}

fn events(restrict: bool) -> Events {
    let dates = [
        "2026-03-01T00:00:00+01:00",
        "2026-03-05T12:00:00",
        "2026-04-01T00:00:00.5+00:00",
    ];
    let value = encoded(
        "events.EventsTimetable",
        json!({"event_dates": dates, "restrict_to_events": restrict, "description": null, "_summary": "3 events"}),
    );
    let timetable = read(value.clone());
    assert_eq!(timetable.to_json(), value);
    let Timetable::Events(events) = timetable else {
        panic!("{timetable:?}")
    };
    events
}

#[test]
fn events_come_one_after_the_other() {
    let (first, second, third) = (
        time("2026-02-28T23:00:00Z"),
        time("2026-03-05T12:00:00Z"),
        time("2026-04-01T00:00:00.5Z"),
    );
    let (before, between) = (time("2026-01-01T00:00:00Z"), time("2026-03-02T00:00:00Z"));
    let events = events(false);
    for (last, earliest, latest, catchup, now, expected) in [
        (None, None, None, false, before, Some(first)),
        (None, None, None, false, between, Some(second)),
        (None, None, None, false, second, Some(second)),
        (None, None, None, true, between, Some(first)),
        (None, Some(between), None, true, before, Some(second)),
        (None, Some(third), None, false, before, Some(third)),
        (Some(first), None, None, true, before, Some(second)),
        (Some(first), None, None, false, third, Some(third)),
        (Some(second), None, Some(third), true, before, Some(third)),
        (Some(second), None, Some(between), true, before, None),
        (Some(third), None, None, true, before, None),
    ] {
        let next = events.next(last, earliest, latest, catchup, now);
        assert_eq!(
            next, expected,
            "{last:?} {earliest:?} {latest:?} {catchup} {now}"
        );
    }
}

#[test]
fn a_run_by_hand_may_be_restricted_to_events() {
    let (free, restricted) = (events(false), events(true));
    let first = time("2026-02-28T23:00:00Z");
    for (at, expected) in [
        (time("2026-01-01T00:00:00Z"), first),
        (first, first),
        (time("2026-03-02T00:00:00Z"), first),
        (time("2027-01-01T00:00:00Z"), time("2026-04-01T00:00:00.5Z")),
    ] {
        assert_eq!(free.manual(at), at);
        assert_eq!(restricted.manual(at), expected, "{at}");
    }
}
