//! Text of tasks, users and other servers for a terminal, without control characters that move the cursor or change the
//! title of the window.

/// The characters at which a terminal may begin a line.
const BREAKS: [char; 8] = [
    '\n', '\r', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
];

/// The text without control characters and escape sequences, except colours and tabs, and without controls of the
/// direction of text.
pub(crate) fn printable(text: &str) -> String {
    clean(text, is_color)
}

/// The text without control characters and escape sequences, except tabs, and without controls of the direction of text.
pub(crate) fn plain(text: &str) -> String {
    clean(text, |_| false)
}

/// The text for a single line: breaks and tabs become spaces, and colours are left out, because a
/// colour could hide the rest of the line.
pub(crate) fn one_line(text: &str) -> String {
    plain(&text.replace("\r\n", " ").replace(BREAKS, " "))
}

/// The text for several lines: each as [`one_line`] has it.
pub(crate) fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(line_of).collect();
    lines.join("\n")
}

/// One of several lines, which the ends of lines of other systems do not leave a space behind.
fn line_of(line: &str) -> String {
    one_line(line.strip_suffix('\r').unwrap_or(line))
}

/// Whether a character changes the direction of the text after it: then a person reads another order than the program
/// has written.
pub(crate) fn is_direction(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// The text without the sequences that move the cursor. `stays` says which escape sequences are kept.
fn clean(text: &str, stays: impl Fn(&str) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '\u{1b}' {
            let (sequence, after) = rest.split_at(escape_length(rest));
            if stays(sequence) {
                clean.push_str(sequence);
            }
            rest = after;
            continue;
        }
        if c == '\t' || !c.is_control() && !is_direction(c) {
            clean.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    clean
}

/// The bytes of the escape sequence that a text begins with.
fn escape_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        // Control sequence: parameters, then one final byte.
        Some((_, '[')) => chars
            .find(|(_, c)| !(' '..='?').contains(c))
            .map_or(text.len(), |(at, c)| at + c.len_utf8()),
        // Commands to the terminal: to the bell, or to the string terminator.
        Some((_, ']' | 'P' | '_' | '^' | 'X')) => {
            let bell = text.find('\u{7}').map(|at| at + 1);
            let terminator = text.find("\u{1b}\\").map(|at| at + 2);
            [bell, terminator]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(text.len())
        }
        Some((at, c)) => at + c.len_utf8(),
        None => text.len(),
    }
}

/// `ESC [ 1;31 m`.
fn is_color(sequence: &str) -> bool {
    sequence
        .strip_prefix("\u{1b}[")
        .and_then(|rest| rest.strip_suffix('m'))
        .is_some_and(|numbers| {
            numbers
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b';' || b == b':')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_everything_else_goes() {
        for (text, expected) in [
            ("plain ü\tx", "plain ü\tx"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m"),
            ("a\u{1b}[2Jb\u{1b}[10;10Hc", "abc"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}\\b", "ab"),
            ("a\u{1b}Pq\u{1b}\\b", "ab"),
            ("a\u{1b}cb", "ab"),
            ("a\rb\u{8}\u{9b}31mc\u{0}", "ab31mc"),
            ("end\u{1b}", "end"),
            ("end\u{1b}[", "end"),
            ("end\u{1b}]0;never ends", "end"),
            ("\u{1b}[?25lx", "x"),
            ("a\u{202e}b\u{2066}c\u{2069}\u{200f}d\u{61c}", "abcd"),
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
            let without_colours = expected
                .replace("\u{1b}[1;31m", "")
                .replace("\u{1b}[0m", "");
            assert_eq!(plain(text), without_colours, "{text:?}");
        }
    }

    #[test]
    fn a_text_of_one_line_begins_no_other_and_reads_in_the_order_of_its_characters() {
        for (text, expected) in [
            ("plain ü \u{5d0}", "plain ü \u{5d0}"),
            ("a\nnext: rm\r\nb\rc\td", "a next: rm b c d"),
            ("a\u{b}b\u{c}c\u{85}d\u{2028}e\u{2029}f", "a b c d e f"),
            ("a\u{1b}[8mb\u{1b}[0m\u{1b}[2Jc", "abc"),
        ] {
            assert_eq!(one_line(text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("", ""),
            ("a\n b\r\n\nc\n", "a\n b\n\nc\n"),
            (
                "a\rb\n\u{1b}[31mc\u{1b}]52;c;aGk=\u{7}\td\u{202e}",
                "a b\nc d",
            ),
            ("\u{1b}]0;a\nb\u{7}c", "\nbc"),
        ] {
            assert_eq!(lines(text), expected, "{text:?}");
        }
        let controls = ('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain(['\u{200e}', '\u{200f}', '\u{61c}']);
        for control in controls {
            let text = format!("a{control}b");
            assert_eq!(
                [one_line(&text), printable(&text)],
                ["ab", "ab"],
                "{text:?}"
            );
        }
    }
}
