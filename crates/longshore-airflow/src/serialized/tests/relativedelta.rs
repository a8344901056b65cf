//! Lengths by the calendar are those of python-dateutil.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{pointer::Place, serialized::record::Json};

fn read(delta: Value) -> Relativedelta {
    Relativedelta::read(delta, &Place::ROOT).unwrap()
}

#[test]
fn times_are_those_of_dateutil() {
    let text = include_str!("../../../testdata/timetables/relativedelta.json");
    let recorded: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(recorded.len(), 220);
    for case in recorded {
        let time = |name: &str| -> Timestamp { case[name].as_str().unwrap().parse().unwrap() };
        let delta = read(case["delta"].clone());
        assert_eq!(delta.write(), case["delta"]);
        let found = (delta.after(time("from")), delta.before(time("from")));
        let expected = (Some(time("later")), Some(time("earlier")));
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn what_python_has_not_is_no_time() {
    let from: Timestamp = "2026-01-31T06:00:00Z".parse().unwrap();
    for delta in [
        json!({"years": 8000}),
        json!({"years": -2026}),
        json!({"month": 13}),
        json!({"day": -1}),
        json!({"hour": 24}),
        json!({"hour": 300}),
        json!({"microsecond": i64::MAX}),
        json!({"years": i64::MAX}),
        json!({"months": 1.5}),
        json!({"days": 1e300}),
        json!({"weekday": []}),
        json!({"weekday": [0, i64::MIN]}),
    ] {
        assert_eq!(read(delta.clone()).after(from), None, "{delta}");
    }
    assert_eq!(read(json!({})).after(from), Some(from));
}
