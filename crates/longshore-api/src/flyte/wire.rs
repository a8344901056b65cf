//! How upstream writes bytes and times.

/// Bytes as base64.
pub(super) mod base64 {
    use ::base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::flyte) fn serialize<S: Serializer>(
        bytes: &[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(in crate::flyte) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(&text)
            .map_err(|error| D::Error::custom(format!("expected base64: {error}")))
    }
}

/// Times by the second.
pub(super) mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};

    pub(in crate::flyte) fn serialize<S: Serializer>(
        at: &Timestamp,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Timestamp::from_second(at.as_second())
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }

    pub(in crate::flyte) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Timestamp, D::Error> {
        Timestamp::deserialize(deserializer)
    }
}

/// Times by the second, where there may be none.
pub(super) mod optional_time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::flyte) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::time::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::flyte) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(deserializer)
    }
}

/// Whether a field is left out, as Go's `omitempty` does.
pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
