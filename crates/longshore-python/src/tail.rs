//! The last part of what a process prints.

/// The last bytes of a stream, and how many were before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    max: usize,
    bytes: Vec<u8>,
    n_dropped: u64,
}

impl Tail {
    /// Keeps at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            bytes: Vec::new(),
            n_dropped: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(self.max);
        self.bytes.drain(..excess);
        self.n_dropped += u64::try_from(excess).unwrap_or(u64::MAX);
    }

    /// The bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes came before the ones that are kept.
    #[must_use]
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped
    }

    /// The last lines, `n` at most, without empty ones at the end; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn last_lines(&self, n: usize) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(n)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_the_others_counted() {
        let mut tail = Tail::new(10);
        for piece in ["one\n", "two\n", "three\n\n"] {
            tail.push(piece.as_bytes());
        }
        assert_eq!(tail.bytes(), b"wo\nthree\n\n");
        assert_eq!(tail.n_dropped(), 5);
        assert_eq!(tail.last_lines(1), "three");
        assert_eq!(tail.last_lines(9), "wo\nthree");
        tail.push(&[b'x'; 25]);
        assert_eq!(tail.bytes(), [b'x'; 10]);
        assert_eq!(tail.n_dropped(), 30);
    }

    #[test]
    fn a_character_that_was_cut_is_replaced() {
        let mut tail = Tail::new(2);
        tail.push("aü!".as_bytes());
        assert_eq!(tail.last_lines(1), "\u{fffd}!");
        assert_eq!(Tail::new(0).last_lines(3), "");
    }
}
