//! Where in a document something is: a JSON pointer (RFC 6901).

use std::fmt::{self, Write as _};

/// A place in a JSON document, from its root: `/dag/tasks/3/__var/retries`. The document itself is the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(String);

impl Pointer {
    /// The whole document.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The member of that name of the object that is here.
    #[must_use]
    pub fn member(&self, name: &str) -> Self {
        let mut pointer = self.0.clone();
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        Self(pointer)
    }

    /// The item at that place, from 0, of the array that is here.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        let mut pointer = self.0.clone();
        // Writing to a text cannot fail.
        let _ = write!(pointer, "/{index}");
        Self(pointer)
    }

    /// The pointer as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() { "/" } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_its_member_again() {
        let document = serde_json::json!({"a/b": [{"~": 1}, {"": 2}]});
        let list = Pointer::root().member("a/b");
        for (pointer, expected) in [(list.item(0).member("~"), 1), (list.item(1).member(""), 2)] {
            let found = document.pointer(pointer.as_str());
            assert_eq!(found, Some(&expected.into()), "{pointer}");
        }
        assert_eq!(document.pointer(Pointer::root().as_str()), Some(&document));
    }
}
