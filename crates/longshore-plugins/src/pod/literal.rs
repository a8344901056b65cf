//! Inputs as texts, as Go prints them.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::{Literal, Primitive, Scalar, literal, primitive, scalar};

use super::msgpack;

/// Tag of binaries that hold MessagePack.
const MESSAGE_PACK: &str = "msgpack";

/// The text of a literal; else why there is none.
pub(super) fn to_text(literal: &Literal) -> Result<String, String> {
    match &literal.value {
        Some(literal::Value::Scalar(scalar)) => scalar_to_text(scalar),
        Some(literal::Value::Collection(collection)) => {
            let texts: Result<Vec<String>, String> =
                collection.literals.iter().map(to_text).collect();
            Ok(format!("[{}]", texts?.join(",")))
        }
        Some(literal::Value::Map(_)) => Err("it is a map".to_owned()),
        Some(literal::Value::OffloadedMetadata(_)) => Err("it is stored elsewhere".to_owned()),
        None => Err("it has no value".to_owned()),
    }
}

fn scalar_to_text(scalar: &Scalar) -> Result<String, String> {
    match &scalar.value {
        Some(scalar::Value::Primitive(primitive)) => primitive_to_text(primitive),
        Some(scalar::Value::Blob(blob)) => Ok(blob.uri.clone()),
        Some(scalar::Value::Schema(schema)) => Ok(schema.uri.clone()),
        Some(scalar::Value::Binary(binary)) if binary.tag == MESSAGE_PACK => {
            msgpack::to_text(&binary.value)
        }
        Some(scalar::Value::Binary(binary)) => Err(format!(
            "it is binary with the tag {:?}; {MESSAGE_PACK:?} can be put in",
            binary.tag
        )),
        Some(
            scalar::Value::NoneType(_)
            | scalar::Value::Error(_)
            | scalar::Value::Generic(_)
            | scalar::Value::StructuredDataset(_)
            | scalar::Value::Union(_),
        ) => Err("it is no simple value".to_owned()),
        None => Err("it has no value".to_owned()),
    }
}

fn primitive_to_text(primitive: &Primitive) -> Result<String, String> {
    match &primitive.value {
        Some(primitive::Value::Integer(number)) => Ok(number.to_string()),
        Some(primitive::Value::FloatValue(number)) => Ok(float_to_text(*number)),
        Some(primitive::Value::StringValue(text)) => Ok(text.clone()),
        Some(primitive::Value::Boolean(value)) => Ok(value.to_string()),
        Some(primitive::Value::Datetime(at)) => Timestamp::new(at.seconds, at.nanos)
            .map(|at| at.to_string())
            .map_err(|error| format!("it is no time: {error}")),
        Some(primitive::Value::Duration(duration)) => {
            // Protobuf's text format.
            let parts = [
                ("seconds", duration.seconds),
                ("nanos", i64::from(duration.nanos)),
            ];
            let parts: Vec<String> = parts
                .into_iter()
                .filter(|(_, number)| *number != 0)
                .map(|(unit, number)| format!("{unit}:{number}"))
                .collect();
            Ok(parts.join(" "))
        }
        None => Err("it has no value".to_owned()),
    }
}

/// Go's `%v`: the shortest digits, with an exponent of at least two digits below 1e-4 and from 1e21 on.
pub(super) fn float_to_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(-4..=20) | Err(_) => number.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_proto::flyteidl2::core::{Binary, Blob, LiteralCollection, LiteralMap};

    use super::*;

    fn of(value: literal::Value) -> Literal {
        Literal {
            value: Some(value),
            ..Literal::default()
        }
    }

    fn of_scalar(value: scalar::Value) -> Literal {
        of(literal::Value::Scalar(Box::new(Scalar {
            value: Some(value),
        })))
    }

    fn of_primitive(value: primitive::Value) -> Literal {
        of_scalar(scalar::Value::Primitive(Primitive { value: Some(value) }))
    }

    #[test]
    fn simple_values_are_printed_as_go_does() {
        use primitive::Value::{Boolean, Datetime, Duration, FloatValue, Integer, StringValue};
        let time = |seconds, nanos| Datetime(prost_types::Timestamp { seconds, nanos });
        let duration = |seconds, nanos| Duration(prost_types::Duration { seconds, nanos });
        for (value, expected) in [
            (Integer(-7), "-7"),
            (Boolean(true), "true"),
            (StringValue("a b".to_owned()), "a b"),
            (FloatValue(1.0), "1"),
            (FloatValue(0.1), "0.1"),
            (FloatValue(1e20), "100000000000000000000"),
            (FloatValue(1e21), "1e+21"),
            (FloatValue(-1.5e-7), "-1.5e-07"),
            (FloatValue(0.0001), "0.0001"),
            (FloatValue(f64::INFINITY), "+Inf"),
            (time(0, 0), "1970-01-01T00:00:00Z"),
            (time(1, 500_000_000), "1970-01-01T00:00:01.5Z"),
            (duration(90, 0), "seconds:90"),
            (duration(1, 2), "seconds:1 nanos:2"),
            (duration(0, 0), ""),
        ] {
            assert_eq!(
                to_text(&of_primitive(value.clone())).unwrap(),
                expected,
                "{value:?}"
            );
        }
    }

    #[test]
    fn lists_are_joined_and_files_are_their_address() {
        let file = of_scalar(scalar::Value::Blob(Blob {
            uri: "s3://b/f".to_owned(),
            ..Blob::default()
        }));
        let list = of(literal::Value::Collection(LiteralCollection {
            literals: vec![file, of_primitive(primitive::Value::Integer(1))],
        }));
        assert_eq!(to_text(&list).unwrap(), "[s3://b/f,1]");
        let packed = of_scalar(scalar::Value::Binary(Binary {
            value: vec![0x81, 0xa1, b'k', 1],
            tag: MESSAGE_PACK.to_owned(),
        }));
        assert_eq!(to_text(&packed).unwrap(), "map[k:1]");
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        for (literal, expected) in [
            (of(literal::Value::Map(LiteralMap::default())), "a map"),
            (Literal::default(), "no value"),
            (
                of_scalar(scalar::Value::Binary(Binary {
                    tag: "pickle".to_owned(),
                    ..Binary::default()
                })),
                "pickle",
            ),
        ] {
            let problem = to_text(&literal).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
