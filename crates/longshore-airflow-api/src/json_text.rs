//! A value of JSON as the text that it came as.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::de::{Error as _, IgnoredAny};
use serde_json::Value;

/// One value of JSON, as text. An XCom may have 50 MB: as a tree of values it would take ten times as much memory.
///
/// `Debug` does not show it: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

impl JsonText {
    /// Checks that a text is one value of JSON, without making it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let bytes = text.into();
        let text = std::str::from_utf8(&bytes).map_err(serde_json::Error::custom)?;
        serde_json::from_str::<IgnoredAny>(text)?;
        Ok(Self(bytes))
    }

    /// The body of a request that was checked when it was read. Nothing is null, as upstream has it.
    pub(crate) fn of_checked(body: Bytes) -> Self {
        if body.is_empty() {
            Self(Bytes::from_static(b"null"))
        } else {
            Self(body)
        }
    }

    /// A text that was checked when it was stored. It is shared, not copied.
    #[must_use]
    pub fn stored(text: Arc<str>) -> Self {
        Self(Bytes::from_owner(Stored(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The text in UTF-8, which is shared with this one.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

/// A text whose bytes others share.
struct Stored(Arc<str>);

impl AsRef<[u8]> for Stored {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "JsonText({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_kept_as_it_came_and_is_never_shown() {
        let text = " {\"b\": 1.0, \"a\": [1e999, \"hunter2\"]}";
        let read = JsonText::read(text).unwrap();
        assert_eq!(read.as_str(), text);
        assert_eq!(format!("{read:?}"), "JsonText(36 bytes)");
        for other in ["", "1 2", "[", "NaN", "{a: 1}"] {
            assert!(JsonText::read(other).is_err(), "{other}");
        }
        assert!(JsonText::read(&b"\"\xff\""[..]).is_err());
        assert_eq!(JsonText::of_checked(Bytes::new()).as_str(), "null");
        assert_eq!(JsonText::stored("[1]".into()).as_str(), "[1]");
        assert_eq!(JsonText::from(&json!({"a": [1]})).as_str(), "{\"a\":[1]}");
    }
}
