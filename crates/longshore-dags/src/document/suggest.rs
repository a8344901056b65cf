//! "Did you mean …?"

use super::node::{shortened, shortened_to};

/// So many names are listed where none is close.
const LISTED: usize = 8;

/// What to write instead of an unknown word: the closest known one, else what there is.
pub(super) fn help(word: &str, known: &[&str], kind: &str) -> String {
    if let Some(close) = closest(word, known) {
        return format!("did you mean `{}`?", quoted(close));
    }
    if known.is_empty() {
        return format!("there are no {kind} here");
    }
    let names: Vec<String> = known
        .iter()
        .take(LISTED)
        .map(|name| format!("`{}`", quoted(name)))
        .collect();
    let more = known.len().saturating_sub(LISTED);
    if more > 0 {
        format!("{kind} here: {} and {more} more", names.join(", "))
    } else {
        format!("{kind} here: {}", names.join(", "))
    }
}

/// The known word within two edits, nearest first; a short word must share more than half of its letters.
pub(super) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (word.chars().count() / 2).min(2);
    known
        .iter()
        // Spares the quadratic comparison of words that cannot be near.
        .filter(|name| name.chars().count().abs_diff(word.chars().count()) <= most)
        .map(|name| (strsim::osa_distance(word, name), *name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

/// A user's word for a message: one line, not long.
pub(super) fn quoted(word: &str) -> String {
    shortened(word)
}

/// A message that may hold a user's text: one line, not endless.
pub(super) fn line(message: &str) -> String {
    shortened_to(message, 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_within_two_edits_is_suggested() {
        let known = ["retries", "retry_delay", "pool", "pool_slots", "a", "env"];
        for (word, expected) in [
            ("retires", Some("retries")),
            ("retry-delay", Some("retry_delay")),
            ("poll", Some("pool")),
            ("evn", Some("env")),
            ("retrials", Some("retries")),
            ("depends", None),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(closest(word, &known), expected, "for {word:?}");
        }
    }

    #[test]
    fn without_a_near_word_the_known_ones_are_listed() {
        assert_eq!(help("x", &["a", "b"], "tasks"), "tasks here: `a`, `b`");
        assert_eq!(help("x", &[], "tasks"), "there are no tasks here");
        let many: Vec<String> = (0..10).map(|n| format!("task{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(help("x", &many, "tasks").ends_with("`task7` and 2 more"));
    }
}
