//! What tasks and users wrote, without what would move the cursor or retitle the window of whoever reads it.

/// The text without control characters and escape sequences, except colours.
pub(super) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '\u{1b}' {
            let (sequence, after) = rest.split_at(escape_length(rest));
            if is_color(sequence) {
                clean.push_str(sequence);
            }
            rest = after;
            continue;
        }
        if !c.is_control() || c == '\t' {
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
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }
}
