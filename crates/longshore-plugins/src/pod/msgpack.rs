//! Values in MessagePack, printed as Go's `%v` prints them: how the SDK passes dataclasses and dictionaries.

use super::literal::float_to_text;

/// How deep values may nest: far beyond any input, and far from the end of the stack.
const MAX_DEPTH: usize = 64;

/// The text of a value; else why there is none.
pub(super) fn to_text(bytes: &[u8]) -> Result<String, String> {
    let mut reader = Reader { rest: bytes };
    reader
        .value(0)
        .ok_or_else(|| "it is no MessagePack, or holds what cannot be printed".to_owned())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// An unsigned number of so many bytes.
    fn number(&mut self, n_bytes: usize) -> Option<u64> {
        let bytes = self.take(n_bytes)?.iter();
        Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, n_bytes: usize) -> Option<usize> {
        usize::try_from(self.number(n_bytes)?).ok()
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let bytes = self.take(length)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn value(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let first = *self.take(1)?.first()?;
        match first {
            0x00..=0x7f => Some(first.to_string()),
            0xe0..=0xff => Some(first.cast_signed().to_string()),
            0x80..=0x8f => self.map(usize::from(first & 0x0f), depth),
            0x90..=0x9f => self.list(usize::from(first & 0x0f), depth),
            0xa0..=0xbf => self.text(usize::from(first & 0x1f)),
            0xc0 => Some("<nil>".to_owned()),
            0xc2 => Some("false".to_owned()),
            0xc3 => Some("true".to_owned()),
            0xc4..=0xc6 => {
                let length = self.length(1 << (first - 0xc4))?;
                let bytes = self.take(length)?.iter().map(u8::to_string);
                Some(format!("[{}]", bytes.collect::<Vec<_>>().join(" ")))
            }
            0xca => {
                let bits = u32::try_from(self.number(4)?).ok()?;
                // The shortest digits that mean this number in 32 bits.
                let number: f64 = f32::from_bits(bits).to_string().parse().ok()?;
                Some(float_to_text(number))
            }
            0xcb => Some(float_to_text(f64::from_bits(self.number(8)?))),
            0xcc..=0xcf => Some(self.number(1 << (first - 0xcc))?.to_string()),
            0xd0 => Some(
                u8::try_from(self.number(1)?)
                    .ok()?
                    .cast_signed()
                    .to_string(),
            ),
            0xd1 => Some(
                u16::try_from(self.number(2)?)
                    .ok()?
                    .cast_signed()
                    .to_string(),
            ),
            0xd2 => Some(
                u32::try_from(self.number(4)?)
                    .ok()?
                    .cast_signed()
                    .to_string(),
            ),
            0xd3 => Some(self.number(8)?.cast_signed().to_string()),
            0xd9..=0xdb => {
                let length = self.length(1 << (first - 0xd9))?;
                self.text(length)
            }
            0xdc | 0xdd => {
                let length = self.length(2 << (first - 0xdc))?;
                self.list(length, depth)
            }
            0xde | 0xdf => {
                let length = self.length(2 << (first - 0xde))?;
                self.map(length, depth)
            }
            // Extensions, whose meaning only the program knows, and the byte that MessagePack never uses.
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => None,
        }
    }

    fn list(&mut self, length: usize, depth: usize) -> Option<String> {
        let values: Option<Vec<String>> = (0..length).map(|_| self.value(depth + 1)).collect();
        Some(format!("[{}]", values?.join(" ")))
    }

    /// Go sorts by key.
    fn map(&mut self, length: usize, depth: usize) -> Option<String> {
        let pairs: Option<Vec<(String, String)>> = (0..length)
            .map(|_| Some((self.value(depth + 1)?, self.value(depth + 1)?)))
            .collect();
        let mut pairs = pairs?;
        pairs.sort();
        let texts: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{key}:{value}"))
            .collect();
        Some(format!("map[{}]", texts.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_go_does() {
        let cases: [(&[u8], &str); 20] = [
            (&[0x05], "5"),
            (&[0xff], "-1"),
            (&[0xcc, 200], "200"),
            (&[0xcd, 1, 0], "256"),
            (&[0xd0, 0x80], "-128"),
            (&[0xd1, 0xff, 0xfe], "-2"),
            (
                &[0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd],
                "-3",
            ),
            (&[0xc0], "<nil>"),
            (&[0xc2], "false"),
            (&[0xc3], "true"),
            (&[0xca, 0x3d, 0xcc, 0xcc, 0xcd], "0.1"),
            (&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], "1.5"),
            (&[0xa2, b'h', b'i'], "hi"),
            (&[0xd9, 1, b'x'], "x"),
            (&[0xc4, 2, 1, 2], "[1 2]"),
            (&[0x92, 1, 0xa1, b'a'], "[1 a]"),
            (&[0xdc, 0, 1, 0xc0], "[<nil>]"),
            (&[0x82, 0xa1, b'b', 1, 0xa1, b'a', 0x90], "map[a:[] b:1]"),
            (&[0xde, 0, 1, 0xa1, b'k', 0x80], "map[k:map[]]"),
            (&[0x90], "[]"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(to_text(bytes).unwrap(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let deep = vec![0x91; 100_000];
        for bytes in [
            &[][..],
            &[0xc1],
            &[0xa5, b'x'],
            &[0xd4, 0, 0],
            &[0x91],
            &deep,
        ] {
            assert!(to_text(bytes).is_err());
        }
        // A length beyond all bytes costs nothing.
        assert!(to_text(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
