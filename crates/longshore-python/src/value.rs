//! Bodies of frames as JSON and back.
//!
//! msgpack holds what JSON does not: timestamps, bytes, keys that are no texts. A timestamp becomes its RFC 3339 text,
//! in its shortest form, which Airflow reads back; the others are refused by name.

use jiff::Timestamp;
use rmpv::Value;
use serde_json::{Map, Number, Value as Json};
use thiserror::Error;

/// The extension of msgpack for timestamps.
const TIMESTAMP: i8 = -1;

/// A value that JSON, or msgpack, cannot hold. Its text never contains the value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConvertError {
    /// Bytes, which JSON has no form for.
    #[error("expected a value that JSON can hold, found bytes: encode them as a text")]
    Bytes,
    /// A text that is not UTF-8.
    #[error("expected a text in UTF-8, found other bytes")]
    NotUtf8,
    /// NaN or infinity.
    #[error("expected a finite number, found NaN or infinity")]
    NotFinite,
    /// A key of a map that is no text.
    #[error("expected the keys of a map to be texts, found another value")]
    Key,
    /// A key that a map has twice.
    #[error("expected every key of a map once, found one twice")]
    TwiceAKey,
    /// An extension that is no timestamp.
    #[error("expected no extension but timestamps (-1), found {0}")]
    Extension(i8),
    /// A timestamp in a form that msgpack does not define, or outside of the years 0 to 9999.
    #[error(
        "expected a timestamp of 4, 8 or 12 bytes within the years 0 to 9999, found {0} bytes that are none"
    )]
    Timestamp(usize),
    /// A JSON number that is neither `i64`, `u64` nor `f64`.
    #[error("expected a number that msgpack can hold, found one that it cannot")]
    Number,
}

/// A value of msgpack as JSON.
///
/// # Errors
///
/// Where JSON has no form for a part of the value.
pub fn to_json(value: &Value) -> Result<Json, ConvertError> {
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Boolean(is) => Json::Bool(*is),
        Value::Integer(integer) => match (integer.as_i64(), integer.as_u64()) {
            (Some(signed), _) => signed.into(),
            (None, Some(unsigned)) => unsigned.into(),
            (None, None) => return Err(ConvertError::Number),
        },
        Value::F32(float) => to_number(f64::from(*float))?,
        Value::F64(float) => to_number(*float)?,
        Value::String(text) => text.as_str().ok_or(ConvertError::NotUtf8)?.into(),
        Value::Binary(_) => return Err(ConvertError::Bytes),
        Value::Array(values) => Json::Array(values.iter().map(to_json).collect::<Result<_, _>>()?),
        Value::Map(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let key = key.as_str().ok_or(ConvertError::Key)?;
                if map.insert(key.to_owned(), to_json(value)?).is_some() {
                    return Err(ConvertError::TwiceAKey);
                }
            }
            Json::Object(map)
        }
        Value::Ext(TIMESTAMP, bytes) => to_timestamp(bytes)?.to_string().into(),
        Value::Ext(other, _) => return Err(ConvertError::Extension(*other)),
    })
}

fn to_number(float: f64) -> Result<Json, ConvertError> {
    Number::from_f64(float)
        .map(Json::Number)
        .ok_or(ConvertError::NotFinite)
}

/// The three forms of the timestamp extension (msgpack specification, "Timestamp extension type").
fn to_timestamp(bytes: &[u8]) -> Result<Timestamp, ConvertError> {
    let invalid = || ConvertError::Timestamp(bytes.len());
    let (seconds, nanoseconds) = if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        (i64::from(u32::from_be_bytes(four)), 0)
    } else if let Ok(eight) = <[u8; 8]>::try_from(bytes) {
        let both = u64::from_be_bytes(eight);
        let seconds = i64::try_from(both & ((1 << 34) - 1)).map_err(|_| invalid())?;
        (seconds, u32::try_from(both >> 34).map_err(|_| invalid())?)
    } else if let Some((nanoseconds, seconds)) = bytes.split_first_chunk::<4>() {
        let seconds = <[u8; 8]>::try_from(seconds).map_err(|_| invalid())?;
        (
            i64::from_be_bytes(seconds),
            u32::from_be_bytes(*nanoseconds),
        )
    } else {
        return Err(invalid());
    };
    if nanoseconds > 999_999_999 {
        return Err(invalid());
    }
    // Before 1970, jiff wants both parts with one sign, and `from_second` plus a duration does that.
    let at = Timestamp::from_second(seconds).map_err(|_| invalid())?;
    at.checked_add(std::time::Duration::from_nanos(nanoseconds.into()))
        .map_err(|_| invalid())
}

