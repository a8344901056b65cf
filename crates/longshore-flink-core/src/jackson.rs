//! JSON texts as Jackson writes them: upstream is a Java program, and its statuses hold specs as texts.

use std::io;

use serde::Serialize;
use serde_json::{
    Number,
    ser::{CharEscape, Formatter, Serializer},
};

use crate::conf::value::write_double;

/// Writes a value compactly.
pub(crate) fn to_text<T: Serialize>(value: &T) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Jackson);
    let written = value.serialize(&mut serializer);
    debug_assert!(written.is_ok(), "{written:?}");
    // Keys are texts and the writer is memory: nothing here can fail. What is written of UTF-8 is UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// A number as Java prints it.
pub(crate) fn number_text(number: &Number) -> String {
    if number.is_f64() {
        number.as_f64().map(write_double).unwrap_or_default()
    } else {
        number.to_string()
    }
}

struct Jackson;

impl Formatter for Jackson {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(write_double(value).as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let text: &[u8] = match escape {
            CharEscape::Quote => b"\\\"",
            CharEscape::ReverseSolidus => b"\\\\",
            CharEscape::Solidus => b"/",
            CharEscape::Backspace => b"\\b",
            CharEscape::FormFeed => b"\\f",
            CharEscape::LineFeed => b"\\n",
            CharEscape::CarriageReturn => b"\\r",
            CharEscape::Tab => b"\\t",
            // Jackson's hexadecimal digits are upper case, serde's are lower case.
            CharEscape::AsciiControl(byte) => {
                return writer.write_all(format!("\\u{byte:04X}").as_bytes());
            }
        };
        writer.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        for (text, expected) in [
            ("1", "1"),
            ("-1", "-1"),
            ("1.0", "1.0"),
            ("18446744073709551615", "18446744073709551615"),
            ("1e10", "1.0E10"),
            ("0.0001", "1.0E-4"),
        ] {
            let number: Number = serde_json::from_str(text).unwrap();
            assert_eq!(number_text(&number), expected);
            assert_eq!(to_text(&number), expected);
        }
    }

    #[test]
    fn texts_are_escaped_as_jackson_escapes_them() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1b}\u{7f}äß€😀";
        let expected = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001B\u{7f}äß€😀\"";
        assert_eq!(to_text(&text), expected);
    }
}
