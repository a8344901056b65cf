//! Messages that each retry repeats, and that are worth one line of the log until they change.

use std::{collections::HashMap, hash::Hash};

/// The last message about each key.
///
/// What is refused is tried again for as long as it exists, and refused in the same words each time. The log has one line
/// of it, and one more for each other message; everything else belongs to DEBUG.
#[derive(Debug)]
pub struct Repeated<K>(HashMap<K, String>);

impl<K> Default for Repeated<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Repeated<K> {
    /// Whether the last message about this key was another one, or there was none.
    pub fn is_new(&mut self, key: K, message: &str) -> bool {
        if self.0.get(&key).is_some_and(|last| last == message) {
            return false;
        }
        self.0.insert(key, message.to_owned());
        true
    }

    /// Nothing is wrong any more: the same message is logged again when it returns.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_new_until_it_is_repeated_and_after_it_was_forgotten() {
        let mut said = Repeated::default();
        let new = [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")]
            .map(|(key, message)| said.is_new(key, message));
        assert_eq!(new, [true, false, true, true, true]);
        said.forget(&"a");
        assert!(said.is_new("a", "x") && !said.is_new("b", "x"));
    }
}
