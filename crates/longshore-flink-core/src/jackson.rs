//! JSON texts as Jackson writes them: upstream is a Java program, and its statuses hold specs as texts.

use std::io;

use serde::Serialize;
use serde_json::Number;
use serde_json::ser::{CharEscape, Formatter, Serializer};

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
        number.as_f64().map(double_text).unwrap_or_default()
    } else {
        number.to_string()
    }
}

/// A double as Java prints it (`Double.toString`): with a point always, and with an exponent from 10⁷ up and below 10⁻³.
pub(crate) fn double_text(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    if !value.is_finite() {
        let name = if value.is_nan() { "NaN" } else { "Infinity" };
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{name}");
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => scientific,
    }
}

struct Jackson;

impl Formatter for Jackson {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(double_text(value).as_bytes())
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
    fn doubles_are_printed_as_java_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.5, "0.5"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (0.00012, "1.2E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1.25e10, "1.25E10"),
            (-2e20, "-2.0E20"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(double_text(value), expected);
        }
    }

    #[test]
    fn texts_are_escaped_as_jackson_escapes_them() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1b}\u{7f}äß€😀";
        let expected = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001B\u{7f}äß€😀\"";
        assert_eq!(to_text(&text), expected);
    }
}
