//! Where in a document something is: a JSON pointer (RFC 6901).

use std::fmt;

/// A place in a JSON document, from its root: `/dag/tasks/3/__var/retries`. The document itself is the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(String);

impl Pointer {
    /// The pointer as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() {
            "the top"
        } else {
            &self.0
        })
    }
}

/// A place on the way down a document. It becomes a [`Pointer`] only where there is something to say.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

impl Place<'static> {
    /// The whole document.
    pub const ROOT: Self = Self {
        above: None,
        step: Step::Item(0),
    };
}

impl<'a> Place<'a> {
    /// The member of that name of the object that is here.
    #[must_use]
    pub fn member(&'a self, name: &'a str) -> Self {
        Self {
            above: Some(self),
            step: Step::Member(name),
        }
    }

    /// The item at that index, from 0, of the array that is here.
    #[must_use]
    pub fn item(&'a self, index: usize) -> Self {
        Self {
            above: Some(self),
            step: Step::Item(index),
        }
    }

    /// The way from the root.
    #[must_use]
    pub fn pointer(&self) -> Pointer {
        let Some(above) = self.above else {
            return Pointer::default();
        };
        let Pointer(mut text) = above.pointer();
        text.push('/');
        match self.step {
            Step::Member(name) => text.push_str(&name.replace('~', "~0").replace('/', "~1")),
            Step::Item(index) => text.push_str(&index.to_string()),
        }
        Pointer(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_its_member_again() {
        let document = serde_json::json!({"a/b": [{"~": 1}, {"": 2}]});
        let root = Place::ROOT;
        let list = root.member("a/b");
        let (first, second) = (list.item(0), list.item(1));
        for (place, text, expected) in [
            (first.member("~"), "/a~1b/0/~0", 1),
            (second.member(""), "/a~1b/1/", 2),
        ] {
            let pointer = place.pointer();
            assert_eq!(pointer.as_str(), text);
            assert_eq!(document.pointer(pointer.as_str()), Some(&expected.into()));
        }
        assert_eq!(document.pointer(root.pointer().as_str()), Some(&document));
        assert_eq!(root.pointer().to_string(), "the top");
    }
}
