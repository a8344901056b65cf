//! Texts of foreign systems, kept short: an answer may have a text of any length, and an object has a limit of size.

/// The longest text of a foreign system that is kept, in bytes. The status of a TaskAction holds such a text up to five
/// times, and an API server stores no object beyond 1.5 MiB.
pub const MAX_TEXT: usize = 16 * 1024;

/// What stands in the place of the rest, around the length of the whole text.
const REST: (&str, &str) = ("… (", " bytes, shortened)");

/// A text of at most [`MAX_TEXT`] bytes: see [`shorten_to`].
pub fn shorten(text: impl Into<String>) -> String {
    shorten_to(text, MAX_TEXT)
}

/// A text of at most `max` bytes. Of a longer one the beginning is kept, up to a character's end, with the length of the
/// whole text: `beginning… (1048576 bytes, shortened)`. A text that was shortened before keeps the length that it names.
///
/// Where `max` has no room for the length, the length is all that is kept, and the result is longer than `max`.
pub fn shorten_to(text: impl Into<String>, max: usize) -> String {
    let text = text.into();
    if text.len() <= max {
        return text;
    }
    let (begin, end) = REST;
    let (kept, length) = parts(&text);
    let rest = format!("{begin}{length}{end}");
    let kept = &kept[..kept.floor_char_boundary(max.saturating_sub(rest.len()))];
    // Not a part of the long text's own memory.
    [kept, &rest].concat()
}

/// Whether `kept` is `text`, as it is or as [`shorten_to`] keeps it.
pub fn is_same(kept: &str, text: &str) -> bool {
    kept == text || kept.ends_with(REST.1) && shorten_to(text, kept.len()) == kept
}

/// The beginning that a text has of itself, and the length of the whole.
fn parts(text: &str) -> (&str, usize) {
    let shortened = text.strip_suffix(REST.1);
    let shortened = shortened.and_then(|text| text.rsplit_once(REST.0));
    let shortened = shortened.and_then(|(kept, length)| Some((kept, length.parse().ok()?)));
    shortened.unwrap_or((text, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_the_end_of_a_character_and_says_how_long_it_was() {
        let (a, o) = ("a".repeat(50), "ö".repeat(25));
        for (text, max, expected) in [
            ("", 0, ""),
            ("as long", 7, "as long"),
            (&a, 50, &a),
            (&a, 30, "aaaaa… (50 bytes, shortened)"),
            (&o, 31, "ööö… (50 bytes, shortened)"),
            (&o, 30, "öö… (50 bytes, shortened)"),
            (&a, 5, "… (50 bytes, shortened)"),
        ] {
            assert_eq!(shorten_to(text, max), expected, "{text} to {max}");
        }
        let short = shorten("a".repeat(1 << 20));
        assert_eq!(short.len(), MAX_TEXT);
        assert!(short.ends_with("a… (1048576 bytes, shortened)"), "{short}");
    }

    #[test]
    fn a_text_that_was_shortened_still_says_how_long_it_was_at_first() {
        let once = shorten_to("a".repeat(1 << 20), 100);
        assert_eq!(shorten_to(once.as_str(), 100), once);
        let quoted = format!("it failed: {once}");
        let twice = shorten_to(quoted, 100);
        assert_eq!(twice.len(), 100);
        assert!(twice.starts_with("it failed: aaa"), "{twice}");
        assert!(twice.ends_with("a… (1048576 bytes, shortened)"), "{twice}");
        assert!(!twice.contains(")…"), "{twice}");
        // Only a text that ends with a length was shortened.
        let own = format!("{} (… bytes, shortened)", "a".repeat(90));
        assert!(shorten_to(own, 60).ends_with("a… (113 bytes, shortened)"));
    }

    #[test]
    fn a_shortened_text_is_the_same_text() {
        let (long, other) = ("ab".repeat(500), "ba".repeat(500));
        for max in [40, 41, 500, 999, 1000] {
            let kept = shorten_to(long.as_str(), max);
            assert!(is_same(&kept, &long), "{max}");
            assert!(!is_same(&kept, &other), "{max}");
            assert!(!is_same(&kept, &format!("{long}a")), "{max}");
        }
        let multibyte = "ö".repeat(500);
        assert!(is_same(&shorten_to(multibyte.as_str(), 99), &multibyte));
        assert!(is_same("", ""));
        assert!(!is_same("", "a"));
    }
}