/// An instant as the timestamp extension, in its shortest form.
pub fn timestamp(at: Timestamp) -> Value {
    let nanoseconds = at.as_nanosecond().rem_euclid(1_000_000_000);
    let seconds = at.as_nanosecond().div_euclid(1_000_000_000);
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or_default();
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let bytes = match (u32::try_from(seconds), u64::try_from(seconds)) {
        (Ok(short), _) if nanoseconds == 0 => short.to_be_bytes().to_vec(),
        (_, Ok(seconds)) if seconds < 1 << 34 => (u64::from(nanoseconds) << 34 | seconds)
            .to_be_bytes()
            .to_vec(),
        (_, _) => [&nanoseconds.to_be_bytes()[..], &seconds.to_be_bytes()].concat(),
    };
    Value::Ext(TIMESTAMP, bytes)
}

/// JSON as a value of msgpack. Texts stay texts, also where they look like instants: use [`timestamp`] for those.
///
/// # Errors
///
/// [`ConvertError::Number`] for a number that msgpack cannot hold.
pub fn from_json(json: &Json) -> Result<Value, ConvertError> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(is) => Value::from(*is),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(unsigned), _, _) => Value::from(unsigned),
            (None, Some(signed), _) => Value::from(signed),
            (None, None, Some(float)) => Value::F64(float),
            (None, None, None) => return Err(ConvertError::Number),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => {
            Value::Array(values.iter().map(from_json).collect::<Result<_, _>>()?)
        }
        Json::Object(entries) => {
            let entry =
                |(key, value): (&String, &Json)| Ok((Value::from(key.as_str()), from_json(value)?));
            Value::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_survives() {
        let json =
            json!({"a": [null, true, -1, 0, 18_446_744_073_709_551_615_u64, 0.5, "ü"], "b": {}});
        assert_eq!(to_json(&from_json(&json).unwrap()).unwrap(), json);
    }

    #[test]
    fn what_json_cannot_hold_is_refused_by_name() {
        let twice = vec![
            (Value::from("k"), Value::Nil),
            (Value::from("k"), Value::Nil),
        ];
        for (value, expected) in [
            (Value::Binary(vec![1]), ConvertError::Bytes),
            (Value::F64(f64::NAN), ConvertError::NotFinite),
            (
                Value::Map(vec![(Value::from(1), Value::Nil)]),
                ConvertError::Key,
            ),
            (Value::Map(twice), ConvertError::TwiceAKey),
            (Value::Ext(5, vec![]), ConvertError::Extension(5)),
            (Value::Ext(-1, vec![0; 5]), ConvertError::Timestamp(5)),
            (Value::Ext(-1, vec![0xff; 8]), ConvertError::Timestamp(8)),
            (Value::Ext(-1, vec![0x7f; 12]), ConvertError::Timestamp(12)),
        ] {
            assert_eq!(to_json(&Value::Array(vec![value])), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn timestamps_survive(
            seconds in -377_705_023_200_i64..=253_402_207_199,
            nanoseconds in prop_oneof![Just(0), 0_i32..1_000_000_000],
        ) {
            let at = Timestamp::from_second(seconds).unwrap()
                + std::time::Duration::from_nanos(nanoseconds.unsigned_abs().into());
            prop_assert_eq!(to_json(&timestamp(at)).unwrap(), json!(at.to_string()));
        }
    }
}
